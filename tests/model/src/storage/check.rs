//! The safety rules at the storage. Each record is checked where it is decided.

use berth_domain::volume::State;
use berth_domain::volume::storage::{SnapshotState, Stage};

use super::action::Model;
use super::records::{CallFacts, Facts};
use super::world::{BOTH, Call, Id, Role, World};
use crate::safety::Breach;

/// Only one controller call works on a volume at a time (rule 4).
pub(super) fn check_arrival(world: &World, call: Call) -> Result<(), Breach> {
    let is_of_same_volume = |other: &Call| other.work.kind().is_controller();
    let mut at_work = world.at_work(call);
    if call.work.kind().is_controller() && at_work.any(|(_, other)| is_of_same_volume(other)) {
        return Err(Breach::new("two controller calls are at work for one volume"));
    }
    Ok(())
}

/// A volume is deleted only while nothing uses it.
pub(super) fn check_deletion(model: &Model, world: &World, id: Id) -> Result<(), Breach> {
    let facts = |role: Role| model.decider.records.facts(world.records[role.at()]);
    for role in BOTH {
        let facts = facts(role);
        let is_held = facts.claim.is_some_and(|state| state != State::Waiting);
        if is_held && facts.id == Some(id) {
            return Err(Breach::new("a volume was deleted while a claim holds it"));
        }
        if facts.copies.is_some_and(|of| !of.snapshot && of.id == id) {
            return Err(Breach::new("a volume was deleted while a copy of it was under way"));
        }
        let unfinished = facts.snapshot.as_ref().filter(|snapshot| {
            matches!(snapshot.state, SnapshotState::Creating | SnapshotState::Cut)
        });
        if unfinished.is_some_and(|snapshot| snapshot.source == id) {
            return Err(Breach::new("a volume was deleted while a snapshot of it was under way"));
        }
    }
    Ok(())
}

/// A snapshot is deleted only while nothing uses it.
pub(super) fn check_snapshot_deletion(model: &Model, world: &World, id: Id) -> Result<(), Breach> {
    let mut facts = world.records.iter().map(|record| model.decider.records.facts(*record));
    if facts.any(|facts| facts.copies.is_some_and(|of| of.snapshot && of.id == id)) {
        return Err(Breach::new("a snapshot was deleted while a copy of it was under way"));
    }
    Ok(())
}

/// Checks the rules that depend on the state alone.
pub(super) fn check_state(model: &Model, world: &World) -> Result<(), Breach> {
    let facts = world.records.map(|record| model.decider.records.facts(record));
    let knows = |facts: &Facts, id: Id| {
        let creates = facts.stage == Some(Stage::Creating) && facts.name == Some(id.name);
        creates || facts.id == Some(id)
    };
    if world.volumes.iter().any(|id| !facts.iter().any(|facts| knows(facts, *id))) {
        return Err(Breach::new("a volume is at the storage that no record knows"));
    }
    let knows = |facts: &Facts, id: Id| {
        facts.snapshot.as_ref().is_some_and(|snapshot| {
            let creates = snapshot.state == SnapshotState::Creating && snapshot.name == id.name;
            creates || snapshot.id == Some(id)
        })
    };
    if world.snapshots.iter().any(|snapshot| !facts.iter().any(|facts| knows(facts, snapshot.id))) {
        return Err(Breach::new("a snapshot is at the storage that no record knows"));
    }
    let group = facts.map(|facts| facts.snapshot.as_ref().map(|it| (it.state, it.id)));
    if model.scenario.is_grouped() && group[0] != group[1] {
        return Err(Breach::new("the records of a group differ"));
    }
    facts.into_iter().try_for_each(|facts| check_record(world, facts))
}

/// Checks that the storage has what a record lists, unless it disappeared without Berth.
fn check_record(world: &World, facts: &Facts) -> Result<(), Breach> {
    if world.vanished {
        return Ok(());
    }
    let is_there = facts.id.is_some_and(|id| world.volumes.contains(&id));
    if facts.stage == Some(Stage::Ready) && !is_there {
        return Err(Breach::new("a volume is ready, and is not at the storage"));
    }
    let Some(snapshot) = &facts.snapshot else { return Ok(()) };
    let stored = snapshot.id.and_then(|id| world.snapshot(id));
    let is_cut = matches!(snapshot.state, SnapshotState::Cut | SnapshotState::Ready);
    if is_cut && stored.is_none() {
        return Err(Breach::new("a snapshot was cut, and is not at the storage"));
    }
    let is_ready = stored.is_some_and(|stored| stored.ready);
    if snapshot.state == SnapshotState::Ready && !is_ready {
        return Err(Breach::new("a snapshot is ready, and its plugin does not say so"));
    }
    Ok(())
}

/// Whether nothing is under way that continues by itself.
pub(super) fn is_at_rest(model: &Model, world: &World) -> bool {
    let rests = |facts: &Facts| {
        let snapshot = facts.snapshot.as_ref().map(|snapshot| snapshot.state);
        let is_whole =
            matches!(snapshot, None | Some(SnapshotState::Ready | SnapshotState::Failed));
        let operation = facts.operation.as_ref();
        // A copy whose source is gone may exist or not. It is retried until a person deregisters it
        // by force.
        let is_stuck = |operation: &CallFacts| {
            world.vanished && operation.sticks && facts.stage == Some(Stage::Creating)
        };
        let is_idle = facts.awaits_node || operation.is_none_or(is_stuck);
        is_whole && facts.claim.is_none() && is_idle
    };
    let mut facts = world.records.iter().map(|record| model.decider.records.facts(*record));
    world.calls.is_empty() && facts.all(rests)
}
