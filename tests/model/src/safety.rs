//! The safety rules that each state must satisfy.

use std::fmt;

use berth_domain::access::{Bound, Mode};
use berth_domain::volume::{CallKind, State};

use crate::scenario::{Mutation, Scenario, Trouble};
use crate::world::{NODES, World};

#[cfg(test)]
mod tests;

/// The broken rule, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach(String);

impl Breach {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks the rules that depend on the state alone. Forbidden actions are checked where they
/// happen.
pub(crate) fn check(scenario: &Scenario, world: &World) -> Result<(), Breach> {
    writers(scenario, world)?;
    nodes(scenario, world)?;
    calls(scenario, world)?;
    claimed(scenario, world)
}

/// Safety rule 1: a single-writer volume is mounted by one writer.
fn writers(scenario: &Scenario, world: &World) -> Result<(), Breach> {
    let writes = scenario.allocs.iter().enumerate().filter(|(alloc, placed)| {
        let node = &world.nodes[placed.node];
        placed.mode == Mode::Write && node.mounted[*alloc] && !node.is_fenced()
    });
    if scenario.access.sharing().writers == Bound::One && writes.count() > 1 {
        return Err(Breach::new("safety 1: two writers have it mounted"));
    }
    Ok(())
}

/// Safety rule 2: an exclusive volume is on one node.
fn nodes(scenario: &Scenario, world: &World) -> Result<(), Breach> {
    let in_use = |at: usize| world.nodes[at].in_use() && !world.nodes[at].is_fenced();
    let attached = |at: usize| world.attached[scenario.attached_at(at)];
    let one_id = scenario.has(Trouble::SharedId);
    let used = (0..NODES).filter(|at| (attached(*at) && !one_id) || in_use(*at));
    if scenario.access.is_exclusive() && used.count() > 1 {
        return Err(Breach::new("safety 2: an exclusive volume is on two nodes"));
    }
    Ok(())
}

/// Safety rule 4, as rule 3 keeps it: a controller call is the only call, and a node call is the
/// only one on its node.
fn calls(scenario: &Scenario, world: &World) -> Result<(), Breach> {
    let on_record = world.record.claims.iter().enumerate().filter_map(|(alloc, claim)| {
        let attempt = claim.as_ref()?.attempt.filter(|attempt| attempt.may_begin())?;
        Some((attempt.kind, scenario.allocs[alloc].node))
    });
    let alone = |attempts: Vec<(CallKind, usize)>| {
        attempts.iter().enumerate().all(|(at, (kind, node))| {
            let others = attempts.iter().enumerate().filter(|(other, _)| *other != at);
            others.into_iter().all(|(_, (other, their_node))| {
                !kind.is_controller() && !other.is_controller() && node != their_node
            })
        })
    };
    if !alone(on_record.collect()) {
        return Err(Breach::new("safety 4: two calls on the record may act at once"));
    }
    let at_work = world.calls.iter().filter(|call| call.at_work && call.kind.is_controller());
    // A call that waits behind another is not at work in the plugin.
    let jumps = scenario.is(Mutation::PluginJumpsLine);
    if !jumps && at_work.filter(|call| call.behind == 0).count() > 1 {
        return Err(Breach::new("safety 4: two controller calls at work at once"));
    }
    Ok(())
}

/// Every attachment and mount has a claim: without one it would never be undone.
fn claimed(scenario: &Scenario, world: &World) -> Result<(), Breach> {
    for node in 0..NODES {
        let claims = || {
            let all = world.record.claims.iter().enumerate();
            all.filter_map(|(alloc, claim)| Some((alloc, (*claim)?)))
                .filter(|(alloc, _)| scenario.allocs[*alloc].node == node)
        };
        let attached = |state: State| state != State::Waiting;
        // Two nodes with one plugin id are one node to the storage.
        let there = |alloc: usize| scenario.attached_at(scenario.allocs[alloc].node) == node;
        let mut all = world.record.claims.iter().enumerate();
        let is_claimed = all.any(|(alloc, claim)| {
            claim.is_some_and(|claim| there(alloc) && claim.controller && attached(claim.state))
        });
        if world.attached[node] && !is_claimed {
            return Err(Breach::new("attached where nobody claims it"));
        }
        if world.nodes[node].is_fenced() {
            continue;
        }
        let granted = |state: State| matches!(state, State::Taken | State::Unpublishing);
        if world.nodes[node].staged && !claims().any(|(_, claim)| granted(claim.state)) {
            return Err(Breach::new("staged where nobody was granted it"));
        }
        for (alloc, mounted) in world.nodes[node].mounted.iter().enumerate() {
            let mine = world.record.claims[alloc].is_some_and(|claim| granted(claim.state));
            if *mounted && !mine {
                return Err(Breach::new("mounted by an alloc that was not granted it"));
            }
        }
    }
    Ok(())
}
