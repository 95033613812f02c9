//! What users, schedulers and operators do.

use std::fmt;
use std::time::Duration;

use super::shape::{SCRATCH, Shape, VOLUMES, kind_of};
use super::storage::{self, StorageDeed};
use super::{Event, What};
use crate::dice::Dice;

/// One operation of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its number: the name of its alloc, where it has one.
    pub number: usize,
    /// What is done.
    pub deed: Deed,
}

/// What is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// A workload comes and goes.
    Workload(Workload),
    /// A volume is registered again with another parameter: an update, claimed or not.
    Update {
        /// Which of [`VOLUMES`].
        volume: usize,
    },
    /// A volume is deregistered, and registered again after a while.
    Renew {
        /// Which of [`VOLUMES`].
        volume: usize,
        /// Whether by force.
        force: bool,
        /// How long it stays away.
        pause: Duration,
    },
    /// An operator detaches a volume from a node by hand.
    Detach {
        /// Which, as [`kind_of`] counts them.
        volume: usize,
        /// From which node.
        node: usize,
    },
    /// Something is changed at the storage.
    Storage(StorageDeed),
    /// `gc.force`.
    Collect,
    /// A read.
    Look(Read),
}

/// One workload: an alloc on a node with one volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Which, as [`kind_of`] counts them.
    pub volume: usize,
    /// Where.
    pub node: usize,
    /// Whether it only reads.
    pub read_only: bool,
    /// Whether it gets in line rather than be refused.
    pub wait: bool,
    /// How its requests are sent.
    pub sending: Sending,
    /// How long it asks for its volume before it gives up.
    pub patience: Duration,
    /// How long it keeps it.
    pub hold: Duration,
    /// How it ends.
    pub end: End,
    /// What is sent once more long after, as a message that was on its way for long.
    pub late: Option<Late>,
}

impl Workload {
    /// One that gets in line, and stops as soon as it is told to.
    pub fn waiting(volume: usize, node: usize, patience: Duration) -> Self {
        Self {
            volume,
            node,
            read_only: false,
            wait: true,
            sending: Sending::Once,
            patience,
            hold: Duration::ZERO,
            end: End::Stop,
            late: None,
        }
    }
}

/// How a workload's requests are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// Each once, until it is answered.
    Once,
    /// Each twice at once.
    Twice,
    /// Its mount and its stop also without a deadline, by a caller that waits for no answer: the
    /// service may work on them at any time later.
    Unbounded,
}

/// How a workload ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Its alloc is stopped.
    Stop,
    /// It vanishes: its end is reported only after this time.
    Vanish(Duration),
    /// Its claim is given up by hand, and its alloc stopped after that.
    Release,
}

/// A message that comes late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// `agent.mount` of an alloc that has ended: refused.
    Mount,
    /// `claim.take` of an alloc that has ended: refused.
    Take,
    /// `claim.release` of an epoch that is over: nothing.
    Release,
    /// `alloc.register` of an alloc that has ended: refused.
    Register,
    /// `alloc.stop` once more: nothing.
    Stop,
}

/// The subject of a read. No read changes anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// `volume.status` of one.
    Volume(usize),
    /// `volume.list`.
    Volumes,
    /// `claim.status` of all.
    Claims,
    /// `alloc.list`.
    Allocs,
    /// `plugin.status`.
    Plugins,
    /// `node.status`.
    Nodes,
    /// `agent.status` of one.
    Agent(usize),
}

impl Operation {
    /// What kind it is, for counting.
    pub fn kind(&self) -> &'static str {
        match &self.deed {
            Deed::Workload(Workload { volume: SCRATCH, .. }) => "workload with a volume of its own",
            Deed::Workload(workload) => match (workload.wait, workload.end) {
                (false, End::Stop) => "workload",
                (true, End::Stop) => "workload in line",
                (false, End::Vanish(_)) => "workload that vanishes",
                (true, End::Vanish(_)) => "workload in line that vanishes",
                (_, End::Release) => "workload released by hand",
            },
            Deed::Update { .. } => "volume updated",
            Deed::Renew { force: false, .. } => "volume deregistered",
            Deed::Renew { force: true, .. } => "volume deregistered by force",
            Deed::Detach { .. } => "volume detached by hand",
            Deed::Storage(deed) => deed.kind(),
            Deed::Collect => "gc.force",
            Deed::Look(_) => "look",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}: {:?}", self.number, self.kind(), self.deed)
    }
}

/// All operations of a seed, without end.
pub(super) fn all(seed: u64, shape: Shape) -> impl Iterator<Item = Event> {
    let mut dice = Dice::new(seed, "operations");
    let mut at = 0;
    (0..).map(move |number| {
        at += dice.between(20, 500);
        let operation = Operation { number, deed: deed(&mut dice, shape) };
        Event { at: Duration::from_millis(at), what: What::Operation(operation) }
    })
}

fn deed(dice: &mut Dice, shape: Shape) -> Deed {
    let volume = volume(dice);
    let used = if dice.percent(25) { storage::created(dice) } else { volume };
    let node = index(dice, shape.nodes);
    match dice.below(100) {
        0..51 => Deed::Workload(workload(dice, used, node)),
        51..58 => Deed::Workload(workload(dice, SCRATCH, node)),
        58..76 => Deed::Storage(storage::deed(dice)),
        76..80 => Deed::Update { volume },
        80..83 => {
            let (force, pause) = (dice.percent(50), millis(dice, 100, 2_000));
            Deed::Renew { volume, force, pause }
        }
        83..88 => Deed::Detach { volume: used, node },
        88..91 => Deed::Collect,
        _ => Deed::Look(dice.weigh(&[
            (3, Read::Volume(used)),
            (1, Read::Volumes),
            (2, Read::Claims),
            (1, Read::Allocs),
            (1, Read::Plugins),
            (1, Read::Nodes),
            (1, Read::Agent(node)),
        ])),
    }
}

fn workload(dice: &mut Dice, volume: usize, node: usize) -> Workload {
    let wait = dice.percent(45);
    let end = match dice.below(100) {
        0..70 => End::Stop,
        70..88 => End::Vanish(millis(dice, 1_000, 12_000)),
        _ => End::Release,
    };
    let late = dice
        .percent(35)
        .then(|| *dice.pick(&[Late::Mount, Late::Take, Late::Release, Late::Register, Late::Stop]));
    let longest = if dice.percent(20) { 6_000 } else { 900 };
    Workload {
        volume,
        node,
        read_only: kind_of(volume).writers == 0 || dice.percent(20),
        wait,
        sending: dice.weigh(&[(70, Sending::Once), (20, Sending::Twice), (10, Sending::Unbounded)]),
        // A caller that vanishes often does so in the queue, before anything was granted.
        patience: if matches!(end, End::Vanish(_)) && dice.percent(50) {
            millis(dice, 100, 2_000)
        } else {
            millis(dice, 5_000, 25_000)
        },
        hold: millis(dice, 0, longest),
        end,
        late,
    }
}

/// Those that come first come more often.
fn volume(dice: &mut Dice) -> usize {
    let (one, other) = (index(dice, VOLUMES.len()), index(dice, VOLUMES.len()));
    if dice.percent(40) { one.min(other) } else { one }
}

pub(super) fn index(dice: &mut Dice, below: usize) -> usize {
    usize::try_from(dice.below(below as u64)).unwrap_or(0)
}

pub(super) fn millis(dice: &mut Dice, from: u64, to: u64) -> Duration {
    Duration::from_millis(dice.between(from, to))
}
