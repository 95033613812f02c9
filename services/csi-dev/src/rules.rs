//! The order of calls that the driver insists on.
//!
//! Owns: the rules by which the driver refuses a call, as pure functions over a [`VolumeState`].
//! Promises: shares nothing with `berth-judge`, so the judge finds mistakes here. Never: acts, or
//! knows the time.
//!
//! The rules are those of CSI's volume lifecycle and of safety rules 1 to 4.

use std::collections::BTreeSet;

use berth_csi::Code;

use crate::backend::{Attachment, RunningCall, VolumeState};
use crate::capability::AccessMode;

/// A rule of order, by the name that the log and the judge use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderRule {
    /// A volume for one node at a time is attached to one node (safety 2).
    ExclusiveAttach,
    /// A volume for one node at a time is staged and published on one node (safety 1).
    ExclusiveUse,
    /// A volume with one writer at a time is attached or published for writing on one node
    /// (safety 1).
    SecondWriter,
    /// A volume is detached from a node that certainly does not use it (safety 3).
    DetachBeforeUnstage,
    /// A volume is unstaged after it was unpublished.
    UnstageBeforeUnpublish,
    /// A volume is published from a staging path where a stage succeeded.
    PublishBeforeStage,
    /// A volume has one staging path per node (safety 4).
    SecondStagingPath,
    /// A volume is used on nodes that it is attached to.
    NodeCallBeforeAttach,
    /// One controller call per volume is in flight while its caller waits (safety 4).
    OverlappingControllerCalls,
    /// One node call per volume and node is in flight while its caller waits (safety 4).
    OverlappingNodeCalls,
}

/// A broken rule, with the facts for its caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub rule: OrderRule,
    /// What prevents the call, and what to do first.
    pub message: String,
}

impl OrderRule {
    /// As the judge calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExclusiveAttach => "exclusive-attach",
            Self::ExclusiveUse => "exclusive-use",
            Self::SecondWriter => "second-writer",
            Self::DetachBeforeUnstage => "detach-before-unstage",
            Self::UnstageBeforeUnpublish => "unstage-before-unpublish",
            Self::PublishBeforeStage => "publish-before-stage",
            Self::SecondStagingPath => "second-staging-path",
            Self::NodeCallBeforeAttach => "node-call-before-attach",
            Self::OverlappingControllerCalls => "overlapping-controller-calls",
            Self::OverlappingNodeCalls => "overlapping-node-calls",
        }
    }

    /// CSI's code for a violation.
    pub fn code(self) -> Code {
        match self {
            Self::OverlappingControllerCalls | Self::OverlappingNodeCalls => Code::Aborted,
            Self::ExclusiveAttach
            | Self::ExclusiveUse
            | Self::SecondWriter
            | Self::DetachBeforeUnstage
            | Self::UnstageBeforeUnpublish
            | Self::PublishBeforeStage
            | Self::SecondStagingPath
            | Self::NodeCallBeforeAttach => Code::FailedPrecondition,
        }
    }

    fn broken(self, message: String) -> Violation {
        Violation { rule: self, message }
    }
}

/// Checks a new attachment against the existing ones.
pub fn check_attach(
    state: &VolumeState,
    node: &str,
    mode: AccessMode,
    readonly: bool,
) -> Result<(), Violation> {
    let existing = state.attachments.iter().map(|(node, attachment)| NodeAccess {
        node,
        mode: attachment.capability.mode,
        readonly: attachment.readonly,
    });
    check_sharing(existing, &NodeAccess { node, mode, readonly }, |others| {
        OrderRule::ExclusiveAttach.broken(format!(
            "attached to {others}, and not for many nodes, so not to {node}; call \
             ControllerUnpublishVolume for {others} first"
        ))
    })
}

