//! `berth snapshot …`

use std::fmt;
use std::str::FromStr;

use berth_domain::{PluginId, SnapshotId, VolumeId};
use clap::{Args, Subcommand};

use super::list::{LISTS, ListView, PageArgs};
use super::storage::{NewVolumeArgs, WaitArgs};

/// A snapshot of a volume: `data@monday`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotArg {
    /// The volume.
    pub volume: VolumeId,
    /// The snapshot.
    pub snapshot: SnapshotId,
}

impl FromStr for SnapshotArg {
    type Err = String;

    /// The last `@` separates the two: a volume's id may contain others.
    fn from_str(text: &str) -> Result<Self, String> {
        let (volume, snapshot) =
            text.rsplit_once('@').ok_or_else(|| "must be VOLUME@SNAPSHOT".to_owned())?;
        let volume = VolumeId::new(volume).map_err(|fault| format!("the volume {fault}"))?;
        let snapshot =
            SnapshotId::new(snapshot).map_err(|fault| format!("the snapshot {fault}"))?;
        Ok(Self { volume, snapshot })
    }
}

impl fmt::Display for SnapshotArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.snapshot)
    }
}

/// `berth snapshot …`
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Cut a snapshot of a volume
    ///
    /// Waits until the plugin says that a volume can be made of it, and prints each step. The
    /// volume may be in use: what is in the caches of its node is not in the snapshot. A snapshot
    /// outlives its volume.
    #[command(after_long_help = "EXAMPLES
    berth snapshot create data monday
    berth snapshot create data monday --param type=full --no-wait")]
    Create(SnapshotCreate),
    /// List snapshots, or those that a plugin has
    ///
    /// With --external the plugin is asked for all its snapshots, and each is shown beside the
    /// snapshot of Berth that it is: known, not registered, or registered and not listed.
    #[command(visible_alias = LISTS[1], after_long_help = "EXAMPLES
    berth snapshot list
    berth snapshot list data
    berth snapshot list --external ebs.csi.aws.com
    berth snapshot list --json | jq '.snapshots[].size_bytes'")]
    List(SnapshotList),
    /// Register a snapshot that a plugin has
    ///
    /// The plugin is asked for its list. The snapshot's volume need not be registered.
    #[command(after_long_help = "EXAMPLES
    berth snapshot adopt ebs.csi.aws.com snap-0a1b2c3d data@monday")]
    Adopt(SnapshotAdopt),
    /// Delete a snapshot at its storage
    ///
    /// Without --yes it says what it would destroy. Waits until the snapshot is gone, and prints
    /// each step. Refused while a volume is being made of it. A snapshot of a group is deleted with
    /// `berth snapshot group delete`.
    ///
    /// With --forget only the record goes, and whatever is at the storage stays there: for a
    /// snapshot whose plugin is gone, or refuses for ever.
    #[command(after_long_help = "EXAMPLES
    berth snapshot delete data@monday
    berth snapshot delete data@monday --yes")]
    Delete(SnapshotDelete),
    /// Create a volume from a snapshot
    ///
    /// The new volume is of the class of the snapshot's volume, unless an option says otherwise. It
    /// is at least as large as the snapshot needs. The same as `berth volume create NEW
    /// --from-snapshot VOLUME@SNAPSHOT`.
    #[command(after_long_help = "EXAMPLES
    berth snapshot restore data@monday data-of-monday
    berth snapshot restore data@monday larger --class fast --size 20GiB")]
    Restore(Box<SnapshotRestore>),
    /// Cut, list and delete snapshots of several volumes of one moment
    #[command(subcommand)]
    Group(GroupCommand),
}

