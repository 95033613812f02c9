//! One fault.
//!
//! Owns: which calls it hits, and what it does to them. Promises: has no state. Never: counts.

use berth_csi::{Code, Rpc};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::replace::AnswerFields;

/// A fault delays a call, and does at most one thing more: answer with a code, hang, crash, lose
/// the answer, or make it wrong. A call takes the first fault that matches and is not used up, one
/// before and one after its work.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// `None` matches all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpc: Option<Rpc>,
    /// A volume: by its id, or by its name in `CreateVolume`. For `CreateSnapshot` and
    /// `CreateVolumeGroupSnapshot`, a source. For other calls about a snapshot or group, the id of
    /// that. `None` matches all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// Before or after the work of the call. Lost and wrong answers are always after.
    pub when: FaultSide,
    /// Delay in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub delay_ms: u64,
    /// The code of the answer; `None` lets the call go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The call hangs until this fault is removed from the file.
    #[serde(skip_serializing_if = "is_default")]
    pub hang: bool,
    /// The process kills itself by SIGKILL.
    #[serde(skip_serializing_if = "is_default")]
    pub crash: bool,
    /// The work is done, and the answer is never sent.
    #[serde(skip_serializing_if = "is_default")]
    pub lose_answer: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong: Option<WrongAnswer>,
    /// The work is done, and the answer has these fields instead of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerFields>,
    /// The number of hits per instance; `None` means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// The share of matching calls that are hit, 0 to 1; `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Chooses the share: the same seed hits the same calls, counted in order of arrival.
    #[serde(skip_serializing_if = "is_default")]
    pub seed: u64,
}

/// When a fault is applied.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultSide {
    /// With a code, the work is not done.
    #[default]
    Before,
    /// With a code, the work is done, and the answer denies it.
    After,
}

/// Wrong answers, as real plugins were seen to give them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum WrongAnswer {
    /// An unknown value in lists of capabilities and access modes.
    UnknownEnum,
    /// `Probe` without `ready`, which means ready in CSI.
    NoReady,
    /// A topology without segments, from `NodeGetInfo` and `CreateVolume`.
    EmptyTopology,
    /// No topology, from `NodeGetInfo` and `CreateVolume`.
    NoTopology,
    /// A negative `max_volumes_per_node`, which CSI forbids.
    NegativeLimit,
    /// Another `name` from `GetPluginInfo`.
    OtherName,
    /// Another `vendor_version` from `GetPluginInfo`.
    OtherVersion,
    /// Empty lists of capabilities, also of confirmed ones.
    NoCapabilities,
    /// A hundred additional entries in each map; texts of 64 KiB, also of errors, with line breaks,
    /// control characters and what looks like passwords.
    Chatty,
    /// `OK` without doing anything.
    NothingDone,
    /// `CreateVolume` and `ControllerExpandVolume` add half of what was required, and answer so. A
    /// volume is not made smaller than its source or file system needs.
    LessCapacity,
    /// No id, from `CreateVolume`, `CreateSnapshot` and `CreateVolumeGroupSnapshot`.
    NoId,
    /// `CreateVolume` makes one more volume for the same name, and answers the id of that; so does
    /// `CreateSnapshot`.
    OtherId,
    /// The id of another existing volume or snapshot, from `CreateVolume` and `CreateSnapshot`.
    IdOfAnother,
    /// An `accessible_topology` that was not requested, from `CreateVolume`.
    OtherTopology,
    /// `ListVolumes` and `ListSnapshots` begin again after the last page, each time with a token
    /// that was never given before.
    EndlessPages,
    /// `ListVolumes` and `ListSnapshots` answer the first page and the same token, for ever.
    EndlessToken,
    /// No `content_source`, from `CreateVolume`.
    NoSource,
}

/// What a fault did to the answer, for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultMark {
    /// The code is planted, and nothing was done.
    Before,
    /// The code is planted, and the work was done.
    After,
    /// The caller gets no answer.
    Lost,
    /// The answer is wrong.
    Wrong,
}

/// The faults of one call.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct CallFaults {
    /// Before its work.
    pub before: Option<Fault>,
    /// After its work.
    pub after: Option<Fault>,
}

impl Fault {
    /// Whether it is applied before or after the work.
    pub fn side(&self) -> FaultSide {
        if self.lose_answer || self.wrong.is_some() || self.answer.is_some() {
            FaultSide::After
        } else {
            self.when
        }
    }

    /// `about` has every id and name by which a fault may select the call.
    pub(super) fn hits(&self, side: FaultSide, rpc: Rpc, about: &[&str]) -> bool {
        self.side() == side
            && self.rpc.is_none_or(|wanted| wanted == rpc)
            && self.volume.as_deref().is_none_or(|wanted| about.contains(&wanted))
    }

    /// A contradiction between fields that are each well-formed.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let falsifies = self.wrong.is_some() || self.answer.is_some();
        let actions = [self.code.is_some(), self.hang, self.crash, self.lose_answer, falsifies];
        if actions.iter().filter(|action| **action).count() > 1 {
            Some("code, hang, crash, lose_answer and a wrong answer exclude each other")
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
