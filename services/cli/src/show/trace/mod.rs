//! The history of a claim, or of a change at the storage, as a tree.
//!
//! ```text
//! events, status ── claim_history ──▶ one claim ── attempts, phases ──▶ Tree ── draw ──▶ text
//!        └───────── changes ────────────────────────────────────────▶
//! ```
//!
//! **Owns** which event belongs to which claim, and how its steps are combined and drawn.
//!
//! **Promises** a true tree from events in any order, duplicated or lost: unknown facts are shown
//! as unknown.
//!
//! **Never** reads a clock or the bus: the present time is passed in.

mod attempts;
mod changes;
mod claim_history;
mod draw;
mod phases;
mod source;
mod tree;

use std::collections::BTreeSet;

use berth_contract::event::Event;
use berth_contract::message::query::RefusedRequest;

pub use draw::{Drawing, draw};
pub use source::TreeSource;
pub use tree::{Claim, Phase, Step, StepOutcome, StorageChange, Tree};

/// The claims and the refused requests. Only the newest refusals are shown, unless `--all` is
/// given.
const SHOWN_MAX: usize = 20;

/// Which claims are in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimSelection<'a> {
    /// The newest claim of each alloc on each volume, and of those the newest few.
    Newest,
    /// The claims of a trace, or the newest when no claim has it.
    Trace(&'a str),
    /// All.
    All,
}

/// Builds the tree, newest claim last.
pub fn tree(source: TreeSource<'_>, selection: ClaimSelection<'_>) -> Tree {
    let mut refusals = refusals(source.events, selection);
    let is_refused = !refusals.is_empty();
    let histories = claim_history::claim_histories(source.events, source.claims);
    let of_trace = |history: &claim_history::ClaimHistory<'_>| match selection {
        ClaimSelection::Trace(trace) => {
            history.claim == Some(trace) || history.release == Some(trace)
        }
        ClaimSelection::Newest | ClaimSelection::All => false,
    };
    let is_traced = histories.iter().any(of_trace);
    let is_shown = |at: usize, history: &claim_history::ClaimHistory<'_>| match selection {
        ClaimSelection::All => true,
        ClaimSelection::Trace(_) if is_traced || is_refused => of_trace(history),
        ClaimSelection::Trace(_) | ClaimSelection::Newest => {
            histories[at + 1..].iter().all(|next| next.key != history.key)
        }
    };
    let shown = histories.iter().enumerate().filter(|(at, history)| is_shown(*at, history));
    let mut claims: Vec<Claim> = shown.map(|(_, history)| phases::claim(history, source)).collect();
    if selection == ClaimSelection::Newest {
        claims.drain(..claims.len().saturating_sub(SHOWN_MAX));
        refusals.drain(..refusals.len().saturating_sub(SHOWN_MAX));
    }
    let left_out = histories.len() - claims.len();
    let changes = changes(source, selection);
    Tree { at: source.now, left_out, begins: source.begins, claims, changes, refusals }
}

/// The changes at the storage: the newest of each volume and snapshot, unless the selection says
/// otherwise.
fn changes(source: TreeSource<'_>, selection: ClaimSelection<'_>) -> Vec<StorageChange> {
    let mut changes = changes::changes(source);
    match selection {
        ClaimSelection::All => {}
        ClaimSelection::Trace(trace) => changes.retain(|change| change.traces.contains(trace)),
        ClaimSelection::Newest => {
            let mut seen = BTreeSet::new();
            changes.reverse();
            changes.retain(|StorageChange { namespace, volume, snapshot, .. }| {
                seen.insert((namespace.clone(), volume.clone(), snapshot.clone()))
            });
            changes.truncate(SHOWN_MAX);
            changes.reverse();
        }
    }
    changes
}

/// The refused requests, oldest first, each once.
fn refusals(events: &[Event], selection: ClaimSelection<'_>) -> Vec<RefusedRequest> {
    let is_meant = |event: &&Event| match selection {
        ClaimSelection::Trace(trace) => event.trace.as_deref() == Some(trace),
        ClaimSelection::Newest | ClaimSelection::All => true,
    };
    let refused = source::in_order(events).into_iter().filter(is_meant);
    refused.filter_map(|event| RefusedRequest::from_event(event.clone())).collect()
}
