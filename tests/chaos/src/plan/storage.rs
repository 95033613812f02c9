//! What owners do to volumes at their storage.

use std::time::Duration;

use super::operation::{index, millis};
use super::shape::{CREATED_NUMBERS, kind_of};
use crate::dice::Dice;

/// What is done at the storage. Volumes are of [`CREATED_NUMBERS`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StorageDeed {
    /// A volume is created.
    Create {
        /// Which.
        volume: usize,
        /// What it is a copy of. A copy replaces the volume that is there, and so does a volume
        /// that is abandoned.
        source: Option<Source>,
        /// After how long its owner deletes it, whatever has come of it.
        abandon: Option<Duration>,
    },
    /// A volume is deleted.
    Delete {
        /// Which.
        volume: usize,
    },
    /// A volume is expanded.
    Expand {
        /// Which.
        volume: usize,
        /// To so many bytes.
        bytes: u64,
        /// Whether it may wait until no claim holds the volume.
        when_free: bool,
    },
    /// A snapshot of each volume is cut; of several as a group.
    Snapshot {
        /// Which.
        volumes: Vec<usize>,
        /// How long the plugin works on it.
        ready_after: Duration,
        /// After how long its owner deletes it, whatever has come of it.
        abandon: Option<Duration>,
    },
    /// A snapshot is deleted, with its group.
    DeleteSnapshot {
        /// Which of those that are there by then, modulo their number.
        pick: usize,
    },
}

/// What a volume is a copy of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A volume.
    Volume(usize),
    /// Which of the snapshots that are there by then, modulo their number.
    Snapshot(usize),
}

impl StorageDeed {
    /// What kind it is, for counting.
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

/// The smallest volume, in bytes: the smallest ext4 image of the development driver.
pub const SMALLEST: u64 = 8 << 20;

/// How many snapshots there are to pick from at most.
const PICKS: usize = 1_000;

pub(super) fn deed(dice: &mut Dice) -> StorageDeed {
    let volume = created(dice);
    // So soon that its first call may be under way.
    let longest = if dice.percent(50) { 80 } else { 1_500 };
    let soon = millis(dice, 0, longest);
    let abandon = dice.percent(25).then_some(soon);
    match dice.below(100) {
        0..34 => StorageDeed::Create { volume, source: source(dice, volume), abandon },
        34..50 => StorageDeed::Delete { volume },
        50..62 => StorageDeed::Expand {
            volume,
            bytes: SMALLEST + dice.between(1, 8) * (1 << 20),
            when_free: dice.percent(50),
        },
        62..86 => {
            let mut volumes = vec![volume];
            // A group is cut at one storage.
            let more = if dice.percent(50) { dice.between(1, 2) } else { 0 };
            volumes.extend((0..more).map(|_| created(dice)));
            volumes.retain(|other| kind_of(*other).plugin == kind_of(volume).plugin);
            volumes.sort_unstable();
            volumes.dedup();
            let longest = if dice.percent(50) { 2_000 } else { 1 };
            StorageDeed::Snapshot { volumes, ready_after: millis(dice, 0, longest), abandon }
        }
        _ => StorageDeed::DeleteSnapshot { pick: index(dice, PICKS) },
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
