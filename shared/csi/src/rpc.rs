//! The 36 calls of CSI.
//!
//! **Owns** the name, service, effect and messages of each call.
//!
//! **Promises** to be the complete contract: a test compares it with the descriptors.
//!
//! **Never** knows a capability or an order between calls.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::answer::{AnswerFault, Answers};
use crate::redact::Sensitive;
use crate::v1;

/// What a call changes, and so what its failure leaves in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Changes nothing.
    Reads,
    /// Creates or changes something.
    Changes,
    /// Undoes another call.
    Undoes,
}

/// A gRPC service of `csi.v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Every plugin process serves it.
    Identity,
    /// Work that is not bound to a host.
    Controller,
    /// Snapshots of several volumes at once.
    GroupController,
    /// Changed blocks of snapshots.
    SnapshotMetadata,
    /// Work on the host where a volume is used.
    Node,
}

/// A request with one response. CSI uses each request type for one call only.
pub trait Unary: prost::Message + Sensitive + Serialize + Clone + Default + 'static {
    /// The call.
    const RPC: Rpc;
    /// Its answer.
    type Response: prost::Message + Serialize + Default + 'static;

    /// The contradiction in the answer, if there is one.
    fn check_answer(&self, answer: &Self::Response) -> Option<AnswerFault>;
}

/// Work with the types of a call's messages, for callers that only have its [`Rpc`].
pub trait ForMessages {
    /// The result of the work.
    type Output;

    /// Does the work for the call of this request.
    fn with<R: Unary>(self) -> Self::Output;
}

macro_rules! path {
    ($service:ident $rpc:ident) => {
        concat!("/csi.v1.", stringify!($service), "/", stringify!($rpc))
    };
}

macro_rules! rpcs {
    (
        unary { $($service:ident $effect:ident $rpc:ident($request:ident) -> $response:ident;)* }
        streaming { $($home:ident $kind:ident $stream:ident;)* }
    ) => {
        /// A call of CSI 1.13.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum Rpc {
            $(#[doc = concat!("`", path!($service $rpc), "`")] $rpc,)*
            $(#[doc = concat!("`", path!($home $stream), "`, answered by a stream")] $stream,)*
        }

        impl Rpc {
            /// All calls, by service.
            pub const ALL: &[Self] = &[$(Self::$rpc,)* $(Self::$stream,)*];

            /// CSI's name of the call.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$rpc => stringify!($rpc),)*
                    $(Self::$stream => stringify!($stream),)*
                }
            }

            /// The path of the gRPC request.
            pub const fn path(self) -> &'static str {
                match self {
                    $(Self::$rpc => path!($service $rpc),)*
                    $(Self::$stream => path!($home $stream),)*
                }
            }

            /// The call of a gRPC request with this path.
            pub fn of_path(path: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|rpc| rpc.path() == path)
            }

            /// Does `work` with the types of this call's messages; `None` for a stream.
            pub fn for_messages<W: ForMessages>(self, work: W) -> Option<W::Output> {
                match self {
                    $(Self::$rpc => Some(work.with::<v1::$request>()),)*
                    $(Self::$stream => None,)*
                }
            }

            /// The service the call belongs to.
            pub const fn service(self) -> Service {
                match self {
                    $(Self::$rpc => Service::$service,)*
                    $(Self::$stream => Service::$home,)*
                }
            }

            /// The effect of the call.
            pub const fn effect(self) -> Effect {
                match self {
                    $(Self::$rpc => Effect::$effect,)*
                    $(Self::$stream => Effect::$kind,)*
                }
            }
        }

        $(impl Unary for v1::$request {
            const RPC: Rpc = Rpc::$rpc;
            type Response = v1::$response;

            fn check_answer(&self, answer: &v1::$response) -> Option<AnswerFault> {
                Answers::contradiction(self, answer)
            }
        })*
    };
}

