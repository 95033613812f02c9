//! Tests each check in a world with the damage that it looks for, and in one without. A mutation
//! cannot show that each check is needed, because another check may find the same damage one step
//! earlier.

use berth_domain::access::{AccessMode, Mode};
use berth_domain::volume::{CallKind, State};

use super::check;
use crate::scenario::{Attaches, Placed, Scenario};
use crate::world::{
    AttemptId, Call, Claim, NodeCall, NodeCallKind, NodeCaller, Presence, TIMEOUT, World,
};
use crate::{Action, Ending, Model};

const W1: Placed = Placed { node: 0, mode: Mode::Write };
const R2: Placed = Placed { node: 1, mode: Mode::Read };
const W2: Placed = Placed { node: 1, mode: Mode::Write };

const SHARED: Scenario = Scenario {
    name: "shared",
    access: AccessMode::MultiNodeSingleWriter,
    attaches: Attaches::Always,
    allocs: &[W1, W2],
    wait: false,
    nodes_fail: false,
    loses_journal: false,
    troubles: &[],
    attempts: None,
    mutation: None,
};
const EXCLUSIVE: Scenario = Scenario { access: AccessMode::SingleNodeWriter, ..SHARED };

/// The first alloc's claim is in this state, with the volume attached to the node.
fn claimed(state: State) -> World {
    let mut world = World::default();
    world.record.claims[0] = Some(Claim {
        state,
        controller: true,
        failed: false,
        exhausted: false,
        denied: false,
        confirmed_unstaged: false,
        proof: false,
        epoch: 1,
        ticket: 0,
        attempt: None,
    });
    world.attached[0] = true;
    world
}

/// The plugin's controller is at this call.
fn calling(mut world: World, kind: CallKind, alloc: usize) -> World {
    world.calls.push(Call {
        kind,
        alloc,
        attempt: AttemptId::Old,
        epoch: 1,
        confirmed_unstaged: false,
        left: TIMEOUT,
        asks: false,
        at_work: true,
        behind: 0,
        order: 0,
        old: false,
    });
    world
}

fn breach(scenario: &Scenario, world: &World) -> String {
    check(scenario, world).map_or_else(|breach| breach.to_string(), |()| String::new())
}

/// The effect of the call's end.
fn after(world: &World, action: Action) -> String {
    let after = Model::new(EXCLUSIVE).next(world, action);
    after.map_or_else(|breach| breach.to_string(), |_| String::new())
}

#[test]
fn safety_1_two_writers_are_seen() {
    let mut world = World::default();
    world.nodes[0].mounted[0] = true;
    world.nodes[1].mounted[1] = true;
    let seen = "safety 1: two writers have it mounted";
    assert_eq!(breach(&SHARED, &world), seen);
    let reads = Scenario { allocs: &[W1, R2], ..SHARED };
    assert_ne!(breach(&reads, &world), seen, "one of them reads");
    world.nodes[0].presence = Presence::Off;
    assert_ne!(breach(&SHARED, &world), seen, "one of them is fenced");
}

#[test]
fn safety_2_an_exclusive_volume_on_two_nodes_is_seen() {
    let mut attached = claimed(State::Taken);
    attached.attached[1] = true;
    let seen = "safety 2: an exclusive volume is on two nodes";
    assert_eq!(breach(&EXCLUSIVE, &attached), seen);
    assert_ne!(breach(&SHARED, &attached), seen);
    let mut staged = claimed(State::Taken);
    staged.nodes[1].staged = true;
    assert_eq!(breach(&EXCLUSIVE, &staged), seen);
    staged.nodes[1].presence = Presence::Back;
    assert_eq!(breach(&EXCLUSIVE, &staged), "", "that node is fenced");
}

#[test]
fn safety_2_a_publish_beside_another_attachment_is_seen() {
    let publishes = calling(claimed(State::NodeDetached), CallKind::ControllerPublish, 1);
    let seen = "safety 2: published for one node while attached to another";
    assert_eq!(after(&publishes, Action::Controller(0, Ending::Done)), seen);
}

#[test]
fn safety_3_an_unpublish_under_a_mount_is_seen() {
    let world = calling(claimed(State::NodeDetached), CallKind::ControllerUnpublish, 0);
    let ends = |world: &World| after(world, Action::Controller(0, Ending::Done));
    assert_eq!(ends(&world), "");
    let mut staged = world.clone();
    staged.nodes[0].staged = true;
    assert_eq!(ends(&staged), "safety 3: unpublished by the controller while staged");
    let mut mounted = world;
    mounted.nodes[0].mounted[0] = true;
    assert_eq!(ends(&mounted), "safety 3: unpublished by the controller while mounted");
}

#[test]
fn a_mount_that_nobody_was_granted_is_seen() {
    let mut world = claimed(State::Taken);
    world.nodes[0].mounted[0] = true;
    assert_eq!(breach(&EXCLUSIVE, &world), "");
    let mut left = claimed(State::NodeDetached);
    left.nodes[0].mounted[0] = true;
    assert_eq!(breach(&EXCLUSIVE, &left), "mounted by an alloc that was not granted it");
}

#[test]
fn a_publish_without_a_stage_is_seen() {
    let mut world = claimed(State::Taken);
    let (kind, alloc, caller) = (NodeCallKind::Publish, 0, NodeCaller::Mount);
    world.nodes[0].busy = Some(NodeCall { kind, alloc, caller });
    let ends = |world: &World| after(world, Action::Node(0, Ending::Done));
    assert_eq!(ends(&world), "publish of a volume that is not staged");
    world.nodes[0].staged = true;
    assert_eq!(ends(&world), "");
}
