//! Expansion and modification (rule 22).

use std::time::Duration;

use super::*;

pub(super) fn grown(bytes: u64, node_expansion_required: bool) -> Outcome {
    Outcome::Stored(StorageAnswer::Capacity { bytes, node_expansion_required })
}

impl World {
    pub(super) fn expand(&mut self, required_bytes: u64) -> Result<Step, Refusal> {
        self.expand_offline(required_bytes, false, false)
    }

    fn expand_offline(
        &mut self,
        required_bytes: u64,
        offline: bool,
        when_free: bool,
    ) -> Result<Step, Refusal> {
        let limit_bytes = None;
        self.apply(&Command::Expand {
            required_bytes,
            limit_bytes,
            offline,
            node_only: false,
            when_free,
        })
    }

    fn modify(&mut self, key: &str, value: &str) -> Result<Step, Refusal> {
        let parameters = BTreeMap::from([(text(key), text(value))]);
        self.apply(&Command::Modify { parameters })
    }

    pub(super) fn capacity(&self) -> Option<u64> {
        self.spec().capacity_bytes
    }

    /// A volume with claims on `n1` and `n2`, which the controller has expanded to 10 bytes. The
    /// nodes have to follow.
    fn expanded_at_controller() -> Self {
        let mut world = Self::with(&[AccessMode::MultiNodeMultiWriter]);
        world.grant("a", "n1");
        world.grant("b", "n2");
        world.expand(10).unwrap();
        world.drive().unwrap();
        world.settle(grown(10, true)).unwrap();
        world
    }

    fn expanding_node(&self) -> Option<String> {
        let Work::Expand(expansion) = &self.operation().work else { return None };
        expansion.node.as_ref().map(ToString::to_string)
    }
}

#[test]
fn expansion_beside_a_claim_is_called_and_stored() {
    let mut world = World::created_volume();
    world.grant("a", "n1");
    world.expand(10).unwrap();
    assert_eq!(world.stage(), Stage::Ready);
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeExpand));
    world.settle(grown(12, false)).unwrap();
    assert_eq!(world.capacity(), Some(12));
    assert_eq!(world.spec().operation(), None);
}

/// Nothing of it is left to do at the storage.
#[test]
fn expansion_that_waits_for_a_mount_holds_up_no_other_change() {
    let waiting = || {
        let mut world = World::created_volume();
        world.expand(10).unwrap();
        world.drive().unwrap();
        world.settle(grown(10, true)).unwrap();
        world
    };
    for outcome in [done(), refused()] {
        let mut world = waiting();
        world.modify("tier", "gold").unwrap();
        assert_eq!(world.modify("tier", "gold").unwrap(), Step::nothing());
        assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeModify));
        world.settle(outcome.clone()).unwrap();
        assert_eq!(world.operation().call(), CallKind::NodeExpand, "{outcome:?}");
        world.grant("a", "n1");
        assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
        // Its call is made: what follows waits.
        assert!(matches!(world.modify("tier", "tin"), Err(Refusal::OperationUnderWay { .. })));
        world.settle(done()).unwrap();
        assert_eq!(world.spec().operation(), None);
    }
    let deregister = Command::Deregister { force: false, reason: text("asked") };
    assert!(deletes_spec(&waiting().apply(&deregister).unwrap()));
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    assert!(matches!(world.apply(&deregister), Err(Refusal::OperationUnderWay { .. })));
}

/// The only node was asked, nothing was heard of it, and its claim is gone.
#[test]
fn expansion_whose_last_call_had_no_answer_waits_for_a_mount_too() {
    let mut world = World::created_volume();
    world.grant("a", "n1");
    world.expand(10).unwrap();
    world.drive().unwrap();
    world.settle(grown(10, true)).unwrap();
    world.drive().unwrap();
    assert!(matches!(world.modify("tier", "gold"), Err(Refusal::OperationUnderWay { .. })));
    world.pass_all_deadlines();
    world.free("a");
    world.modify("tier", "gold").unwrap();
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeModify));
    world.settle(done()).unwrap();
    world.grant("b", "n1");
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
}