rpcs! {
    unary {
        Identity Reads GetPluginInfo(GetPluginInfoRequest) -> GetPluginInfoResponse;
        Identity Reads GetPluginCapabilities(GetPluginCapabilitiesRequest)
            -> GetPluginCapabilitiesResponse;
        Identity Reads Probe(ProbeRequest) -> ProbeResponse;

        Controller Changes CreateVolume(CreateVolumeRequest) -> CreateVolumeResponse;
        Controller Undoes DeleteVolume(DeleteVolumeRequest) -> DeleteVolumeResponse;
        Controller Changes ControllerPublishVolume(ControllerPublishVolumeRequest)
            -> ControllerPublishVolumeResponse;
        Controller Undoes ControllerUnpublishVolume(ControllerUnpublishVolumeRequest)
            -> ControllerUnpublishVolumeResponse;
        Controller Reads ValidateVolumeCapabilities(ValidateVolumeCapabilitiesRequest)
            -> ValidateVolumeCapabilitiesResponse;
        Controller Reads ListVolumes(ListVolumesRequest) -> ListVolumesResponse;
        Controller Reads ControllerListVolumeHealth(ControllerListVolumeHealthRequest)
            -> ControllerListVolumeHealthResponse;
        Controller Reads ControllerGetVolumeHealth(ControllerGetVolumeHealthRequest)
            -> ControllerGetVolumeHealthResponse;
        Controller Reads GetCapacity(GetCapacityRequest) -> GetCapacityResponse;
        Controller Reads ControllerGetCapabilities(ControllerGetCapabilitiesRequest)
            -> ControllerGetCapabilitiesResponse;
        Controller Changes CreateSnapshot(CreateSnapshotRequest) -> CreateSnapshotResponse;
        Controller Undoes DeleteSnapshot(DeleteSnapshotRequest) -> DeleteSnapshotResponse;
        Controller Reads ListSnapshots(ListSnapshotsRequest) -> ListSnapshotsResponse;
        Controller Reads GetSnapshot(GetSnapshotRequest) -> GetSnapshotResponse;
        Controller Changes ControllerExpandVolume(ControllerExpandVolumeRequest)
            -> ControllerExpandVolumeResponse;
        Controller Reads ControllerGetVolume(ControllerGetVolumeRequest)
            -> ControllerGetVolumeResponse;
        Controller Changes ControllerModifyVolume(ControllerModifyVolumeRequest)
            -> ControllerModifyVolumeResponse;

        GroupController Reads GroupControllerGetCapabilities(GroupControllerGetCapabilitiesRequest)
            -> GroupControllerGetCapabilitiesResponse;
        GroupController Changes CreateVolumeGroupSnapshot(CreateVolumeGroupSnapshotRequest)
            -> CreateVolumeGroupSnapshotResponse;
        GroupController Undoes DeleteVolumeGroupSnapshot(DeleteVolumeGroupSnapshotRequest)
            -> DeleteVolumeGroupSnapshotResponse;
        GroupController Reads GetVolumeGroupSnapshot(GetVolumeGroupSnapshotRequest)
            -> GetVolumeGroupSnapshotResponse;

        Node Changes NodeStageVolume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
        Node Undoes NodeUnstageVolume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        Node Changes NodePublishVolume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
        Node Undoes NodeUnpublishVolume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        Node Reads NodeGetVolumeStats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
        Node Reads NodeGetVolumeHealth(NodeGetVolumeHealthRequest) -> NodeGetVolumeHealthResponse;
        Node Reads NodeGetStorageHealth(NodeGetStorageHealthRequest)
            -> NodeGetStorageHealthResponse;
        Node Changes NodeExpandVolume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
        Node Reads NodeGetCapabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
        Node Reads NodeGetInfo(NodeGetInfoRequest) -> NodeGetInfoResponse;
    }
    streaming {
        SnapshotMetadata Reads GetMetadataAllocated;
        SnapshotMetadata Reads GetMetadataDelta;
    }
}

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
