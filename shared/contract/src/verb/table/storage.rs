//! Volumes at their storage: they are created, grown, changed and deleted; and what a plugin has.

use berth_domain::Namespace;

use crate::message::{storage, work};

verbs! {
    /// Create a volume at its storage: the volume's document
    VolumeCreate {
        step: "volume.create", endpoint: "volume-create",
        subject: "berth.v1.volume.create.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE, DOCKER], effect: BriefChange,
        request: storage::Create, reply: storage::StorageChanged,
        errors: [
            NoSuchClass, ClassRefused, QuotaExceeded, VolumeExists, NoSuchSnapshot,
            NoSuchPlugin, PluginUnhealthy, SecretsUnavailable, RegistrationLost,
        ] + STORAGE_REFUSED,
    }

    /// Delete a volume and its data at its storage: id, reason, create_index
    VolumeDelete {
        step: "volume.delete", endpoint: "volume-delete",
        subject: "berth.v1.volume.delete.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE, DOCKER], effect: BriefChange,
        request: storage::DeleteVolume, reply: storage::StorageChanged,
        errors: [
            ClaimsLive, RegisteredTwice, NoSuchPlugin, MountUnaccounted, MountsNotSaid,
        ] + STORAGE_REFUSED,
    }

    /// Make a volume larger at its storage and on its nodes: id, size, limit, when_free
    VolumeExpand {
        step: "volume.expand", endpoint: "volume-expand",
        subject: "berth.v1.volume.expand.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: BriefChange,
        request: storage::Expand, reply: storage::StorageChanged,
        errors: [
            NeverSmaller, VolumeInUse, NoSuchClass, ClassRefused, QuotaExceeded, NoSuchPlugin,
        ] + STORAGE_REFUSED,
    }

    /// Change the mutable parameters of a volume at its storage: id, parameters
    VolumeModify {
        step: "volume.modify", endpoint: "volume-modify",
        subject: "berth.v1.volume.modify.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: BriefChange,
        request: storage::Modify, reply: storage::StorageChanged,
        errors: [NoSuchPlugin] + STORAGE_REFUSED,
    }

    /// List what a plugin has, and which of it is registered: plugin, snapshots, id, pages
    VolumeExternal {
        step: "volume.external", endpoint: "volume-external",
        subject: "berth.v1.volume.external.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR], effect: Read,
        request: storage::ListExternals, reply: storage::Externals,
        errors: [PluginLacks, PluginUnable] + PLUGIN_FAILED,
    }

    /// For volumewatchers of an older version: `work.checkpoint` of a volume or a snapshot
    VolumeCheckpoint {
        step: "volume.checkpoint", endpoint: "volume-checkpoint",
        subject: "berth.v1.volume.checkpoint.<ns>", to: Namespace,
        service: CLAIM, senders: [VOLUMEWATCHER], effect: Change,
        request: work::StorageCheckpoint, reply: work::StorageCheckpointed,
        errors: [NoSuchVolume, NoSuchSnapshot, StaleAttempt, NotDue],
    }

    /// Show how much room a plugin has, by topology: plugin, class, topology
    PluginCapacity {
        step: "plugin.capacity", endpoint: "plugin-capacity",
        subject: "berth.v1.plugin.capacity", to: (),
        service: CLAIM, senders: [PLUGIN_READ], effect: Read,
        request: storage::ListCapacities, reply: storage::Capacities,
        errors: [NoSuchClass, PluginLacks, PluginUnable] + PLUGIN_FAILED,
    }
}
