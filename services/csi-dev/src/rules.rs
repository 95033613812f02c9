//! What a CO must never do.
//!
//! Owns: the rules of order by which the driver refuses a call, as pure functions over a volume's
//! [`State`]. Promises: shares nothing with `berth-judge`, which finds a mistake made here.
//! Never: acts, or knows of time.
//!
//! The rules are those of CSI's volume lifecycle and of safety rules 1 to 4.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::backend::{Attachment, Running, State};
use crate::capability::AccessMode;
use berth_csi::{Code, Rpc, Service};

/// What two calls about one volume must not overlap on.
///
/// CSI makes the CO responsible for at most one call in flight per volume. Calls on different nodes
/// of a shared volume go to different instances and are independent of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// One call per volume, whichever instance serves it.
    Volume,
    /// One call per volume and node.
    VolumeOnNode,
}

impl Scope {
    /// The scope of `rpc`; `None` where calls may overlap freely.
    pub fn of(rpc: Rpc) -> Option<Self> {
        match rpc.service() {
            Service::Controller => Some(Self::Volume),
            Service::Node => Some(Self::VolumeOnNode),
            Service::Identity | Service::GroupController | Service::SnapshotMetadata => None,
        }
    }
}

/// A rule that a CO broke, with the facts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Violation {
    /// A volume for one node at a time was to be attached to a second one (safety 2).
    ExclusiveAttach {
        /// The second node.
        node: String,
        /// Where the volume is attached.
        held_by: Vec<String>,
    },
    /// A volume for one node at a time was to be staged or published on a second one (safety 1).
    ExclusiveUse {
        /// The second node.
        node: String,
        /// Where the volume is or may be staged or published.
        held_by: Vec<String>,
    },
    /// A volume with one writer at a time was to be attached or published for writing on a second
    /// node (safety 1).
    SecondWriter {
        /// The second node.
        node: String,
        /// Where the volume is attached or published for writing.
        held_by: Vec<String>,
    },
    /// A volume was to be detached from a node that may still use it (safety 3).
    DetachBeforeUnstage {
        /// That node.
        node: String,
        /// Where it is or may be staged there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        staged: Option<String>,
        /// Where it is or may be published there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        published: Vec<String>,
        /// The node's call for the volume that is in flight.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        running: Option<Running>,
    },
    /// A volume was to be unstaged while published.
    UnstageBeforeUnpublish {
        /// On which node.
        node: String,
        /// Where it is or may be published.
        published: Vec<String>,
    },
    /// A volume was to be published without a stage that succeeded at that staging path.
    PublishBeforeStage {
        /// On which node.
        node: String,
        /// The staging path given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<String>,
        /// Where the volume is or may be staged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        staged: Option<String>,
    },
    /// A volume was to be staged at a second path of one node (safety 4).
    SecondStagingPath {
        /// On which node.
        node: String,
        /// The second path.
        asked: String,
        /// Where it is or may be staged.
        staged: String,
    },
    /// A volume was to be used on a node that it is not attached to.
    NodeCallBeforeAttach {
        /// That node.
        node: String,
    },
    /// A controller call came while another one for the volume was in flight, and its caller
    /// waited (safety 4).
    OverlappingControllerCalls {
        /// The other call.
        running: Running,
    },
    /// A node call came while another one for the volume on that node was in flight, and its
    /// caller waited (safety 4).
    OverlappingNodeCalls {
        /// On which node.
        node: String,
        /// The other call.
        running: Running,
    },
}

/// A new attachment beside those that are there.
pub fn attach(
    state: &State,
    node: &str,
    mode: AccessMode,
    readonly: bool,
) -> Result<(), Violation> {
    let held = state.attachments.iter().map(|(node, attachment)| Held {
        node,
        mode: attachment.capability.mode,
        readonly: attachment.readonly,
    });
    let exclusive =
        |node: &str, held_by| Violation::ExclusiveAttach { node: node.to_owned(), held_by };
    share(held, &Held { node, mode, readonly }, exclusive)
}

