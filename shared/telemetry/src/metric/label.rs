//! The values of labels.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::StringValue;

/// The label of all values beyond the first [`VALUES_MAX`].
const OTHER: &str = "other";
/// Most values of one label.
const VALUES_MAX: usize = 64;

/// One label's value: a text of the program, or one of a bounded set.
#[derive(Debug, Clone)]
pub struct Label(pub(crate) StringValue);

impl From<&'static str> for Label {
    /// A text of the program. Never leak memory to get one: take [`Bounded::label`].
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

/// A label whose values come from outside the program: the first 64 are kept.
#[derive(Debug)]
pub struct Bounded {
    known: Mutex<BTreeSet<Arc<str>>>,
}

/// Plugins, by id.
pub static PLUGINS: Bounded = Bounded::new();
/// Buckets, by name.
pub static BUCKETS: Bounded = Bounded::new();
/// Services, by name.
pub static SERVICES: Bounded = Bounded::new();
/// Endpoints, by name.
pub static ENDPOINTS: Bounded = Bounded::new();
/// Steps: the names of verbs, such as `claim.take`.
pub static STEPS: Bounded = Bounded::new();

impl Bounded {
    const fn new() -> Self {
        Self { known: Mutex::new(BTreeSet::new()) }
    }

    /// The value, or `other` if there is no room for it.
    pub fn label(&self, value: &str) -> Label {
        let mut values = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = values.get(value) {
            return Label(Arc::clone(value).into());
        }
        if values.len() >= VALUES_MAX {
            return OTHER.into();
        }
        let value: Arc<str> = value.into();
        values.insert(Arc::clone(&value));
        Label(value.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_first_values_all_are_one() {
        let plugins = Bounded::new();
        let label = |at: usize| plugins.label(&format!("p{at}")).0.as_str().to_owned();
        let labels: BTreeSet<String> = (0..1000).map(label).collect();
        assert_eq!(labels.len(), VALUES_MAX + 1);
        assert_eq!((label(0), label(63), label(64)), ("p0".into(), "p63".into(), OTHER.into()));
    }
}
