//! What a plugin says of sizes, and plugins that expand on nodes only.

use berth_domain::GrpcCode;
use berth_domain::volume::{CallFailure, FailureFacts};

use super::growth::grown;
use super::*;

fn on_nodes(required_bytes: u64) -> Command {
    Command::Expand {
        required_bytes,
        limit_bytes: None,
        offline: false,
        node_only: true,
        when_free: false,
    }
}

/// A size is an answer like any other: one that cannot be right is told, and not believed.
#[test]
fn size_that_cannot_be_right_is_not_believed() {
    let largest = i64::MAX.unsigned_abs();
    let cases = [
        (0, 10, "does not say to which size"),
        (largest, 10, "which no volume has"),
        (u64::MAX, 10, "which no volume has"),
        (7, 3, "10 were requested"),
        (2, 3, "10 were requested"),
    ];
    for (answer, believed, fault) in cases {
        let mut world = World::created_volume();
        world.expand(3).unwrap();
        world.drive().unwrap();
        world.settle(grown(3, false)).unwrap();
        world.expand(10).unwrap();
        world.drive().unwrap();
        world.settle(grown(answer, false)).unwrap();
        assert_eq!(world.capacity(), Some(believed), "{answer}");
        assert!(world.faults().contains(fault), "{answer}: {}", world.faults());
        // It is not the end of its growth.
        world.expand(20).unwrap();
        assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeExpand));
    }
}

/// The nodes do all of it, and the size is what the record says only when one has done it.
#[test]
fn plugin_that_expands_on_nodes_only_expands_at_a_mount() {
    let mut world = World::created_volume();
    world.apply(&on_nodes(10)).unwrap();
    assert_eq!(world.drive(), Err(Refusal::NotDue { next_try: None }), "no controller is called");
    assert_eq!((world.capacity(), world.operation().call()), (Some(1), CallKind::NodeExpand));
    world.grant("a", "n1");
    let Work::Expand(expansion) = &world.operation().work else { panic!("it expands") };
    assert_eq!(world.spec().bytes_at_nodes(expansion), 10);
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
    world.settle(grown(12, false)).unwrap();
    assert_eq!((world.capacity(), world.spec().operation()), (Some(12), None));
    assert_eq!(world.apply(&on_nodes(10)).unwrap(), Step::nothing(), "the same again");
}

/// A node's answer may be the size of the file system, or nothing.
#[test]
fn size_after_an_expansion_on_nodes_is_at_least_what_was_requested() {
    for (answer, believed) in [(0, 10), (9, 10), (u64::MAX, 10), (11, 11)] {
        let mut world = World::created_volume();
        world.grant("a", "n1");
        world.apply(&on_nodes(10)).unwrap();
        world.drive().unwrap();
        world.settle(grown(answer, false)).unwrap();
        assert_eq!(world.capacity(), Some(believed), "{answer}");
    }
}

/// Rule 22: the smaller one was acknowledged, too. A volume that is not staged rightly is another
/// matter: that may change.
#[test]
fn size_that_no_node_can_make_is_given_up() {
    let refused_as = |grpc| {
        let facts = FailureFacts { grpc: Some(grpc), ..FailureFacts::default() };
        Outcome::Refused(CallFailure { message: text("no"), facts })
    };
    let mut world = World::created_volume();
    world.apply(&on_nodes(10)).unwrap();
    world.apply(&on_nodes(1000)).unwrap();
    world.grant("a", "n1");
    world.drive().unwrap();
    world.settle(refused_as(GrpcCode::FailedPrecondition)).unwrap();
    assert_eq!(world.failure(), None, "it is asked again when it is staged again");
    world.free("a");
    world.grant("b", "n1");
    world.drive().unwrap();
    world.settle(refused_as(GrpcCode::OutOfRange)).unwrap();
    assert_eq!(world.failure(), Some((OperationKind::Expand, text("no"))));
    assert_eq!(world.spec().bytes_after_expansion(), Some(10), "the smaller one goes on");
    world.drive().unwrap();
    world.settle(grown(10, false)).unwrap();
    assert_eq!((world.capacity(), world.spec().operation()), (Some(10), None));
}

/// Also while another change is before it: for copies, quotas and grants.
#[test]
fn size_that_a_volume_will_have_counts_whatever_replaced_its_expansion() {
    let mut world = World::created_volume();
    assert_eq!(world.spec().bytes_after_expansion(), Some(1));
    world.apply(&on_nodes(10)).unwrap();
    let will_have = |world: &World| {
        let expansion = world.spec().pending_expansion().unwrap();
        assert!(expansion.is_at_nodes());
        (world.spec().bytes_after_expansion(), world.spec().bytes_at_nodes(expansion))
    };
    assert_eq!(will_have(&world), (Some(10), 10));
    let parameters = BTreeMap::from([(text("tier"), text("gold"))]);
    world.apply(&Command::Modify { parameters }).unwrap();
    assert_eq!(will_have(&world), (Some(10), 10));
    world.delete().unwrap();
    assert_eq!(will_have(&world), (Some(10), 10));
}
