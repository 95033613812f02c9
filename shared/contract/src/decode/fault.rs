//! Faults of an input, of which a stranger may send any number.

use std::fmt;

use berth_domain::limits;
use serde::{Deserialize, Serialize};

use crate::shorten::shorten;

/// One thing wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where, such as `capability[1].access`; empty for the whole.
    pub path: String,
    /// What is wrong, and what would be right.
    pub problem: String,
    /// The line in the document, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "`{}` ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

/// The faults of one input. The first [`limits::FAULTS_MAX`] are kept, and the others counted: an
/// answer that lists them all would be larger than the bus carries.
#[derive(Debug, Default)]
pub(crate) struct FaultList {
    kept: Vec<Fault>,
    more: usize,
}

impl FaultList {
    /// Adds a fault. It is made only if it is kept.
    pub(crate) fn add(&mut self, fault: impl FnOnce() -> Fault) {
        if self.kept.len() == limits::FAULTS_MAX {
            self.more += 1;
            return;
        }
        let Fault { path, problem, line } = fault();
        self.kept.push(Fault { path: shorten(path), problem: shorten(problem), line });
    }

    /// The faults that were kept, and one that says how many there are beside them.
    pub(crate) fn into_vec(self) -> Vec<Fault> {
        let Self { mut kept, more } = self;
        if more > 0 {
            let problem = format!("{more} more were found; the first are listed");
            kept.push(Fault { path: String::new(), problem, line: None });
        }
        kept
    }
}

impl FromIterator<Fault> for FaultList {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        let mut list = Self::default();
        faults.into_iter().for_each(|fault| list.add(|| fault));
        list
    }
}
