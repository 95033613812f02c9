//! What an identity may not do, as processes tell it.

use serde::{Deserialize, Serialize};

/// What a process lacks to do all that its version does, in its answers to `$SRV.INFO` and
/// `$SRV.STATS`, and in an agent's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessReport {
    /// The name of its identity: `claim`, `node/n1`.
    pub identity: String,
    /// The rights that the identity's token lacks.
    pub missing: Vec<RightSubject>,
    /// The command that makes an identity with all rights.
    pub remedy: String,
}

/// A right. What it is for follows from its subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RightSubject {
    /// To publish to the subject.
    Publish(String),
    /// To receive what is published to the subject, in this queue group if one stands behind it.
    Subscribe(String),
}
