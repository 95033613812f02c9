//! Collection: what was found that nobody else saw.

use serde::{Deserialize, Serialize};

use crate::decode_struct;

/// `gc.force`: collect now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Force {}
decode_struct!(Force {});

/// What a sweep did, and on what evidence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sweep {
    /// One line per thing collected: what, and why it was safe.
    pub collected: Vec<String>,
    /// One line per thing that should go and could not yet.
    pub kept: Vec<String>,
}
