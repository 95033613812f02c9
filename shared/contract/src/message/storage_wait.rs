//! What a change of a volume at its storage waits for.

use serde::{Deserialize, Serialize};

/// What a change of a volume at its storage waits for, if no time and no retry ends the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageWait {
    /// The volume has to be free: the plugin does not expand a volume that is in use.
    VolumeFree,
    /// The next node that stages the volume expands its file system.
    NextStaging,
    /// A node that refused has to stage the volume again: its allocs are to be stopped and started
    /// again.
    StagedAgain,
    /// No node from which the volume can be reached reports the plugin, and each of the plugin's
    /// controllers may have a storage of its own.
    Controller,
    /// The volume may be mounted where no claim covers it: nothing is deleted under a mount.
    Unmounted,
    /// Something that a newer version waits for.
    #[serde(other)]
    Unknown,
}

impl StorageWait {
    /// What is waited for, in words that follow "waits for".
    pub const fn describe(self) -> &'static str {
        match self {
            Self::VolumeFree => {
                "the volume to be free, because the plugin does not expand it while it is in use"
            }
            Self::NextStaging => {
                "the next node that stages the volume, which expands its file system"
            }
            Self::StagedAgain => {
                "the volume to be staged again on the nodes that are left, because the plugin \
                 expands it only then"
            }
            Self::Controller => {
                "a node from which the volume can be reached to report the plugin, because its \
                 other controllers may not know the volume"
            }
            Self::Unmounted => {
                "the volume to be unmounted where no claim covers it, because a workload may still \
                 write there"
            }
            Self::Unknown => "something that a newer version knows",
        }
    }
}