#[test]
fn claim_that_came_later_waits_behind_an_expansion_until_it_was_tried() {
    let shared = &[AccessMode::MultiNodeMultiWriter];
    let mut world = World::with(shared);
    world.grant("a", "n1");
    world.expand_offline(10, true, true).unwrap();
    world.pass(Duration::from_secs(1));
    let refused = world.take_claim("b", "n2").unwrap_err();
    let expands = Refusal::OperationUnderWay {
        operation: OperationKind::Expand,
        since: world.operation().since,
        failure: None,
    };
    assert_eq!(refused, expands);
    let in_line = Command::Take(Take { wait: true, ..take("b", "n2") });
    world.apply(&in_line).unwrap();
    assert_eq!(world.claim("b").state, State::Waiting);
    let line = world.volume.in_line(&VolumeId::new("v").unwrap(), &alloc("b")).unwrap();
    assert_eq!(line.behind, [alloc("a")], "the expansion waits for it");
    world.free("a");
    world.apply(&in_line).unwrap();
    assert_eq!(world.claim("b").state, State::Waiting, "the call comes first");
    assert!(matches!(world.take_claim("c", "n3"), Err(Refusal::Busy { .. })));
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeExpand));
    world.settle(not_done()).unwrap();
    // The plugin cannot expand it now. Claims go on between its tries.
    world.apply(&in_line).unwrap();
    assert_ne!(world.claim("b").state, State::Waiting);

    let mut world = World::with(&[AccessMode::SingleNodeSingleWriter]);
    world.grant("a", "n1");
    world.apply(&in_line).unwrap();
    world.pass(Duration::from_secs(1));
    world.expand_offline(10, true, true).unwrap();
    world.free("a");
    world.apply(&in_line).unwrap();
    assert_ne!(world.claim("b").state, State::Waiting, "it came first");
}

#[test]
fn volume_never_shrinks_and_is_not_expanded_to_its_own_size() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    world.drive().unwrap();
    world.settle(grown(10, false)).unwrap();
    assert_eq!(world.expand(9), Err(Refusal::Shrinks { capacity: 10, required: 9 }));
    assert_eq!(world.expand(10).unwrap(), Step::nothing());
}

#[test]
fn refused_expansion_ends_and_says_why() {
    for uncertain in [false, true] {
        let mut world = World::created_volume();
        world.expand(10).unwrap();
        world.drive().unwrap();
        if uncertain {
            world.drive_again().unwrap();
        }
        world.settle(refused()).unwrap();
        assert_eq!((world.capacity(), world.spec().operation()), (Some(1), None));
        assert_eq!(world.failure(), Some((OperationKind::Expand, text("never"))));
        world.expand(5).unwrap();
        world.drive().unwrap();
        world.settle(grown(5, false)).unwrap();
        assert_eq!(world.failure(), None, "another expansion succeeded");
    }
}

#[test]
fn same_expansion_again_changes_nothing_and_a_smaller_one_is_refused() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    assert_eq!(world.expand(10).unwrap(), Step::nothing());
    assert!(matches!(world.expand(5), Err(Refusal::OperationUnderWay { .. })));
    let bounded = |limit_bytes| Command::Expand {
        required_bytes: 10,
        limit_bytes,
        offline: false,
        node_only: false,
        when_free: false,
    };
    let other = world.apply(&bounded(Some(20)));
    assert!(matches!(other, Err(Refusal::OperationUnderWay { .. })), "{other:?}");

    let mut world = World::created_volume();
    let size = world.capacity().unwrap();
    assert_eq!(world.expand(size).unwrap(), Step::nothing(), "it has the size");
    world.apply(&bounded(Some(20))).unwrap();
    let Work::Expand(expansion) = &world.operation().work else { panic!("it grows") };
    assert_eq!(expansion.limit_bytes, Some(20));
}

#[test]
fn larger_expansion_replaces_a_smaller_one_and_does_not_take_its_answer() {
    for answer in [grown(10, false), refused(), failed(), done()] {
        let mut world = World::created_volume();
        world.expand(10).unwrap();
        world.drive().unwrap();
        world.expand(20).unwrap();
        assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: Some(_) })));
        world.settle(answer.clone()).unwrap();
        assert_eq!((world.failure(), world.faults()), (None, String::new()), "{answer:?}");
        assert!(world.operation().progress.calls.is_unsettled(), "{answer:?}");
        assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeExpand));
        world.settle(grown(20, false)).unwrap();
        assert_eq!((world.capacity(), world.spec().operation()), (Some(20), None));
    }
}

