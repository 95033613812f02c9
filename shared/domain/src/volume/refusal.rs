//! Why a volume says no, with the facts an operator needs.

use std::fmt;

use thiserror::Error;

use super::attempt::CallKind;
use super::claim::{Claim, State};
use super::command::NoRoute;
use crate::access::{Capability, CapabilityFilter, Conflict, Mode};
use crate::{AllocId, NodeId, Timestamp};

/// Somebody who holds a volume, or is ahead in line for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub alloc: AllocId,
    /// Where.
    pub node: NodeId,
    /// To do what.
    pub mode: Mode,
    /// How far it is.
    pub state: State,
    /// Since when.
    pub since: Timestamp,
}

/// Those in the way: all are counted, and as many kept as a message names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    /// The first of them.
    pub named: Vec<Holder>,
    /// How many there are besides.
    pub more: usize,
}

impl<'a> FromIterator<(&'a AllocId, &'a Claim)> for Holders {
    fn from_iter<I: IntoIterator<Item = (&'a AllocId, &'a Claim)>>(claims: I) -> Self {
        let mut claims = claims.into_iter();
        let named =
            claims.by_ref().take(NAMED_MAX).map(|(alloc, claim)| Holder::from_claim(alloc, claim));
        Self { named: named.collect(), more: claims.count() }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.named, self.more))
    }
}

impl Holder {
    pub(super) fn from_claim(alloc: &AllocId, claim: &Claim) -> Self {
        let Claim { node, mode, state, since, .. } = claim;
        let (alloc, node) = (alloc.clone(), node.clone());
        Self { alloc, node, mode: *mode, state: *state, since: *since }
    }
}

impl Refusal {
    /// Whether what is lacking at the plugin or the node may come to be while a caller waits,
    /// without anybody's changing the request.
    pub fn may_pass(&self) -> bool {
        use Refusal::{
            AttachedAs, NodeAway, NodeClock, NodeFull, PluginUnready, SharedId, Unaccounted,
        };
        matches!(
            self,
            PluginUnready(_)
                | NodeAway(_)
                | NodeClock(_)
                | NodeFull(_)
                | SharedId(_)
                | Unaccounted(_)
                | AttachedAs { .. }
        )
    }
}

impl From<NoRoute> for Refusal {
    fn from(why: NoRoute) -> Self {
        match why {
            NoRoute::Plugin(why) => Self::PluginUnready(why),
            NoRoute::Clock(why) => Self::NodeClock(why),
            NoRoute::Node(why) => Self::NodeAway(why),
            NoRoute::Topology(why) => Self::OutOfReach(why),
            NoRoute::Full(why) => Self::NodeFull(why),
            NoRoute::SharedId(why) => Self::SharedId(why),
            NoRoute::Unaccounted(why) => Self::Unaccounted(why),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alloc, node, mode, state, since } = self;
        write!(f, "alloc {alloc} on node {node} ({mode}, {state} since {since})")
    }
}

