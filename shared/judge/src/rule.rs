//! The rules that a CO is judged by.
//!
//! Owns: their names, safety rules and CSI sections. Promises: a rule that the driver also has is
//! called the same; nothing else is shared. Never: decides whether a rule is broken.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $rule:ident $name:literal $safety:expr, $csi:literal;)*) => {
        /// A rule of CSI's volume lifecycle, or of safety rules 1 to 4.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Rule {
            $($(#[doc = $doc])+ $rule,)*
        }

        impl Rule {
            /// In the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$rule,)*];

            /// In kebab case, as in the driver's log.
            pub fn name(self) -> &'static str {
                match self { $(Self::$rule => $name,)* }
            }

            /// The safety rule of ARCHITECTURE.md that it serves, if any.
            pub fn safety(self) -> Option<u8> {
                match self { $(Self::$rule => $safety,)* }
            }

            /// The section of CSI's spec.
            pub fn csi(self) -> &'static str {
                match self { $(Self::$rule => $csi,)* }
            }
        }
    };
}

rules! {
    /// A volume for one node at a time was to be attached to a second one.
    ExclusiveAttach "exclusive-attach" Some(2), "ControllerPublishVolume";
    /// A volume for one node at a time was to be staged or published on a second one.
    ExclusiveUse "exclusive-use" Some(1), "NodePublishVolume";
    /// A volume with one writer at a time was to be attached or published for a second one.
    SecondWriter "second-writer" Some(1), "VolumeCapability.AccessMode";
    /// A volume was to be published at a second target in a mode that allows one.
    SecondTarget "second-target" Some(1), "NodePublishVolume, second call";
    /// A volume was to be detached from a node that may still use it.
    DetachBeforeUnstage "detach-before-unstage" Some(3), "ControllerUnpublishVolume";
    /// A node used a volume after a fence, with uses from before the fence left.
    StaleUse "stale-use" Some(1), "Volume Lifecycle";
    /// A volume was to be unstaged while it is or may be published.
    UnstageBeforeUnpublish "unstage-before-unpublish" Some(3), "NodeUnstageVolume";
    /// The CO went on as if an unanswered undoing call had succeeded.
    UnconfirmedUndo "unconfirmed-undo" Some(3), "Volume Lifecycle";
    /// A volume was to be published from a path where it is not staged.
    PublishBeforeStage "publish-before-stage" None, "NodePublishVolume";
    /// A volume was to be published from a stage that is not known to have succeeded.
    PublishAfterUncertainStage "publish-after-uncertain-stage" None, "NodeStageVolume";
    /// A volume was to be staged at a second path of one node.
    SecondStagingPath "second-staging-path" Some(4), "NodeStageVolume";
    /// A volume was to be staged or published at a path that another volume has.
    PathOfAnotherVolume "path-of-another-volume" Some(4), "NodeStageVolume";
    /// A volume was to be unstaged or unpublished at a path that another volume has.
    UndoOfAnotherVolume "undo-of-another-volume" Some(3), "NodeUnpublishVolume";
    /// A volume was to be used on a node that it is not attached to.
    NodeCallBeforeAttach "node-call-before-attach" None, "NodeStageVolume";
    /// A volume was to be used on a node that it is not known to be attached to.
    NodeCallAfterUncertainAttach "node-call-after-uncertain-attach" None, "NodeStageVolume";
    /// A node call did not bring what the newest attaching call had returned.
    StalePublishContext "stale-publish-context" None, "ControllerPublishVolume";
    /// A volume was to be published otherwise than it is staged.
    OtherCapability "other-capability" None, "NodePublishVolume";
    /// A volume was to be published for writing on a node that it is attached to read-only.
    ReadonlyMismatch "readonly-mismatch" Some(1), "ControllerPublishVolume";
    /// Something that is there was to be made again otherwise, without being undone first.
    ChangedInPlace "changed-in-place" None, "Error Scheme, 6 ALREADY_EXISTS";
    /// A call that was not answered was repeated with other arguments.
    RetryChanged "retry-changed" None, "Timeouts and Retries";
    /// A name that is taken was to be given again, with other parameters.
    CreateConflict "create-conflict" None, "CreateVolume";
    /// A volume or snapshot was used after it was deleted.
    UseAfterDelete "use-after-delete" None, "DeleteVolume";
    /// A volume was to be deleted while it is or may be attached or in use.
    DeleteInUse "delete-in-use" Some(3), "DeleteVolume";
    /// A volume was deleted, and the kernel still has its directory mounted.
    DestroyedWhileMounted "destroyed-while-mounted" Some(3), "DeleteVolume";
    /// A volume or snapshot was to be deleted while something is made from it, or may be.
    DeleteOfSource "delete-of-source" None, "CreateVolume, volume_content_source";
    /// A volume was to be made from a snapshot that is not known to be ready to use.
    SourceNotReady "source-not-ready" None, "CreateSnapshot, ready_to_use";
    /// A member of a group of snapshots was to be deleted without the others.
    DeleteOfMember "delete-of-member" None, "DeleteSnapshot";
    /// A group of snapshots was called with other snapshots than its members.
    OtherMembers "other-members" None, "DeleteVolumeGroupSnapshot";
    /// A creation was not answered and never repeated: what it left is not known.
    AbandonedCreation "abandoned-creation" None, "RPC Interactions, CreateVolume";
    /// A volume was to be expanded to less than it has or may have.
    SmallerExpansion "smaller-expansion" None, "ControllerExpandVolume";
    /// A volume was to be expanded on a node before its controller call had succeeded.
    NodeExpandBeforeController "node-expand-before-controller" None, "ControllerExpandVolume";
    /// A volume was to be expanded on a node where it is neither staged nor published.
    NodeExpandBeforeUse "node-expand-before-use" None, "NodeExpandVolume";
    /// A controller call came while another one about the same was in flight and waited for.
    OverlappingControllerCalls "overlapping-controller-calls" Some(4), "Concurrency";
    /// A node call came while another one for the volume on that node was in flight and waited for.
    OverlappingNodeCalls "overlapping-node-calls" Some(4), "Concurrency";
    /// The driver reported a volume as staged or published where nothing is mounted.
    NotMounted "not-mounted" None, "NodePublishVolume";
    /// The driver reported a volume as unstaged or unpublished where something is mounted.
    StillMounted "still-mounted" Some(3), "NodeUnpublishVolume";
    /// The driver reported a volume as published read-only where it can be written to.
    MountedWritable "mounted-writable" Some(1), "NodePublishVolume";
    /// The driver published another content than it staged.
    OtherContent "other-content" None, "NodePublishVolume";
    /// The log does not say what the kernel has at a path of a node call.
    NotObserved "not-observed" None, "NodePublishVolume";
}

impl Rule {
    /// Whether the driver has this rule, too, and should have refused the call.
    pub fn is_checked_by_driver(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAttach
                | Self::ExclusiveUse
                | Self::SecondWriter
                | Self::DetachBeforeUnstage
                | Self::UnstageBeforeUnpublish
                | Self::PublishBeforeStage
                | Self::SecondStagingPath
                | Self::NodeCallBeforeAttach
                | Self::OverlappingControllerCalls
                | Self::OverlappingNodeCalls
        )
    }

    /// Whether the driver's rule `noticed` is this one. The driver does not know what the CO was
    /// answered, so it has one name for "not there" and "not known to be there".
    pub fn matches_driver_rule(self, noticed: &str) -> bool {
        let name = match self {
            Self::PublishAfterUncertainStage => Self::PublishBeforeStage.name(),
            Self::NodeCallAfterUncertainAttach => Self::NodeCallBeforeAttach.name(),
            other => other.name(),
        };
        name == noticed
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