#[test]
fn offline_expansion_of_a_held_volume_is_refused_with_its_holders() {
    let mut world = World::created_volume();
    world.grant("a", "n1");
    match world.expand_offline(10, true, false).unwrap_err() {
        Refusal::InUse { holders } => assert_eq!(holders.named.len(), 1),
        refusal => panic!("{refusal}"),
    }
}

#[test]
fn offline_expansion_waits_until_the_volume_is_free_if_asked_to() {
    let mut world = World::created_volume();
    world.grant("a", "n1");
    world.expand_offline(10, true, true).unwrap();
    assert_eq!(world.drive(), Err(Refusal::NotDue { next_try: None }));
    world.free("a");
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeExpand));
}

/// Also where no controller attaches the volume, so that nothing else orders the two calls.
#[test]
fn claim_waits_for_an_expansion_that_must_be_offline() {
    let route = || Ok(Route { controller: false, ..Route::default() });
    let claim =
        |world: &mut World| world.apply(&Command::Take(Take { route: route(), ..take("a", "n1") }));
    for offline in [true, false] {
        let mut world = World::created_volume();
        world.expand_offline(10, offline, false).unwrap();
        world.drive().unwrap();
        let is_busy = matches!(claim(&mut world), Err(Refusal::Busy { .. }));
        assert_eq!(is_busy, offline);
        world.settle(grown(10, false)).unwrap();
        claim(&mut world).unwrap();
        assert_eq!(world.claim("a").state, State::Taken);
    }
}

/// It was acknowledged, and the volume stays.
#[test]
fn change_goes_on_when_the_deletion_that_replaced_it_is_refused() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    world.drive().unwrap();
    world.settle(grown(10, true)).unwrap();
    world.delete().unwrap();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    assert_eq!(world.failure(), Some((OperationKind::Delete, text("never"))));
    assert_eq!(world.stage(), Stage::Ready);
    world.grant("a", "n1");
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
    let mut world = World::created_volume();
    world.modify("tier", "gold").unwrap();
    world.delete().unwrap();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeModify));
}

/// The nodes have not followed the smaller size yet.
#[test]
fn refused_larger_expansion_leaves_the_nodes_to_follow_the_smaller_one() {
    let mut world = World::expanded_at_controller();
    world.drive().unwrap();
    world.settle(done()).unwrap();
    world.expand(20).unwrap();
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeExpand));
    world.settle(refused()).unwrap();
    assert_eq!(world.capacity(), Some(10));
    assert_eq!(world.failure(), Some((OperationKind::Expand, text("never"))));
    // The first node has followed already.
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
    assert_eq!(world.expanding_node().as_deref(), Some("n2"));
    world.settle(done()).unwrap();
    assert_eq!(world.spec().operation(), None);
}

/// The smaller one was acknowledged, and its answer was not taken.
#[test]
fn refused_larger_expansion_leaves_the_smaller_one_to_do() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    world.drive().unwrap();
    world.expand(20).unwrap();
    world.settle(grown(10, true)).unwrap();
    world.drive().unwrap();
    world.expand(30).unwrap();
    world.settle(refused()).unwrap();
    for refused_bytes in [30, 20] {
        assert_eq!(required(&world), refused_bytes);
        world.drive().unwrap();
        world.settle(refused()).unwrap();
        let progress = &world.operation().progress;
        assert!(
            progress.calls.is_unsettled(),
            "the executor of an earlier call is still to be asked"
        );
    }
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeExpand));
    world.settle(grown(10, true)).unwrap();
    assert_eq!((world.capacity(), required(&world)), (Some(10), 10));
    assert_eq!(world.operation().call(), CallKind::NodeExpand);
}

fn required(world: &World) -> u64 {
    match &world.operation().work {
        Work::Expand(expansion) => expansion.required_bytes,
        _ => 0,
    }
}

