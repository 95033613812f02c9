//! Volumes: their documents, and where they can be used.

use berth_domain::Namespace;

use crate::message::{many, volume};

verbs! {
    /// Register a volume, or change it: the volume's document
    VolumeRegister {
        step: "volume.register", endpoint: "volume-register",
        subject: "berth.v1.volume.register.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: Change,
        request: volume::RegisterVolume, reply: volume::Registered,
        errors: [
            VolumeClosing, UnsafeUpdate, HandleTaken, VolumeNotReady, MountUnaccounted,
            MountsNotSaid, RegistrationLost,
        ] + PLUGIN_FAILED,
    }

    /// Register many volumes, each with an answer of its own: volumes
    VolumeRegisterMany {
        step: "volume.register-many", endpoint: "volume-register-many",
        subject: "berth.v1.volume.register-many.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: Change,
        request: many::RegisterVolumes, reply: many::RegisterAnswers,
        errors: [] + PLUGIN_FAILED,
    }

    /// Deregister a volume; by force once nothing uses it: id, force, reason
    VolumeDeregister {
        step: "volume.deregister", endpoint: "volume-deregister",
        subject: "berth.v1.volume.deregister.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE, GC], effect: Change,
        request: volume::Deregister, reply: volume::Deregistered,
        errors: [
            NoSuchVolume, ClaimsLive, NotDue, Changed, Releasing, OperationUnderWay,
            MountUnaccounted, MountsNotSaid,
        ],
    }

    /// Deregister many volumes, each with an answer of its own: volumes
    VolumeDeregisterMany {
        step: "volume.deregister-many", endpoint: "deregister-many",
        subject: "berth.v1.volume.deregister-many.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: Change,
        request: many::DeregisterMany, reply: many::DeregisterAnswers,
        errors: [],
    }

    /// Release a node's claims on a volume whose allocs have ended: id, node, reason
    VolumeDetach {
        step: "volume.detach", endpoint: "volume-detach",
        subject: "berth.v1.volume.detach.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR], effect: Change,
        request: volume::Detach, reply: volume::Detached,
        errors: [NoSuchVolume, NoSuchNode, ClaimsLive, NoSuchClaim],
    }

    /// Show one volume with its claims and its health: id
    VolumeStatus {
        step: "volume.status", endpoint: "volume-status",
        subject: "berth.v1.volume.status.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, DOCKER], effect: Read,
        request: volume::VolumeQuery, reply: volume::VolumeStatus,
        errors: [NoSuchVolume, RegistrationLost],
    }

    /// List volumes, one short line each: prefix, plugin, node, state, closing
    VolumeList {
        step: "volume.list", endpoint: "volume-list",
        subject: "berth.v1.volume.list.<ns>", to: Namespace,
        service: CLAIM, senders: [LIST, DOCKER, PLUGIN_REGISTRY, GC], effect: Read,
        request: volume::ListVolumes, reply: volume::Volumes,
        errors: [],
    }

    /// Show which nodes could host these volumes, now or later, and why others cannot: volumes
    VolumePlacement {
        step: "volume.placement", endpoint: "volume-placement",
        subject: "berth.v1.volume.placement.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: volume::ListPlacements, reply: volume::Placements,
        errors: [],
    }

    /// Show for each of many workloads which nodes could host its volumes: placements
    VolumePlaceMany {
        step: "volume.place-many", endpoint: "volume-place-many",
        subject: "berth.v1.volume.place-many.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: many::PlaceMany, reply: many::PlacementAnswers,
        errors: [],
    }
}