/// Checks a stage or publication against uses on other nodes. A stage writes nothing by itself, so
/// it is `readonly`. Without attachments this is the only check.
pub fn check_use(
    state: &VolumeState,
    node: &str,
    mode: AccessMode,
    readonly: bool,
) -> Result<(), Violation> {
    let may_only_read =
        |node: &str| state.attachments.get(node).is_some_and(|attached| attached.readonly);
    let existing = state.nodes.iter().filter(|(_, on)| !on.cut).flat_map(|(node, on)| {
        let staged = on.staged.iter().map(|staged| (staged.capability.mode, true));
        let published = on.published.values();
        let published =
            published.map(|publication| (publication.capability.mode, publication.readonly));
        staged.chain(published).map(|(mode, readonly)| NodeAccess {
            node,
            mode,
            readonly: readonly || may_only_read(node),
        })
    });
    let wanted = NodeAccess { node, mode, readonly: readonly || may_only_read(node) };
    check_sharing(existing, &wanted, |others| {
        OrderRule::ExclusiveUse.broken(format!(
            "in use on {others}, and not for many nodes, so not on {node}; unpublish and unstage \
             it on {others} first"
        ))
    })
}

/// How one node accesses a volume.
struct NodeAccess<'a> {
    node: &'a str,
    mode: AccessMode,
    readonly: bool,
}

impl NodeAccess<'_> {
    fn is_single_writer(&self) -> bool {
        self.mode == AccessMode::MultiNodeSingleWriter && !self.readonly
    }
}

/// Whether `wanted` is compatible with the access of other nodes.
fn check_sharing<'a>(
    existing: impl Iterator<Item = NodeAccess<'a>>,
    wanted: &NodeAccess<'_>,
    exclusive: impl FnOnce(String) -> Violation,
) -> Result<(), Violation> {
    let names = |accesses: &mut dyn Iterator<Item = &NodeAccess<'a>>| {
        let names: BTreeSet<_> = accesses.map(|access| access.node).collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let others: Vec<_> = existing.filter(|other| other.node != wanted.node).collect();
    let all_shared = others.iter().chain([wanted]).all(|access| access.mode.is_multi_node());
    if !others.is_empty() && !all_shared {
        return Err(exclusive(names(&mut others.iter())));
    }
    let writers = names(&mut others.iter().filter(|other| other.is_single_writer()));
    if wanted.is_single_writer() && !writers.is_empty() {
        return Err(OrderRule::SecondWriter.broken(format!(
            "used for writing on {writers}, and only for one writer, so on {} read-only; or end \
             the use on {writers} first",
            wanted.node
        )));
    }
    Ok(())
}

/// Checks a detach. `running` is the call about the volume that is in flight on the node. Uses of a
/// fenced node are no obstacle.
pub fn check_detach(
    state: &VolumeState,
    node: &str,
    running: Option<&RunningCall>,
) -> Result<(), Violation> {
    if state.is_cut(node) && running.is_none() {
        return Ok(());
    }
    let published = state.targets_on(node).into_iter().map(|path| format!("published at {path}"));
    let staged = state.staged_on(node).map(|staged| format!("staged at {}", staged.path));
    let reasons: Vec<_> = published.chain(staged).chain(running.map(ToString::to_string)).collect();
    if reasons.is_empty() {
        return Ok(());
    }
    Err(OrderRule::DetachBeforeUnstage.broken(format!(
        "still in use on {node}: {}; unpublish and unstage it there first",
        reasons.join("; ")
    )))
}

/// The attachment that a call on a node needs.
pub fn check_attached<'a>(state: &'a VolumeState, node: &str) -> Result<&'a Attachment, Violation> {
    state.attachments.get(node).ok_or_else(|| {
        let message = format!("not attached to {node}; call ControllerPublishVolume first");
        OrderRule::NodeCallBeforeAttach.broken(message)
    })
}

/// Checks a stage at `path`.
pub fn check_stage(state: &VolumeState, node: &str, path: &str) -> Result<(), Violation> {
    match state.staged_on(node) {
        Some(staged) if staged.path != path => Err(OrderRule::SecondStagingPath.broken(format!(
            "already staged on {node} at {}, and has one staging path per node, so not \
                 {path}; use that path, or unstage it first",
            staged.path
        ))),
        _ => Ok(()),
    }
}

/// Checks the end of a stage.
pub fn check_unstage(state: &VolumeState, node: &str) -> Result<(), Violation> {
    let published = state.targets_on(node);
    if published.is_empty() {
        return Ok(());
    }
    Err(OrderRule::UnstageBeforeUnpublish.broken(format!(
        "still published on {node} at {}; call NodeUnpublishVolume first",
        published.join(", ")
    )))
}

