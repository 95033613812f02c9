//! The log of calls: what a CO asked for, when, and what came of it.
//!
//! Owns: the records and their form on disk, one JSON object per line. Promises: a call is written
//! when it begins and again when it ends, so one that was killed half-way is seen as a beginning
//! without an end; each line is written at once, so instances may share a file; no secret and no
//! mount flag is ever in it. Never: judges; see [`crate::judge`].
//!
//! Times are microseconds since 1970. Within one instance they strictly increase.

mod reader;
mod recorder;

use berth_csi::rpc::Unary;
use berth_csi::{Code, Rpc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::capability::AccessMode;
use crate::faults::When;
use crate::rules::Violation;

pub use reader::{Line, ReadError, read, read_lines};
pub use recorder::{Outcome, Recorder};

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "lowercase")]
pub enum Entry {
    /// An instance started.
    Start(Start),
    /// A call arrived.
    Begin(Begin),
    /// The caller of an unfinished call no longer waits.
    Gone(Gone),
    /// A call has done all it will do; its answer follows.
    End(Box<End>),
}

/// Which process wrote a line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The node it serves.
    pub node_id: String,
    /// The process: another one after each start.
    pub instance: String,
}

/// An instance started, with these abilities, and found this in use on its node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Start {
    /// When.
    pub start_us: u64,
    /// Who.
    #[serde(flatten)]
    pub source: Source,
    /// Whether volumes must be attached to a node first.
    pub attach: bool,
    /// Whether volumes must be staged first.
    pub stage: bool,
    /// All that is really mounted on the node, by notes and mount table together.
    #[serde(default)]
    pub holds: Vec<Holding>,
}

/// What one volume has mounted on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holding {
    /// Which volume.
    pub volume_id: String,
    /// Where it is staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<String>,
    /// Where it is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Which RPC.
    pub rpc: Rpc,
    /// About which volume, where the RPC is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// The arguments that the order of calls depends on.
    #[serde(default)]
    pub args: Args,
}

/// Arguments of interest.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Args {
    /// `node_id` of controller calls; not the node that serves the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// `staging_target_path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<String>,
    /// `target_path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// `readonly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readonly: Option<bool>,
    /// The capability's access mode, where it is a known one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
}

/// A call arrived.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Begin {
    /// Numbers the calls of an instance.
    pub seq: u64,
    /// When.
    pub begin_us: u64,
    /// At whom.
    #[serde(flatten)]
    pub source: Source,
    /// What for.
    #[serde(flatten)]
    pub call: Call,
}

/// The caller of a call stopped waiting for it: a deadline, a cancellation, or its own end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Gone {
    /// Of which call.
    pub seq: u64,
    /// When.
    pub gone_us: u64,
    /// At whom.
    #[serde(flatten)]
    pub source: Source,
}

/// What a call has changed, whatever was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Nothing; all is as before.
    None,
    /// What was asked for is so, now or already before.
    Done,
    /// It failed while changing something, which may be done or half done.
    Unknown,
}

/// A call ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct End {
    /// The number of its beginning.
    pub seq: u64,
    /// When it began.
    pub begin_us: u64,
    /// When it ended: before its answer was sent.
    pub end_us: u64,
    /// At whom.
    #[serde(flatten)]
    pub source: Source,
    /// What for.
    #[serde(flatten)]
    pub call: Call,
    /// The answer's code.
    pub code: Code,
    /// The answer's message; empty with OK.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What it changed.
    pub effect: Effect,
    /// The rule that the caller broke with it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<Violation>,
    /// Set where a planted fault made the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<When>,
}

impl Call {
    /// What this request asks for.
    pub fn of<R: Unary>(request: &R) -> Self {
        // Requests of ours can always be written; secrets are struck out there.
        let shown = serde_json::to_value(request).unwrap_or_default();
        let text = |name: &str| {
            let text = shown.get(name).and_then(Value::as_str).unwrap_or_default();
            Some(text.to_owned()).filter(|text| !text.is_empty())
        };
        let mode = shown.pointer("/volume_capability/access_mode/mode");
        let args = Args {
            node: text("node_id"),
            staging: text("staging_target_path"),
            target: text("target_path"),
            readonly: shown.get("readonly").and_then(Value::as_bool),
            access_mode: mode.and_then(|mode| serde_json::from_value(mode.clone()).ok()),
        };
        let volume_id = text("volume_id").or_else(|| text("source_volume_id"));
        Self { rpc: R::RPC, volume_id, args }
    }
}

impl Entry {
    /// When it was written.
    pub fn time_us(&self) -> u64 {
        match self {
            Self::Start(start) => start.start_us,
            Self::Begin(begin) => begin.begin_us,
            Self::Gone(gone) => gone.gone_us,
            Self::End(end) => end.end_us,
        }
    }

    /// Who wrote it.
    pub fn source(&self) -> &Source {
        match self {
            Self::Start(start) => &start.source,
            Self::Begin(begin) => &begin.source,
            Self::Gone(gone) => &gone.source,
            Self::End(end) => &end.source,
        }
    }
}
