//! Why a call did not succeed: in words for people, and in facts for programs.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{GrpcCode, NodeId};

/// From so many on, the call is taken for the reason why the plugin's process ends. One may be
/// another call's, or a restart.
const CRASHES_SUSPECT: u32 = 2;

/// Why a call did not succeed. On a record and in a reply the words are `error`, and the facts are
/// `failure`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailure {
    /// In words, for people. No program reads them.
    #[serde(rename = "error")]
    pub message: String,
    /// What programs may know of it.
    #[serde(rename = "failure", default, skip_serializing_if = "FailureFacts::is_empty")]
    pub facts: FailureFacts,
}

/// What programs may know of a failure. All of it is absent from a record of an older version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FailureFacts {
    /// Berth's error code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The call of the plugin that failed, such as `NodeUnpublishVolume`; absent if the plugin was
    /// not called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc: Option<String>,
    /// The plugin's answer; absent if it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCode>,
    /// The node whose agent had the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The processes that keep the volume on the node, the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<HoldingProcess>,
    /// What its executor advises, where that is more than the code says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many such calls the plugin's process ended under, or broke the connection, since it last
    /// answered one of them. A report of one call has 1 at most; a record has the sum.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashes: u32,
}

/// A process of a node: one that has a volume mounted or its device open, or a plugin's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HoldingProcess {
    /// Its id on the node.
    pub pid: u32,
    /// Its name, without arguments, which may hold secrets.
    pub command: String,
}

/// The number of an error code of Berth, such as `BERTH0206`. What it means, the contract says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub u16);

impl CallFailure {
    /// A failure that is known in words only.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), facts: FailureFacts::default() }
    }
}

impl FailureFacts {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the call seems to be the reason why the plugin's process ends.
    pub fn ends_plugin(&self) -> bool {
        self.crashes >= CRASHES_SUSPECT
    }

    /// Adds the crashes before this failure. A plugin that answered has survived the call.
    pub fn add_crashes(&mut self, before: &Self) {
        if self.grpc.is_none() {
            self.crashes = self.crashes.saturating_add(before.crashes);
        }
    }
}

impl From<&str> for CallFailure {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for CallFailure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BERTH{:04}", self.0)
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ErrorCode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let number = text.strip_prefix("BERTH").and_then(|number| number.parse().ok());
        number.map(Self).ok_or_else(|| serde::de::Error::custom("not an error code of Berth"))
    }
}

/// Whether a record leaves this number out.
pub(in crate::volume) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_of_an_older_version_is_known_in_words_only() {
        let of_today = CallFailure {
            facts: FailureFacts { code: Some(ErrorCode(206)), ..FailureFacts::default() },
            ..CallFailure::new("no")
        };
        for (failure, written) in [
            (CallFailure::new("no"), json!({"error": "no"})),
            (of_today, json!({"error": "no", "failure": {"code": "BERTH0206"}})),
        ] {
            assert_eq!(serde_json::to_value(&failure).unwrap(), written);
            assert_eq!(serde_json::from_value::<CallFailure>(written).unwrap(), failure);
        }
    }
}