/// Checks a publication from the staging path `given`; an empty one was not given.
pub fn check_publish(state: &VolumeState, node: &str, given: &str) -> Result<(), Violation> {
    let staged = state.staged_on(node);
    if staged.is_some_and(|staged| staged.settled && staged.path == given) {
        return Ok(());
    }
    let staged = staged.map(|staged| format!(" (NodeStageVolume was called for {})", staged.path));
    Err(OrderRule::PublishBeforeStage.broken(format!(
        "not staged on {node} at staging_target_path {given:?}{}; call NodeStageVolume until it \
         succeeds, and pass its path",
        staged.unwrap_or_default()
    )))
}

/// The violation of a call while another call was in flight and its caller waited.
pub fn overlap(node: Option<&str>, running: &RunningCall) -> Violation {
    let rule = match node {
        Some(_) => OrderRule::OverlappingNodeCalls,
        None => OrderRule::OverlappingControllerCalls,
    };
    rule.broken(format!("another call is in flight: {running}; wait for its answer"))
}

#[cfg(test)]
mod tests {
    use AccessMode::{
        MultiNodeMultiWriter, MultiNodeReaderOnly, MultiNodeSingleWriter, SingleNodeWriter,
    };
    use berth_csi::Rpc;

    use super::*;
    use crate::backend::{PublishedVolume, StagedVolume};
    use crate::capability::Capability;

    #[track_caller]
    fn assert_broken<T: std::fmt::Debug>(
        done: Result<T, Violation>,
        rule: OrderRule,
        message: &str,
    ) {
        let violation = done.unwrap_err();
        assert_eq!(violation.rule, rule);
        assert!(violation.message.contains(message), "{}", violation.message);
    }

    fn attached_to(nodes: &[(&str, AccessMode, bool)]) -> VolumeState {
        let mut state = VolumeState::default();
        for (node, mode, readonly) in nodes {
            let capability = Capability::mount(*mode);
            let attachment = Attachment { capability, readonly: *readonly, number: 1 };
            state.attachments.insert((*node).to_owned(), attachment);
        }
        state
    }

    fn staged_at(path: &str, settled: bool) -> VolumeState {
        let mut state = VolumeState::default();
        let capability = Capability::mount(SingleNodeWriter);
        state.stage("n1", StagedVolume { path: path.into(), capability, settled });
        state
    }

    fn publish_at(state: &mut VolumeState, target: &str, settled: bool) {
        let capability = Capability::mount(SingleNodeWriter);
        state.publish("n1", target, PublishedVolume { capability, readonly: false, settled });
    }

    fn running() -> RunningCall {
        let (instance, rpc) = ("77@1".into(), Rpc::NodeStageVolume);
        RunningCall { rpc, instance, seq: 3, since_us: 5, caller_gone: false }
    }

    #[test]
    fn exclusive_attach() {
        let attached = attached_to(&[("n1", SingleNodeWriter, false)]);
        assert_eq!(check_attach(&VolumeState::default(), "n1", SingleNodeWriter, false), Ok(()));
        assert_eq!(check_attach(&attached, "n1", SingleNodeWriter, false), Ok(()), "the same node");
        for mode in [SingleNodeWriter, MultiNodeMultiWriter] {
            assert_broken(
                check_attach(&attached, "n2", mode, true),
                OrderRule::ExclusiveAttach,
                "n1",
            );
        }
        let shared = attached_to(&[("n1", MultiNodeMultiWriter, false)]);
        assert_eq!(check_attach(&shared, "n2", MultiNodeMultiWriter, false), Ok(()));
        assert!(check_attach(&shared, "n2", SingleNodeWriter, false).is_err());
    }

    #[test]
    fn second_writer() {
        let attached = attached_to(&[
            ("n1", MultiNodeSingleWriter, false),
            ("n2", MultiNodeSingleWriter, true),
        ]);
        assert_eq!(check_attach(&attached, "n3", MultiNodeSingleWriter, true), Ok(()));
        assert_eq!(check_attach(&attached, "n3", MultiNodeReaderOnly, false), Ok(()));
        let writer = check_attach(&attached, "n3", MultiNodeSingleWriter, false);
        assert_broken(writer, OrderRule::SecondWriter, "writing on n1,");
    }

