//! Snapshots of volumes.

use berth_domain::Namespace;

use crate::message::snapshot;

verbs! {
    /// Cut a snapshot of a volume, or of several at one moment: snapshot, volumes, group
    SnapshotCreate {
        step: "snapshot.create", endpoint: "snapshot-create",
        subject: "berth.v1.snapshot.create.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: BriefChange,
        request: snapshot::CreateSnapshot, reply: snapshot::SnapshotsChanged,
        errors: [SnapshotExists, TooManySnapshots, RegisteredTwice, NoSuchPlugin] + STORAGE_REFUSED,
    }

    /// Delete a snapshot at its storage, or its whole group: volume, snapshot, group
    SnapshotDelete {
        step: "snapshot.delete", endpoint: "snapshot-delete",
        subject: "berth.v1.snapshot.delete.<ns>", to: Namespace,
        service: CLAIM, senders: [WRITE], effect: BriefChange,
        request: snapshot::DeleteSnapshot, reply: snapshot::SnapshotsChanged,
        errors: [NoSuchSnapshot, SnapshotInGroup, NoSuchPlugin] + STORAGE_REFUSED,
    }

    /// Register a snapshot that a plugin has: volume, snapshot, plugin, external_id
    SnapshotAdopt {
        step: "snapshot.adopt", endpoint: "snapshot-adopt",
        subject: "berth.v1.snapshot.adopt.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR], effect: Change,
        request: snapshot::AdoptSnapshot, reply: snapshot::SnapshotsChanged,
        errors: [
            SnapshotExists, NoSuchSnapshot, TooManySnapshots, PluginLacks, PluginUnable,
        ] + PLUGIN_FAILED,
    }

    /// List snapshots: volume, prefix, plugin
    SnapshotList {
        step: "snapshot.list", endpoint: "snapshot-list",
        subject: "berth.v1.snapshot.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: snapshot::ListSnapshots, reply: snapshot::Snapshots,
        errors: [],
    }
}