/// A policy "no"; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It is not registered.
    #[error("the volume is not registered")]
    NoSuchVolume,
    /// It is being deregistered.
    #[error("the volume is being deregistered since {since}: {reason}")]
    Closing {
        /// Since when.
        since: Timestamp,
        /// What was said for it.
        reason: String,
    },
    /// Its handle belongs to other registrations.
    #[error("at its plugin it is the same volume as {}, registered already", list(others))]
    HandleTaken {
        /// The other volumes, as far as the caller may know them.
        others: Vec<String>,
    },
    /// It is registered under other names as well.
    #[error(
        "at its plugin it is the same volume as {}; while both are registered, neither is granted",
        list(others)
    )]
    RegisteredTwice {
        /// The other volumes, as far as the caller may know them.
        others: Vec<String>,
    },
    /// It cannot be used so.
    #[error("{asked} is not offered; the volume offers {}", list(offered))]
    CapabilityNotOffered {
        /// What was asked for.
        asked: CapabilityFilter,
        /// What there is.
        offered: Vec<Capability>,
    },
    /// It is in use otherwise.
    #[error("the volume is in use as {in_use}, not {asked}: held by {holders}")]
    AccessInUse {
        /// What was asked for.
        asked: Capability,
        /// How it is used.
        in_use: Capability,
        /// By whom.
        holders: Holders,
    },
    /// Nobody may write it.
    #[error("the volume cannot be claimed for writing: {asked} allows no writer")]
    NoWriters {
        /// What was asked for.
        asked: Capability,
    },
    /// Others hold it.
    #[error("the volume is held by {holders}; {conflict}")]
    Held {
        /// The rule that is in the way.
        conflict: Conflict,
        /// Those in the way.
        holders: Holders,
    },
    /// The plugin has no room for it, as it said of another claim (A7).
    #[error(
        "the plugin has no room for the volume: so it said for {holder}{}{}",
        last_error(error.as_ref()),
        next_try.map(|at| format!("; it is asked again at {at}")).unwrap_or_default()
    )]
    Exhausted {
        /// The claim it was said of.
        holder: Holder,
        /// What the plugin said.
        error: Option<String>,
        /// When it is asked again.
        next_try: Option<Timestamp>,
    },
    /// The plugin cannot serve it there now.
    #[error("the plugin cannot serve the volume there: {0}")]
    PluginUnready(String),
    /// The node's clock is beyond the margin (safety rule 8).
    #[error("the node's clock is off: {0}")]
    NodeClock(String),
    /// The node is not there.
    #[error("{0}")]
    NodeAway(String),
    /// The volume's topology does not cover the node's.
    #[error("the volume cannot be reached from the node: {0}")]
    OutOfReach(String),
    /// The node has as many volumes of the plugin as it takes (E10).
    #[error("there is no room for the volume on the node: {0}")]
    NodeFull(String),
    /// The plugin gives the node an id that is another node's.
    #[error("{0}")]
    SharedId(String),
    /// Another node has a mount of it that no claim covers.
    #[error("{0}")]
    Unaccounted(String),
    /// The volume is held on another node under the id that the plugin gives this one, or on this
    /// node under another (rule 8).
    #[error(
        "the plugin calls node {node} {external:?}, and the volume is attached to {held_as:?} for \
         {holder}; the storage cannot tell the two apart"
    )]
    AttachedAs {
        /// The node that is asked for.
        node: NodeId,
        /// What the plugin calls it.
        external: String,
        /// What the plugin called the holder's node.
        held_as: String,
        /// Who holds the volume.
        holder: Holder,
    },
    /// A call is under way, or due later.
    #[error(
        "{call} for alloc {alloc} is under way or not yet due; next look at {until}{}",
        last_error(error.as_ref())
    )]
    Busy {
        /// For whose claim.
        alloc: AllocId,
        /// Which call.
        call: CallKind,
        /// When to look again at the latest.
        until: Timestamp,
        /// What the last call said, if one failed.
        error: Option<String>,
    },
    /// The alloc's own earlier claim is on its way out.
    #[error(
        "this alloc's earlier claim is still {state} since {since}{}",
        last_error(error.as_ref())
    )]
    Releasing {
        /// How far it is.
        state: State,
        /// Since when.
        since: Timestamp,
        /// What the last call said, if one failed.
        error: Option<String>,
    },
    /// The alloc has another claim on the volume.
    #[error("the alloc already claims the volume for {mode} on node {node}")]
    ClaimDiffers {
        /// Where.
        node: NodeId,
        /// To do what.
        mode: Mode,
    },
    /// As many claims as a volume may have.
    #[error("the volume has {0} claims, as many as a volume may have")]
    TooManyClaims(usize),
    /// There is no such claim.
    #[error("alloc {0} has no claim on the volume")]
    NoSuchClaim(AllocId),
    /// The answer is not of the attempt on the record (safety rule 7).
    #[error("the answer is of an attempt that is no longer on the record")]
    StaleAttempt,
    /// Nothing to do.
    #[error("nothing is to be done for the claim now ({state})")]
    NotDue {
        /// How far it is.
        state: State,
        /// When to look again, if time alone changes that.
        next_try: Option<Timestamp>,
    },
    /// Claims remain.
    #[error("still claimed by {holders}")]
    ClaimsLive {
        /// Whose.
        holders: Holders,
    },
    /// Claims of running allocs remain, which even force does not take away.
    #[error("still running with it: {}", list(allocs))]
    StillRunning {
        /// Whose.
        allocs: Vec<AllocId>,
    },
    /// The update would change what may not change.
    #[error("cannot change {} of a volume that is claimed by {holders}", fields.join(", "))]
    UnsafeUpdate {
        /// The fields.
        fields: Vec<&'static str>,
        /// The claims.
        holders: Holders,
    },
}

/// The most entries named in a message: a volume may have thousands of holders.
const NAMED_MAX: usize = 5;

fn list<T: fmt::Display>(things: &[T]) -> String {
    let named = &things[..things.len().min(NAMED_MAX)];
    joined(named, things.len() - named.len())
}

fn joined<T: fmt::Display>(named: &[T], more: usize) -> String {
    let named: Vec<String> = named.iter().map(ToString::to_string).collect();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &tail
}

fn last_error(error: Option<&String>) -> String {
    error.map(|error| format!("; the last call said: {error}")).unwrap_or_default()
}
