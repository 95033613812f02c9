//! The operations of users, schedulers and operators.

use std::fmt;
use std::time::Duration;

use super::shape::{SCRATCH, Shape, VOLUMES, kind_of};
use super::storage::{self, StorageAction};
use super::{Event, EventKind};
use crate::dice::Dice;

/// One operation of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The number of the operation. The alloc of a workload is named by it.
    pub number: usize,
    /// What the client does.
    pub action: Action,
}

/// What a client does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// A workload starts and ends.
    Workload(Workload),
    /// A volume is registered again with another parameter, whether it is claimed or not.
    Update {
        /// The index in [`VOLUMES`].
        volume: usize,
    },
    /// A volume is deregistered, and registered again after a while.
    Renew {
        /// The index in [`VOLUMES`].
        volume: usize,
        /// Whether it is deregistered by force.
        force: bool,
        /// How long it stays deregistered.
        pause: Duration,
    },
    /// An operator detaches a volume from a node by hand.
    Detach {
        /// The number of the volume; see [`kind_of`].
        volume: usize,
        /// The number of the node.
        node: usize,
    },
    /// An owner changes something at the storage.
    Storage(StorageAction),
    /// An operator runs `gc.force`.
    Collect,
    /// A client reads.
    Read(Read),
}

/// An alloc on a node that uses one volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// The number of the volume; see [`kind_of`].
    pub volume: usize,
    /// The number of the node.
    pub node: usize,
    /// Whether the alloc only reads.
    pub read_only: bool,
    /// Whether the alloc waits in the queue instead of being refused.
    pub wait: bool,
    /// How its requests are sent.
    pub sending: Sending,
    /// How long it asks for its volume before it gives up.
    pub patience: Duration,
    /// How long it keeps the volume.
    pub hold: Duration,
    /// How it ends.
    pub end: End,
    /// A message that is sent once more long after the end, as if it had been on its way for so
    /// long.
    pub late: Option<Late>,
}

impl Workload {
    /// A workload that waits in the queue, and stops as soon as its time is over.
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
    /// Each request is sent once, and answered.
    Once,
    /// Each request is sent twice at once.
    Twice,
    /// Its mount and its stop are also sent without a deadline, by a caller that waits for no
    /// answer. The service may work on them at any later time.
    Unbounded,
}

/// How a workload ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The alloc is stopped.
    Stop,
    /// The alloc vanishes. Its end is reported only after this time.
    Vanish(Duration),
    /// The claim is released by hand, and the alloc is stopped after that.
    Release,
}

/// A message that arrives long after the end of its alloc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// `agent.mount` of an alloc that has ended. It is refused.
    Mount,
    /// `claim.take` of an alloc that has ended. It is refused.
    Take,
    /// `claim.release` of an epoch that is over. It changes nothing.
    Release,
    /// `alloc.register` of an alloc that has ended. It is refused.
    Register,
    /// `alloc.stop` once more. It changes nothing.
    Stop,
}

/// What is read. No read changes anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// `volume.status` of the volume with this number.
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
    /// `agent.status` of the node with this number.
    Agent(usize),
}

impl Operation {
    /// The kind of operation, by which operations are counted.
    pub fn kind(&self) -> &'static str {
        match &self.action {
            Action::Workload(Workload { volume: SCRATCH, .. }) => {
                "workload with a volume of its own"
            }
            Action::Workload(workload) => match (workload.wait, workload.end) {
                (false, End::Stop) => "workload",
                (true, End::Stop) => "workload in line",
                (false, End::Vanish(_)) => "workload that vanishes",
                (true, End::Vanish(_)) => "workload in line that vanishes",
                (_, End::Release) => "workload released by hand",
            },
            Action::Update { .. } => "volume updated",
            Action::Renew { force: false, .. } => "volume deregistered",
            Action::Renew { force: true, .. } => "volume deregistered by force",
            Action::Detach { .. } => "volume detached by hand",
            Action::Storage(action) => action.kind(),
            Action::Collect => "gc.force",
            Action::Read(_) => "look",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}: {:?}", self.number, self.kind(), self.action)
    }
}

/// All operations of a seed, without end.
pub(super) fn all(seed: u64, shape: Shape) -> impl Iterator<Item = Event> {
    let mut dice = Dice::new(seed, "operations");
    let mut at_ms = 0;
    (0..).map(move |number| {
        at_ms += dice.between(20, 500);
        let operation = Operation { number, action: draw_action(&mut dice, shape) };
        Event { at: Duration::from_millis(at_ms), kind: EventKind::Operation(operation) }
    })
}

fn draw_action(dice: &mut Dice, shape: Shape) -> Action {
    let volume = volume(dice);
    let used = if dice.percent(25) { storage::created(dice) } else { volume };
    let node = index(dice, shape.nodes);
    match dice.below(100) {
        0..51 => Action::Workload(workload(dice, used, node)),
        51..58 => Action::Workload(workload(dice, SCRATCH, node)),
        58..76 => Action::Storage(storage::action(dice)),
        76..80 => Action::Update { volume },
        80..83 => {
            let (force, pause) = (dice.percent(50), millis(dice, 100, 2_000));
            Action::Renew { volume, force, pause }
        }
        83..88 => Action::Detach { volume: used, node },
        88..91 => Action::Collect,
        _ => Action::Read(dice.weigh(&[
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

/// A volume. The first ones are drawn more often.
fn volume(dice: &mut Dice) -> usize {
    let (first, second) = (index(dice, VOLUMES.len()), index(dice, VOLUMES.len()));
    if dice.percent(40) { first.min(second) } else { first }
}

pub(super) fn index(dice: &mut Dice, below: usize) -> usize {
    usize::try_from(dice.below(below as u64)).unwrap_or(0)
}

pub(super) fn millis(dice: &mut Dice, from: u64, to: u64) -> Duration {
    Duration::from_millis(dice.between(from, to))
}