/// A use on a node beside those on other nodes: a stage, which writes nothing by itself (so
/// `readonly`), or a publication. Where volumes are attached, [`attach`] comes first; where they
/// are not, this is the only guard.
pub fn use_on(
    state: &State,
    node: &str,
    mode: AccessMode,
    readonly: bool,
) -> Result<(), Violation> {
    let may_only_read =
        |node: &str| state.attachments.get(node).is_some_and(|attached| attached.readonly);
    let held = state.nodes.iter().filter(|(_, on)| !on.cut).flat_map(|(node, on)| {
        let staged = on.staged.iter().map(|staged| (staged.capability.mode, true));
        let published = on.published.values();
        let published = published.map(|one| (one.capability.mode, one.readonly));
        staged.chain(published).map(|(mode, readonly)| Held {
            node,
            mode,
            readonly: readonly || may_only_read(node),
        })
    });
    let exclusive =
        |node: &str, held_by| Violation::ExclusiveUse { node: node.to_owned(), held_by };
    share(held, &Held { node, mode, readonly: readonly || may_only_read(node) }, exclusive)
}

/// One node's hold on a volume.
struct Held<'a> {
    node: &'a str,
    mode: AccessMode,
    readonly: bool,
}

/// Whether `wanted` may be beside what other nodes hold.
fn share<'a>(
    held: impl Iterator<Item = Held<'a>>,
    wanted: &Held<'_>,
    exclusive: impl FnOnce(&str, Vec<String>) -> Violation,
) -> Result<(), Violation> {
    let names = |held: Vec<&Held<'a>>| {
        held.into_iter().map(|held| held.node.to_owned()).collect::<BTreeSet<_>>()
    };
    let others: Vec<_> = held.filter(|held| held.node != wanted.node).collect();
    let all_shared = others.iter().chain([wanted]).all(|held| held.mode.is_multi_node());
    if !others.is_empty() && !all_shared {
        let held_by = names(others.iter().collect());
        return Err(exclusive(wanted.node, held_by.into_iter().collect()));
    }
    let is_writer =
        |held: &Held<'_>| held.mode == AccessMode::MultiNodeSingleWriter && !held.readonly;
    let writers = names(others.iter().filter(|held| is_writer(held)).collect());
    if is_writer(wanted) && !writers.is_empty() {
        let (node, held_by) = (wanted.node.to_owned(), writers.into_iter().collect());
        return Err(Violation::SecondWriter { node, held_by });
    }
    Ok(())
}

/// The end of an attachment. `running` is the node's call for the volume that is in flight. What a
/// fenced node has is no reason against it.
pub fn detach(state: &State, node: &str, running: Option<Running>) -> Result<(), Violation> {
    if state.is_cut(node) && running.is_none() {
        return Ok(());
    }
    let staged = state.staged_on(node).map(|staged| staged.path.clone());
    let published = state.targets_on(node);
    if staged.is_none() && published.is_empty() && running.is_none() {
        return Ok(());
    }
    Err(Violation::DetachBeforeUnstage { node: node.to_owned(), staged, published, running })
}

/// A call on a node that needs the volume attached there.
pub fn attached<'a>(state: &'a State, node: &str) -> Result<&'a Attachment, Violation> {
    let attachment = state.attachments.get(node);
    attachment.ok_or_else(|| Violation::NodeCallBeforeAttach { node: node.to_owned() })
}

/// A stage at `path`.
pub fn stage(state: &State, node: &str, path: &str) -> Result<(), Violation> {
    match state.staged_on(node) {
        Some(staged) if staged.path != path => Err(Violation::SecondStagingPath {
            node: node.to_owned(),
            asked: path.to_owned(),
            staged: staged.path.clone(),
        }),
        _ => Ok(()),
    }
}

/// The end of a stage.
pub fn unstage(state: &State, node: &str) -> Result<(), Violation> {
    let published = state.targets_on(node);
    if published.is_empty() {
        return Ok(());
    }
    Err(Violation::UnstageBeforeUnpublish { node: node.to_owned(), published })
}

