//! The common parts of read requests and their replies.
//!
//! **Owns** the page of a list, the wait for something newer, an unreadable record, and the last
//! refusal of a volume or an alloc.

use berth_domain::{AllocId, NodeId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::decode_part;
use crate::event::{Event, EventName};

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Page {
    /// At most so many entries; as many as fit a message, and at most 1000, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only what comes after: `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}
decode_part!(Page { limit, after });

/// Whether to answer at once, or when there is something newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LongPoll {
    /// Answer only when there is something newer than this `index` (of one thing: `modify_index`),
    /// or the wait is over; at once when absent.
    #[serde(rename = "newer_than", default, skip_serializing_if = "Option::is_none")]
    pub than: Option<u64>,
    /// How long to wait for that, in milliseconds: 15 s at most, and as long as the request's
    /// deadline allows. That long when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}
decode_part!(LongPoll { than as "newer_than", wait_ms });

/// A stored record that this version cannot read. What it says may hold all the same, so nothing is
/// decided without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRecord {
    /// Its key.
    pub key: String,
    /// Why: a newer version wrote it, or it is damaged.
    pub code: Code,
    /// The same in words.
    pub error: String,
}

/// The newest refused request about a volume or an alloc, from its event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRequest {
    /// When it was refused.
    pub at: Timestamp,
    /// The verb that refused it, such as `claim.take`.
    pub step: String,
    /// The code of the error.
    pub code: Code,
    /// The error's message.
    pub message: String,
    /// The volume that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// The alloc that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<AllocId>,
    /// The node that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The request's trace: `berth trace` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl RefusedRequest {
    /// What an event tells of a refused request; none when it tells of something else.
    pub fn from_event(event: Event) -> Option<Self> {
        if event.event != EventName::RequestRefused {
            return None;
        }
        Some(Self {
            at: event.at,
            step: event.step.unwrap_or_default(),
            code: event.code?,
            message: event.detail.unwrap_or_default(),
            volume: event.volume,
            alloc: event.alloc,
            node: event.node,
            trace: event.trace,
        })
    }
}