#[test]
fn expansions_that_replace_each_other_are_bounded() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    world.drive().unwrap();
    let accepted = (11..100).take_while(|bytes| world.expand(*bytes).is_ok()).count();
    assert_eq!(accepted, 8);
    assert!(matches!(world.expand(100), Err(Refusal::OperationUnderWay { .. })));
}

/// The answer to the larger one does not say what nodes have left to do for the smaller one.
#[test]
fn nodes_that_were_behind_follow_the_larger_expansion() {
    let mut world = World::expanded_at_controller();
    world.expand(20).unwrap();
    world.drive().unwrap();
    world.settle(grown(20, false)).unwrap();
    for node in ["n1", "n2"] {
        assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
        assert_eq!(world.expanding_node().as_deref(), Some(node));
        world.settle(done()).unwrap();
    }
    assert_eq!(world.spec().operation(), None);
}

#[test]
fn same_expansion_again_changes_nothing_though_the_plugin_rounded_up() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    world.drive().unwrap();
    world.settle(grown(12, false)).unwrap();
    assert_eq!(world.expand(10).unwrap(), Step::nothing());
    assert!(matches!(world.expand(11), Err(Refusal::Shrinks { .. })));
    world.expand(20).unwrap();
    world.drive().unwrap();
    world.settle(grown(20, false)).unwrap();
    assert!(matches!(world.expand(10), Err(Refusal::Shrinks { .. })));
}

#[test]
fn claim_waits_for_the_controllers_call() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    world.drive().unwrap();
    assert!(matches!(world.take_claim("a", "n1"), Err(Refusal::Busy { .. })));
    world.settle(grown(10, false)).unwrap();
    world.grant("a", "n1");
}

#[test]
fn each_node_with_a_claim_expands_the_volume_once() {
    let mut world = World::expanded_at_controller();
    assert_eq!(world.capacity(), Some(10));
    for node in ["n1", "n2"] {
        assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
        assert_eq!(world.expanding_node().as_deref(), Some(node));
        // A node may answer with the size that it sees.
        world.settle(if node == "n1" { grown(11, true) } else { done() }).unwrap();
    }
    assert_eq!(world.spec().operation(), None);
    assert_eq!((world.capacity(), world.faults().as_str()), (Some(10), ""));
}

#[test]
fn volume_that_no_node_has_is_expanded_at_its_next_use() {
    let mut world = World::created_volume();
    world.expand(10).unwrap();
    world.drive().unwrap();
    world.settle(grown(10, true)).unwrap();
    assert_eq!(world.drive(), Err(Refusal::NotDue { next_try: None }));
    world.grant("a", "n1");
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
    world.settle(done()).unwrap();
    assert_eq!(world.spec().operation(), None);
}

/// CSI forbids a retry before the volume is staged again.
#[test]
fn node_that_refused_is_called_again_after_it_was_staged_again() {
    let mut world = World::expanded_at_controller();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    assert_eq!(
        world.operation().progress.calls.failure.as_ref().map(|it| it.message.as_str()),
        Some("never")
    );
    world.drive().unwrap();
    assert_eq!(world.expanding_node().as_deref(), Some("n2"));
    world.settle(done()).unwrap();
    world.free("b");
    world.grant("b", "n2");
    let waits = Err(Refusal::NotDue { next_try: None });
    assert_eq!(world.drive(), waits, "a newer claim elsewhere is no new staging");
    world.free("a");
    world.grant("a", "n1");
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::NodeExpand));
    assert_eq!(world.expanding_node().as_deref(), Some("n1"));
}

/// One node that does not answer holds up no other one.
#[test]
fn nodes_take_turns_until_each_has_expanded_the_volume() {
    let mut world = World::expanded_at_controller();
    let mut asked = Vec::new();
    for outcome in [failed(), not_done(), unasked(), exhausted(), unanswered(), done(), done()] {
        world.drive_again().unwrap();
        asked.push(world.expanding_node().unwrap());
        world.settle(outcome).unwrap();
    }
    assert_eq!(asked, ["n1", "n2", "n1", "n2", "n1", "n2", "n1"]);
    assert_eq!(world.spec().operation(), None);
}

