//! The operations of owners on volumes at their storage.

use std::time::Duration;

use super::operation::{index, millis};
use super::shape::{CREATED_NUMBERS, kind_of};
use crate::dice::Dice;

/// What an owner does at the storage. The numbers of volumes are in [`CREATED_NUMBERS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StorageAction {
    /// A volume is created.
    Create {
        /// The number of the volume.
        volume: usize,
        /// What the volume is a copy of; `None` for an empty one. A copy replaces the volume
        /// that is there, and so does a volume with `abandon`.
        source: Option<Source>,
        /// The time after which its owner deletes it, even if it is not ready by then.
        abandon: Option<Duration>,
    },
    /// A volume is deleted.
    Delete {
        /// The number of the volume.
        volume: usize,
    },
    /// A volume is expanded.
    Expand {
        /// The number of the volume.
        volume: usize,
        /// The new size in bytes.
        bytes: u64,
        /// Whether the expansion may wait until no claim holds the volume.
        when_free: bool,
    },
    /// A snapshot of each volume is cut. Snapshots of several volumes form a group.
    Snapshot {
        /// The numbers of the volumes.
        volumes: Vec<usize>,
        /// How long the plugin works on the snapshot.
        ready_after: Duration,
        /// The time after which its owner deletes it, even if it is not ready by then.
        abandon: Option<Duration>,
    },
    /// A snapshot is deleted with its group.
    DeleteSnapshot {
        /// The index among the snapshots that exist by then, modulo their number.
        pick: usize,
    },
}

/// What a volume is a copy of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The volume with this number.
    Volume(usize),
    /// The index among the snapshots that exist by then, modulo their number.
    Snapshot(usize),
}

impl StorageAction {
    /// The kind of operation, by which operations are counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Create { abandon: Some(_), .. } => "volume abandoned",
            Self::Create { source: None, .. } => "volume created",
            Self::Create { source: Some(Source::Volume(_)), .. } => "volume copied",
            Self::Create { source: Some(Source::Snapshot(_)), .. } => "volume restored",
            Self::Delete { .. } => "volume deleted",
            Self::Expand { .. } => "volume expanded",
            Self::Snapshot { abandon: Some(_), .. } => "snapshot abandoned",
            Self::Snapshot { volumes, .. } if volumes.len() > 1 => "group of snapshots cut",
            Self::Snapshot { .. } => "snapshot cut",
            Self::DeleteSnapshot { .. } => "snapshot deleted",
        }
    }
}

/// The smallest size of a volume in bytes: that of the smallest ext4 image of the development
/// driver.
pub const SMALLEST: u64 = 8 << 20;

/// The upper bound of a `pick`.
const PICKS: usize = 1_000;

pub(super) fn action(dice: &mut Dice) -> StorageAction {
    let volume = created(dice);
    // In half of the cases it is so soon that the first call may still be under way.
    let longest = if dice.percent(50) { 80 } else { 1_500 };
    let soon = millis(dice, 0, longest);
    let abandon = dice.percent(25).then_some(soon);
    match dice.below(100) {
        0..34 => StorageAction::Create { volume, source: source(dice, volume), abandon },
        34..50 => StorageAction::Delete { volume },
        50..62 => StorageAction::Expand {
            volume,
            bytes: SMALLEST + dice.between(1, 8) * (1 << 20),
            when_free: dice.percent(50),
        },
        62..86 => {
            let mut volumes = vec![volume];
            // All snapshots of a group are cut at one storage.
            let more = if dice.percent(50) { dice.between(1, 2) } else { 0 };
            volumes.extend((0..more).map(|_| created(dice)));
            volumes.retain(|other| kind_of(*other).plugin == kind_of(volume).plugin);
            volumes.sort_unstable();
            volumes.dedup();
            let longest = if dice.percent(50) { 2_000 } else { 1 };
            StorageAction::Snapshot { volumes, ready_after: millis(dice, 0, longest), abandon }
        }
        _ => StorageAction::DeleteSnapshot { pick: index(dice, PICKS) },
    }
}

fn source(dice: &mut Dice, volume: usize) -> Option<Source> {
    let (share, other, pick) = (dice.below(100), created(dice), index(dice, PICKS));
    let plain = |volume: usize| kind_of(volume).is_copied();
    match share {
        0..30 if other != volume && plain(volume) && plain(other) => Some(Source::Volume(other)),
        30..60 if plain(volume) => Some(Source::Snapshot(pick)),
        _ => None,
    }
}

/// One of the volumes that are created while the run goes on.
pub(super) fn created(dice: &mut Dice) -> usize {
    CREATED_NUMBERS.start + index(dice, CREATED_NUMBERS.len())
}