/// A publication from the staging path `asked`.
pub fn publish_from(state: &State, node: &str, asked: Option<&str>) -> Result<(), Violation> {
    match (state.staged_on(node), asked) {
        (Some(staged), Some(asked)) if staged.settled && staged.path == asked => Ok(()),
        (staged, asked) => Err(Violation::PublishBeforeStage {
            node: node.to_owned(),
            asked: asked.map(str::to_owned),
            staged: staged.map(|staged| staged.path.clone()),
        }),
    }
}

impl Violation {
    /// The code that CSI answers it with.
    pub fn code(&self) -> Code {
        match self {
            Self::OverlappingControllerCalls { .. } | Self::OverlappingNodeCalls { .. } => {
                Code::Aborted
            }
            Self::ExclusiveAttach { .. }
            | Self::ExclusiveUse { .. }
            | Self::SecondWriter { .. }
            | Self::DetachBeforeUnstage { .. }
            | Self::UnstageBeforeUnpublish { .. }
            | Self::PublishBeforeStage { .. }
            | Self::SecondStagingPath { .. }
            | Self::NodeCallBeforeAttach { .. } => Code::FailedPrecondition,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExclusiveAttach { node, held_by } => {
                let held_by = held_by.join(", ");
                write!(
                    f,
                    "attached to {held_by}, and not for many nodes, so not to {node}; call \
                     ControllerUnpublishVolume for {held_by} first"
                )
            }
            Self::ExclusiveUse { node, held_by } => {
                let held_by = held_by.join(", ");
                write!(
                    f,
                    "in use on {held_by}, and not for many nodes, so not on {node}; unpublish and \
                     unstage it on {held_by} first"
                )
            }
            Self::SecondWriter { node, held_by } => {
                let held_by = held_by.join(", ");
                write!(
                    f,
                    "used for writing on {held_by}, and only for one writer, so on {node} \
                     read-only; or end the use on {held_by} first"
                )
            }
            Self::DetachBeforeUnstage { node, staged, published, running } => {
                write!(f, "still in use on {node}:")?;
                for target in published {
                    write!(f, " published at {target};")?;
                }
                if let Some(staging) = staged {
                    write!(f, " staged at {staging};")?;
                }
                if let Some(running) = running {
                    write!(f, " {running};")?;
                }
                write!(f, " unpublish and unstage it there first")
            }
            Self::UnstageBeforeUnpublish { node, published } => {
                let published = published.join(", ");
                write!(
                    f,
                    "still published on {node} at {published}; call NodeUnpublishVolume first"
                )
            }
            Self::PublishBeforeStage { node, asked, staged } => {
                match asked {
                    Some(asked) => write!(f, "not staged on {node} at {asked}")?,
                    None => write!(f, "published on {node} without staging_target_path")?,
                }
                if let Some(staged) = staged {
                    write!(f, " (NodeStageVolume was called for {staged})")?;
                }
                write!(f, "; call NodeStageVolume until it succeeds, and pass its path")
            }
            Self::SecondStagingPath { node, asked, staged } => write!(
                f,
                "already staged on {node} at {staged}, and has one staging path per node, so not \
                 {asked}; use that path, or unstage it first"
            ),
            Self::NodeCallBeforeAttach { node } => {
                write!(f, "not attached to {node}; call ControllerPublishVolume first")
            }
            Self::OverlappingControllerCalls { running } => {
                write!(f, "another controller call is in flight: {running}; wait for its answer")
            }
            Self::OverlappingNodeCalls { node, running } => {
                write!(f, "another call on {node} is in flight: {running}; wait for its answer")
            }
        }
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rpc, instance, seq, .. } = self;
        write!(f, "{rpc} (call {seq} of instance {instance})")
    }
}

#[cfg(test)]
mod tests {
    use AccessMode::{
        MultiNodeMultiWriter, MultiNodeReaderOnly, MultiNodeSingleWriter, SingleNodeWriter,
    };

