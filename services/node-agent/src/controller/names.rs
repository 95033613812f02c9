//! Which id a plugin answered for the name of a new volume.
//!
//! **Why.** The name is CSI's key of idempotency: the same name gives the same volume. A plugin
//! that gives another id has made a second volume, which no record would know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::code::Code;
use berth_contract::problem::Problem;

/// Largest number of names that are remembered.
const NAMES_MAX: usize = 4096;

/// The answered ids, by name. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AnsweredNames {
    ids: Arc<Mutex<HashMap<String, String>>>,
}

impl AnsweredNames {
    /// Refuses an id that differs from the one answered before for the name.
    pub(super) fn check(&self, name: &str, id: &str) -> Result<(), Problem> {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = ids.get(name).filter(|before| *before != id) {
            let message = format!(
                "the plugin answered CreateVolume for the name {name:?} with the id {id:?}, and \
                 with {before:?} before: it does not keep CSI's rule that a name gives one volume, \
                 and has made two"
            );
            let next =
                "delete one of the two at the storage, and report it to the plugin's authors";
            return Err(Problem::new(Code::PluginFailed, message).retryable().next(next));
        }
        if ids.len() >= NAMES_MAX {
            ids.clear();
        }
        ids.insert(name.to_owned(), id.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gives_one_id() {
        let names = AnsweredNames::default();
        assert!(names.check("a", "1").is_ok() && names.check("a", "1").is_ok());
        assert!(names.check("b", "1").is_ok(), "another name may give any id");
        let differs = names.check("a", "2").unwrap_err();
        assert!(differs.message.contains("made two"), "{differs}");
        assert!(names.check("a", "1").is_ok(), "the first id stays");
    }
}