/// `berth snapshot create`
#[derive(Debug, Args)]
pub struct SnapshotCreate {
    /// The volume
    pub volume: VolumeId,
    /// The id of the snapshot, unique among those of the volume
    pub snapshot: SnapshotId,
    /// A parameter for the plugin; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub param: Vec<String>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth snapshot list`
#[derive(Debug, Args)]
pub struct SnapshotList {
    /// Only snapshots of this volume
    #[arg(conflicts_with = "external")]
    pub volume: Option<VolumeId>,
    /// List what this plugin has, beside what is registered
    #[arg(long, value_name = "PLUGIN", conflicts_with_all = [
        "prefix", "plugin", "limit", "after", "watch",
    ])]
    pub external: Option<PluginId>,
    /// Only snapshots whose id begins with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only snapshots of this plugin
    #[arg(long, value_name = "ID")]
    pub plugin: Option<PluginId>,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
    /// The form of the list.
    #[command(flatten)]
    pub view: ListView,
}

/// `berth snapshot adopt`
#[derive(Debug, Args)]
pub struct SnapshotAdopt {
    /// The plugin
    pub plugin: PluginId,
    /// The plugin's id of the snapshot, as `berth snapshot list --external PLUGIN` shows it
    pub external_id: String,
    /// The volume and the id of the snapshot
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    pub snapshot: SnapshotArg,
}

/// `berth snapshot delete`
#[derive(Debug, Args)]
pub struct SnapshotDelete {
    /// The snapshot
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    pub snapshot: SnapshotArg,
    /// Confirm it: the snapshot is destroyed at the storage
    #[arg(long)]
    pub yes: bool,
    /// Remove the record only: whatever is at the storage stays there
    #[arg(long)]
    pub forget: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth snapshot restore`
#[derive(Debug, Args)]
pub struct SnapshotRestore {
    /// The snapshot
    #[arg(value_name = "VOLUME@SNAPSHOT")]
    pub snapshot: String,
    /// The id of the new volume
    pub volume: String,
    /// Its properties.
    #[command(flatten)]
    pub new: NewVolumeArgs,
    /// It gets the secrets of the snapshot's volume [default: the class's, or none]
    #[arg(long)]
    pub with_secrets: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth snapshot group …`
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Cut snapshots of several volumes at one moment
    ///
    /// Each volume gets a snapshot of the same id. All of them are cut, or none. The volumes must
    /// be of one plugin that can do it.
    #[command(after_long_help = "EXAMPLES
    berth snapshot group create monday orders orders-log")]
    Create(GroupCreate),
    /// List groups of snapshots
    ///
    /// Each line is one group, with its volumes and the state that all its snapshots have.
    #[command(visible_alias = LISTS[1], after_long_help = "EXAMPLES
    berth snapshot group list")]
    List(GroupList),
    /// Delete a group of snapshots at its storage
    ///
    /// Deletes the snapshots of all volumes of the group. Any of them names it. Without --yes it
    /// says what it would destroy.
    #[command(after_long_help = "EXAMPLES
    berth snapshot group delete orders@monday --yes")]
    Delete(SnapshotDelete),
}

/// `berth snapshot group create`
#[derive(Debug, Args)]
pub struct GroupCreate {
    /// The id of the snapshots
    pub snapshot: SnapshotId,
    /// The volumes
    #[arg(value_name = "VOLUME", required = true)]
    pub volumes: Vec<VolumeId>,
    /// A parameter for the plugin; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub param: Vec<String>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// `berth snapshot group list`
#[derive(Debug, Args)]
pub struct GroupList {
    /// Only groups whose id begins with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub prefix: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_at_sign_separates_volume_and_snapshot() {
        let read = |text: &str| text.parse::<SnapshotArg>();
        let parsed = read("a@b@c").unwrap();
        assert_eq!((parsed.volume.as_str(), parsed.snapshot.as_str()), ("a@b", "c"));
        assert_eq!(parsed.to_string(), "a@b@c");
        for (text, reason) in
            [("data", "VOLUME@SNAPSHOT"), ("@s", "the volume is empty"), ("v@", "the snapshot is")]
        {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(reason), "{text}: {fault}");
        }
    }
}