    use super::*;
    use crate::backend::{Published, Staged};
    use crate::capability::Capability;

    fn attached_to(nodes: &[(&str, AccessMode, bool)]) -> State {
        let mut state = State::default();
        for (node, mode, readonly) in nodes {
            let capability = Capability::mount(*mode);
            let attachment = Attachment { capability, readonly: *readonly, number: 1 };
            state.attachments.insert((*node).to_owned(), attachment);
        }
        state
    }

    fn staged_at(path: &str, settled: bool) -> State {
        let mut state = State::default();
        let capability = Capability::mount(SingleNodeWriter);
        state.stage("n1", Staged { path: path.into(), capability, settled });
        state
    }

    fn publish_at(state: &mut State, target: &str, settled: bool) {
        let capability = Capability::mount(SingleNodeWriter);
        state.publish("n1", target, Published { capability, readonly: false, settled });
    }

    fn running() -> Running {
        let (instance, rpc) = ("77@1".into(), Rpc::NodeStageVolume);
        Running { rpc, instance, seq: 3, since_us: 5, caller_gone: false }
    }

    #[test]
    fn exclusive_attach() {
        let held = attached_to(&[("n1", SingleNodeWriter, false)]);
        assert_eq!(attach(&State::default(), "n1", SingleNodeWriter, false), Ok(()));
        assert_eq!(attach(&held, "n1", SingleNodeWriter, false), Ok(()), "the same node");
        for mode in [SingleNodeWriter, MultiNodeMultiWriter] {
            let violation = attach(&held, "n2", mode, true).unwrap_err();
            let held_by = vec!["n1".to_owned()];
            assert_eq!(violation, Violation::ExclusiveAttach { node: "n2".into(), held_by });
            assert_eq!(violation.code(), Code::FailedPrecondition);
            assert!(violation.to_string().contains("n1"), "{violation}");
        }
        let shared = attached_to(&[("n1", MultiNodeMultiWriter, false)]);
        assert_eq!(attach(&shared, "n2", MultiNodeMultiWriter, false), Ok(()));
        assert!(attach(&shared, "n2", SingleNodeWriter, false).is_err());
    }

    #[test]
    fn second_writer() {
        let held = attached_to(&[
            ("n1", MultiNodeSingleWriter, false),
            ("n2", MultiNodeSingleWriter, true),
        ]);
        assert_eq!(attach(&held, "n3", MultiNodeSingleWriter, true), Ok(()));
        assert_eq!(attach(&held, "n3", MultiNodeReaderOnly, false), Ok(()));
        let held_by = vec!["n1".to_owned()];
        assert_eq!(
            attach(&held, "n3", MultiNodeSingleWriter, false),
            Err(Violation::SecondWriter { node: "n3".into(), held_by })
        );
    }

    #[test]
    fn exclusive_use_where_nothing_is_attached() {
        // Staged, published, or perhaps so: each is a use.
        let mut published = State::default();
        publish_at(&mut published, "/t", false);
        for state in [staged_at("/s", true), staged_at("/s", false), published] {
            assert_eq!(use_on(&state, "n1", SingleNodeWriter, false), Ok(()), "the same node");
            let held_by = vec!["n1".to_owned()];
            assert_eq!(
                use_on(&state, "n2", SingleNodeWriter, true),
                Err(Violation::ExclusiveUse { node: "n2".into(), held_by })
            );
        }
    }

    #[test]
    fn second_writer_where_nothing_is_attached() {
        let mut state = State::default();
        let capability = Capability::mount(MultiNodeSingleWriter);
        let published = Published { capability, readonly: false, settled: true };
        state.publish("n1", "/t", published.clone());
        assert_eq!(use_on(&state, "n2", MultiNodeSingleWriter, true), Ok(()));
        let violation = use_on(&state, "n2", MultiNodeSingleWriter, false).unwrap_err();
        assert!(matches!(violation, Violation::SecondWriter { .. }), "{violation}");
        // What is attached for reading cannot be published for writing, whatever was asked.
        let mut state = attached_to(&[
            ("n1", MultiNodeSingleWriter, true),
            ("n2", MultiNodeSingleWriter, false),
        ]);
        state.publish("n1", "/t", published);
        assert_eq!(use_on(&state, "n2", MultiNodeSingleWriter, false), Ok(()));
    }