    #[test]
    fn exclusive_use_where_nothing_is_attached() {
        // Each is a use, settled or not.
        let mut published = VolumeState::default();
        publish_at(&mut published, "/t", false);
        for state in [staged_at("/s", true), staged_at("/s", false), published] {
            assert_eq!(check_use(&state, "n1", SingleNodeWriter, false), Ok(()), "the same node");
            let second = check_use(&state, "n2", SingleNodeWriter, true);
            assert_broken(second, OrderRule::ExclusiveUse, "in use on n1,");
        }
    }

    #[test]
    fn second_writer_where_nothing_is_attached() {
        let mut state = VolumeState::default();
        let capability = Capability::mount(MultiNodeSingleWriter);
        let published = PublishedVolume { capability, readonly: false, settled: true };
        state.publish("n1", "/t", published.clone());
        assert_eq!(check_use(&state, "n2", MultiNodeSingleWriter, true), Ok(()));
        let writer = check_use(&state, "n2", MultiNodeSingleWriter, false);
        assert_broken(writer, OrderRule::SecondWriter, "n1");
        // A read-only attachment makes every publication read-only.
        let mut state = attached_to(&[
            ("n1", MultiNodeSingleWriter, true),
            ("n2", MultiNodeSingleWriter, false),
        ]);
        state.publish("n1", "/t", published);
        assert_eq!(check_use(&state, "n2", MultiNodeSingleWriter, false), Ok(()));
    }

    #[test]
    fn detach_before_unstage() {
        let rule = OrderRule::DetachBeforeUnstage;
        assert_eq!(check_detach(&VolumeState::default(), "n1", None), Ok(()));
        // An unsettled stage counts.
        for settled in [true, false] {
            let state = staged_at("/s", settled);
            assert_eq!(check_detach(&state, "n2", None), Ok(()), "another node");
            assert_broken(check_detach(&state, "n1", None), rule, "staged at /s");
        }
        let mut state = VolumeState::default();
        publish_at(&mut state, "/t", false);
        assert_broken(check_detach(&state, "n1", None), rule, "published at /t");
        let during = check_detach(&VolumeState::default(), "n1", Some(&running()));
        assert_broken(during, rule, "NodeStageVolume (call 3 of instance 77@1)");
    }

    #[test]
    fn unstage_before_unpublish() {
        let mut state = staged_at("/s", true);
        assert_eq!(check_unstage(&state, "n1"), Ok(()));
        publish_at(&mut state, "/t", false);
        assert_broken(check_unstage(&state, "n1"), OrderRule::UnstageBeforeUnpublish, "/t");
        state.unpublish("n1", "/t");
        assert_eq!(check_unstage(&state, "n1"), Ok(()));
    }

    #[test]
    fn publish_before_stage() {
        assert_eq!(check_publish(&staged_at("/s", true), "n1", "/s"), Ok(()));
        for (state, node, given) in [
            (VolumeState::default(), "n1", "/s"),
            (staged_at("/s", false), "n1", "/s"),
            (staged_at("/s", true), "n1", "/other"),
            (staged_at("/s", true), "n1", ""),
            (staged_at("/s", true), "n2", "/s"),
        ] {
            let early = check_publish(&state, node, given);
            assert_broken(early, OrderRule::PublishBeforeStage, "not staged");
        }
    }

    #[test]
    fn second_staging_path() {
        assert_eq!(check_stage(&VolumeState::default(), "n1", "/s"), Ok(()));
        let state = staged_at("/s", false);
        assert_eq!(check_stage(&state, "n1", "/s"), Ok(()));
        assert_eq!(check_stage(&state, "n2", "/other"), Ok(()));
        let second = check_stage(&state, "n1", "/other");
        assert_broken(second, OrderRule::SecondStagingPath, "at /s");
    }

    #[test]
    fn node_call_before_attach() {
        let state = attached_to(&[("n1", SingleNodeWriter, false)]);
        assert!(check_attached(&state, "n1").is_ok());
        let early = check_attached(&state, "n2");
        assert_broken(early, OrderRule::NodeCallBeforeAttach, "n2");
    }
}
