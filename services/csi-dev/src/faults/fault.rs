//! One fault.
//!
//! Owns: which calls it hits, and what it does to them. Promises: values only. Never: counts.

use berth_csi::{Code, Rpc};
use serde::{Deserialize, Serialize};

/// A fault. It may delay a call, and do one thing more to it: answer with a code, hang, crash, lose
/// the answer, or make it wrong. Of those that fit a call, the first that is not used up is taken,
/// one for before and one for after.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Which calls; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<Rpc>,
    /// About which volume; `None` means any, and calls about none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Before or after the call has done its work. An answer is lost or wrong always after.
    pub when: FaultSide,
    /// How long the call stands still, in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub delay_ms: u64,
    /// What it then answers; `None` means that it goes on as if nothing had been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// It stands still until this fault is taken away, or the process ends.
    #[serde(skip_serializing_if = "is_default")]
    pub hang: bool,
    /// The process kills itself by SIGKILL.
    #[serde(skip_serializing_if = "is_default")]
    pub crash: bool,
    /// The work is done, and the caller waits in vain for an answer.
    #[serde(skip_serializing_if = "is_default")]
    pub lose_answer: bool,
    /// The answer is wrong in this small way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong: Option<WrongAnswer>,
    /// How many calls it hits, per instance; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The share of the calls that fit which it hits, 0 to 1; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Which calls these are: the same seed hits the same calls, counted in the order they came.
    #[serde(skip_serializing_if = "is_default")]
    pub seed: u64,
}

/// On which side of the work a fault lies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultSide {
    /// Nothing is done yet, and with a code nothing will be.
    #[default]
    Before,
    /// All is done, and with a code the caller is told otherwise.
    After,
}

/// Answers that real plugins have been seen to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrongAnswer {
    /// Capabilities and access modes of which one is not known to CSI 1.12; a volume's usage in an
    /// unknown unit.
    UnknownEnum,
    /// `Probe` without `ready`, which CSI takes for ready.
    NoReady,
    /// A topology without segments, from `NodeGetInfo` and of a created volume.
    EmptyTopology,
    /// No topology at all, from `NodeGetInfo` and of a created volume.
    NoTopology,
    /// A negative `max_volumes_per_node`, which CSI forbids.
    NegativeLimit,
    /// Another `name` from `GetPluginInfo`.
    OtherName,
    /// Another `vendor_version` from `GetPluginInfo`.
    OtherVersion,
    /// Lists of capabilities, or confirmed ones, that are empty.
    NoCapabilities,
    /// A hundred entries more in each map of an answer; texts, also of errors, of 64 KiB, with line
    /// breaks, control characters and what looks like passwords.
    Chatty,
    /// Lists end early, and no token tells so.
    NoNextToken,
    /// `OK`, and nothing was done: the log then says what the kernel has all the same.
    NothingDone,
    /// Lists never end: the last page's token leads to the first.
    RepeatToken,
}

/// What a fault made of a call, as the log tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultMark {
    /// The answer's code is planted, and nothing was done.
    Before,
    /// The answer's code is planted, after the work.
    After,
    /// The caller gets no answer.
    Lost,
    /// The answer is wrong.
    Wrong,
}

/// What befalls one call.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct CallFaults {
    /// Before its work.
    pub before: Option<Fault>,
    /// After its work.
    pub after: Option<Fault>,
}

impl Fault {
    /// On which side of the work it really lies.
    pub fn side(&self) -> FaultSide {
        if self.lose_answer || self.wrong.is_some() { FaultSide::After } else { self.when }
    }

    pub(super) fn hits(&self, side: FaultSide, rpc: Rpc, volume: Option<&str>) -> bool {
        self.side() == side
            && self.rpc.is_none_or(|wanted| wanted == rpc)
            && self.volume.as_deref().is_none_or(|wanted| Some(wanted) == volume)
    }

    /// What contradicts itself, although each field is well-formed.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let actions =
            [self.code.is_some(), self.hang, self.crash, self.lose_answer, self.wrong.is_some()];
        if actions.iter().filter(|action| **action).count() > 1 {
            Some("code, hang, crash, lose_answer and wrong exclude each other")
        } else if self.code == Some(Code::Ok) {
            Some("code OK is no fault; leave code out to let the call go on")
        } else if self.probability.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            Some("probability is a number from 0 to 1")
        } else {
            None
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