    #[test]
    fn detach_before_unstage() {
        assert_eq!(detach(&State::default(), "n1", None), Ok(()));
        // A stage that may be there counts as one that is.
        for settled in [true, false] {
            let state = staged_at("/s", settled);
            assert_eq!(detach(&state, "n2", None), Ok(()), "another node");
            let violation = detach(&state, "n1", None).unwrap_err();
            assert!(violation.to_string().contains("staged at /s"), "{violation}");
        }
        let mut state = State::default();
        publish_at(&mut state, "/t", false);
        assert!(detach(&state, "n1", None).unwrap_err().to_string().contains("published at /t"));
        let violation = detach(&State::default(), "n1", Some(running())).unwrap_err();
        assert!(violation.to_string().contains("NodeStageVolume"), "{violation}");
    }

    #[test]
    fn unstage_before_unpublish() {
        let mut state = staged_at("/s", true);
        assert_eq!(unstage(&state, "n1"), Ok(()));
        publish_at(&mut state, "/t", false);
        let published = vec!["/t".to_owned()];
        let node = "n1".to_owned();
        assert_eq!(
            unstage(&state, "n1"),
            Err(Violation::UnstageBeforeUnpublish { node, published })
        );
        state.unpublish("n1", "/t");
        assert_eq!(unstage(&state, "n1"), Ok(()));
    }

    #[test]
    fn publish_before_stage() {
        assert_eq!(publish_from(&staged_at("/s", true), "n1", Some("/s")), Ok(()));
        for (state, node, asked) in [
            (State::default(), "n1", Some("/s")),
            (staged_at("/s", false), "n1", Some("/s")),
            (staged_at("/s", true), "n1", Some("/other")),
            (staged_at("/s", true), "n1", None),
            (staged_at("/s", true), "n2", Some("/s")),
        ] {
            let violation = publish_from(&state, node, asked).unwrap_err();
            assert!(matches!(violation, Violation::PublishBeforeStage { .. }), "{violation}");
        }
    }

    #[test]
    fn second_staging_path() {
        assert_eq!(stage(&State::default(), "n1", "/s"), Ok(()));
        let state = staged_at("/s", false);
        assert_eq!(stage(&state, "n1", "/s"), Ok(()));
        assert_eq!(stage(&state, "n2", "/other"), Ok(()));
        let violation = stage(&state, "n1", "/other").unwrap_err();
        assert!(violation.to_string().contains("at /s"), "{violation}");
    }

    #[test]
    fn node_call_before_attach() {
        let state = attached_to(&[("n1", SingleNodeWriter, false)]);
        assert!(attached(&state, "n1").is_ok());
        let node = "n2".to_owned();
        assert_eq!(attached(&state, "n2"), Err(Violation::NodeCallBeforeAttach { node }));
    }

    #[test]
    fn overlaps_are_aborted_and_name_the_other_call() {
        for violation in [
            Violation::OverlappingControllerCalls { running: running() },
            Violation::OverlappingNodeCalls { node: "n1".into(), running: running() },
        ] {
            assert_eq!(violation.code(), Code::Aborted);
            assert!(violation.to_string().contains("call 3 of instance 77@1"), "{violation}");
        }
    }

    #[test]
    fn a_violation_is_written_by_its_rules_name() {
        let violation = Violation::NodeCallBeforeAttach { node: "n1".into() };
        let written = serde_json::to_string(&violation).unwrap();
        assert_eq!(written, r#"{"rule":"node-call-before-attach","node":"n1"}"#);
        let read: Violation = serde_json::from_str(&written).unwrap();
        assert_eq!(read, violation);
    }
}