/// A fleet may have any number of nodes, one after the other.
#[test]
fn nodes_that_have_left_are_not_kept_on_the_record() {
    let mut world = World::expanded_at_controller();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    for node in ["n3", "n4", "n5"] {
        world.drive().unwrap();
        world.settle(done()).unwrap();
        world.free("b");
        world.grant("b", node);
    }
    let Work::Expand(expansion) = &world.operation().work else { panic!("it grows") };
    assert_eq!((expansion.expanded.len(), expansion.refused.len()), (1, 1), "{expansion:?}");
    world.free("a");
    world.free("b");
    world.drive().unwrap();
    assert_eq!(world.spec().operation(), None, "a node has expanded it");
}

/// Rule 3: while its call may act, a node is neither forgotten nor told to detach.
#[test]
fn node_that_is_left_while_it_expands_stays_on_the_record_until_its_call_is_over() {
    let mut world = World::expanded_at_controller();
    world.drive().unwrap();
    world.apply(&release("a")).unwrap();
    let begun = world.apply(&begin("a", false));
    assert!(matches!(begun, Err(Refusal::NotDue { next_try: Some(_), .. })), "{begun:?}");
    assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: Some(_) })));
    assert_eq!(world.expanding_node().as_deref(), Some("n1"));
    world.pass_all_deadlines();
    world.apply(&begin("a", false)).unwrap();
    world.drive().unwrap();
    assert_eq!(world.expanding_node().as_deref(), Some("n2"));
}

#[test]
fn last_node_that_is_left_while_it_expands_does_not_end_the_expansion() {
    let mut world = World::expanded_at_controller();
    world.drive().unwrap();
    world.settle(done()).unwrap();
    world.drive().unwrap();
    assert_eq!(world.expanding_node().as_deref(), Some("n2"));
    world.apply(&release("b")).unwrap();
    assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: Some(_) })));
    assert!(world.apply(&begin("b", false)).is_err(), "its call may still act");
    world.pass_all_deadlines();
    world.drive().unwrap();
    assert_eq!(world.spec().operation(), None, "each node that has it has expanded it");
}

#[test]
fn node_whose_expansion_was_replaced_is_not_told_to_detach_meanwhile() {
    let mut world = World::expanded_at_controller();
    world.drive().unwrap();
    world.expand(20).unwrap();
    world.apply(&release("a")).unwrap();
    assert!(world.apply(&begin("a", false)).is_err());
    world.settle(done()).unwrap();
    assert!(world.apply(&begin("a", false)).is_ok());
}

#[test]
fn modified_parameters_are_stored_when_the_plugin_has_them() {
    let mut world = World::created_volume();
    world.modify("iops", "9").unwrap();
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeModify));
    world.settle(done()).unwrap();
    let mutable = world.spec().storage.as_ref().unwrap().mutable.clone();
    assert_eq!(mutable, BTreeMap::from([(text("iops"), text("9"))]));
    assert_eq!(world.modify("iops", "9").unwrap(), Step::nothing());
    world.modify("iops", "8").unwrap();
}

#[test]
fn refused_modification_changes_nothing_and_says_why() {
    let mut world = World::created_volume();
    world.modify("iops", "9").unwrap();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    assert!(world.spec().storage.as_ref().unwrap().mutable.is_empty());
    assert_eq!(world.failure(), Some((OperationKind::Modify, text("never"))));
}

#[test]
fn one_change_of_a_volume_is_under_way() {
    let mut world = World::created_volume();
    world.modify("iops", "9").unwrap();
    assert_eq!(world.modify("iops", "9").unwrap(), Step::nothing());
    for refusal in [world.modify("iops", "8"), world.expand(10)] {
        assert!(matches!(refusal, Err(Refusal::OperationUnderWay { .. })), "{refusal:?}");
    }
}

#[test]
fn volume_that_is_not_ready_is_not_changed() {
    let mut creating = World::creating();
    let mut deleting = World::created_volume();
    deleting.delete().unwrap();
    for world in [&mut creating, &mut deleting] {
        assert!(matches!(world.expand(10), Err(Refusal::NotReady { .. })));
        assert!(matches!(world.modify("iops", "9"), Err(Refusal::NotReady { .. })));
    }
}
