//! What a claim waits for. The claim service decides the reason; the words are here.

use std::fmt;

use berth_contract::bucket;
use berth_contract::message::claim::ClaimWait;
use berth_contract::record::UnreadableRecord;
use berth_domain::volume::{
    Attempt, CallKind, NodeMount, NodeMountState, OtherClaim, State, name_in,
};
use berth_domain::{AllocId, Namespace, NodeId, Timestamp};

/// What a claim waits for, with its details. The text continues after "waits for".
#[derive(Debug, Clone)]
pub enum WaitReason<'a> {
    /// The answer to its call, or the deadline of the call.
    Call(&'a Attempt),
    /// A retry: the deadline of the call has passed without an answer.
    Unanswered(&'a Attempt),
    /// The time of its next try.
    NextTry(CallKind, Timestamp),
    /// A volumewatcher, to make the next call.
    Watcher(CallKind),
    /// Its release: its alloc has ended.
    Release,
    /// Its caller, to repeat the request.
    Caller,
    /// The first claims that hold the volume or came before it, with their nodes, and how many more
    /// there are.
    Turn(Vec<(&'a AllocId, &'a NodeId, State)>, usize),
    /// The end of another alloc on a node, whose claim uses the same attachment at the storage: the
    /// one to this external node.
    Attachment(&'a AllocId, &'a NodeId, &'a str),
    /// A claim of the same volume of the plugin under another name; its text is for a caller of
    /// this namespace.
    OtherName(&'a Namespace, &'a OtherClaim),
    /// The server, which has stored no writes since then, for this reason.
    Store(Timestamp, &'a str),
    /// The record of its alloc, which cannot be read.
    Record(&'a UnreadableRecord),
    /// Its node, which has been down since then; with the last report of the mount on it.
    Node(&'a NodeId, Timestamp, Option<&'a NodeMount>),
    /// Its mount on the node.
    Mount(&'a NodeId, &'a NodeMount),
}

impl WaitReason<'_> {
    /// The kind, for programs.
    pub const fn kind(&self) -> ClaimWait {
        match self {
            Self::Call(_) | Self::Unanswered(_) => ClaimWait::Call,
            Self::NextTry(..) => ClaimWait::NextTry,
            Self::Watcher(..) => ClaimWait::Watcher,
            Self::Release => ClaimWait::Release,
            Self::Caller => ClaimWait::Caller,
            Self::Turn(..) => ClaimWait::Turn,
            Self::Attachment(..) => ClaimWait::Attachment,
            Self::OtherName(..) => ClaimWait::OtherName,
            Self::Store(..) => ClaimWait::Store,
            Self::Record(_) => ClaimWait::Record,
            Self::Node(..) => ClaimWait::Node,
            Self::Mount(..) => ClaimWait::Mount,
        }
    }
}

impl fmt::Display for WaitReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(attempt) => {
                write!(f, "{} by {}, until {}", attempt.call, attempt.worker, attempt.ends())
            }
            Self::Unanswered(Attempt { call, worker, .. }) => {
                write!(f, "another try: {call} by {worker} was not answered")
            }
            Self::NextTry(call, at) => write!(f, "{call}, again at {at}"),
            Self::Watcher(call) => write!(f, "a volumewatcher to make the call {call}"),
            Self::Release => f.write_str("its release: the alloc has ended"),
            Self::Caller => f.write_str("its caller to ask again"),
            Self::Turn(ahead, more) => write_turn(f, ahead, *more),
            Self::Attachment(alloc, node, external_node) => write!(
                f,
                "the end of alloc {alloc} on node {node}: the storage has the volume attached to \
                 {external_node:?} for both"
            ),
            Self::OtherName(namespace, other) => write_other_name(f, namespace, other),
            Self::Store(since, reason) => write!(
                f,
                "the server to store the next write to bucket {}; since {since} it stores none: \
                 {reason}",
                bucket::VOLUMES.name
            ),
            Self::Record(record) => record.fmt(f),
            Self::Node(node, since, last) => {
                write!(f, "the agent of node {node}, which is down since {since}")?;
                last.map_or(Ok(()), |last| {
                    write!(f, "; its last report: {} since {}", last.state, last.since)
                })
            }
            Self::Mount(node, mount) => write_mount(f, node, mount),
        }
    }
}

fn write_turn(
    f: &mut fmt::Formatter<'_>,
    ahead: &[(&AllocId, &NodeId, State)],
    more: usize,
) -> fmt::Result {
    if ahead.is_empty() {
        return f.write_str("its turn, which has come");
    }
    for (index, (alloc, node, state)) in ahead.iter().enumerate() {
        let before = if index == 0 { "its turn, after " } else { ", " };
        write!(f, "{before}{alloc} on {node} ({state})")?;
    }
    if more > 0 { write!(f, ", {more} more") } else { Ok(()) }
}

fn write_other_name(
    f: &mut fmt::Formatter<'_>,
    namespace: &Namespace,
    other: &OtherClaim,
) -> fmt::Result {
    let name = name_in(namespace, &other.volume);
    let whose = if other.volume.namespace == *namespace {
        format!("alloc {}", other.alloc)
    } else {
        "an alloc".to_owned()
    };
    let claim = format!("the claim of {whose} on {name}, the same volume of the plugin");
    if other.stands {
        write!(f, "{claim}, which stands on node {}", other.node)
    } else {
        write!(f, "the controller, which works on {claim}")
    }
}

fn write_mount(f: &mut fmt::Formatter<'_>, node: &NodeId, mount: &NodeMount) -> fmt::Result {
    let since = mount.since;
    let rpc = mount.rpc.as_deref();
    match (mount.state, rpc) {
        (NodeMountState::Staging | NodeMountState::Publishing, Some(rpc)) => {
            write!(f, "{rpc} on node {node}, under way since {since}")
        }
        (NodeMountState::Staging | NodeMountState::Publishing, None) => {
            write!(f, "the mount on node {node}, begun at {since}")
        }
        (NodeMountState::Failing, _) => {
            write!(f, "its caller to ask node {node} for the mount again; it fails since {since}")
        }
        (NodeMountState::Hung, Some(rpc)) => {
            write!(f, "{rpc} on node {node}, not answered since {since}")
        }
        (NodeMountState::Hung, None) => {
            write!(f, "the mount on node {node}, which does not answer since {since}")
        }
        (NodeMountState::Missing, _) => {
            write!(f, "nothing, but its mount is missing on node {node} since {since}")
        }
        (NodeMountState::Dead, _) => {
            write!(f, "nothing, but its mount on node {node} fails since {since}")
        }
        (NodeMountState::Mounted | NodeMountState::Unknown, _) => {
            write!(f, "nothing: it is {} on node {node}", mount.state)
        }
    }
}
