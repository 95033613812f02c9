//! The restore of the buckets under running workloads, with which the runs of some seeds end.

use std::time::Duration;

use super::fault::{self, Fault};
use super::operation::millis;
use super::shape::{Shape, VOLUMES};
use super::{Event, EventKind, Target};
use crate::dice::Dice;

/// All buckets are set back to a backup while workloads run that are younger than the backup.
#[derive(Clone, PartialEq, Debug)]
pub struct Restore {
    /// The tool that restores.
    pub tool: Tool,
    /// The volume of each of those workloads, with its node.
    pub held: Vec<(usize, usize)>,
    /// The time from the start of the workloads to the restore.
    pub after: Duration,
    /// The faults that strike meanwhile.
    pub strikes: Vec<Event>,
}

/// The tool by which the buckets are restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// `berth bus restore`.
    Berth,
    /// The stock tool of NATS. A person accepts what it restored.
    Stock,
}

impl Tool {
    /// The kind of fault, by which faults are counted.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Berth => "buckets restored",
            Self::Stock => "buckets set back and accepted",
        }
    }
}

/// How long other faults strike.
const STRIKES_FOR: Duration = Duration::from_secs(20);

/// The restore of a seed. A quarter of the seeds have one.
pub fn restore(seed: u64, shape: Shape) -> Option<Restore> {
    let mut dice = Dice::new(seed, "restore");
    if !dice.percent(25) {
        return None;
    }
    let tool = if dice.percent(50) { Tool::Berth } else { Tool::Stock };
    // Only one node may have such a volume. It is no block device, because files are written to
    // it.
    let is_exclusive = |volume: &usize| {
        let kind = &VOLUMES[*volume];
        kind.nodes == 1 && kind.writers > 0 && !kind.block
    };
    let held = (0..VOLUMES.len()).filter(is_exclusive);
    let nodes = shape.nodes as u64;
    let held = held.map(|volume| (volume, usize::try_from(dice.below(nodes)).unwrap_or(0)));
    let held = held.collect();
    let strikes = fault::all(seed, shape).map(|event| Event { at: event.at / 2, ..event });
    let strikes = strikes.take_while(|event| event.at < STRIKES_FOR);
    let strikes = strikes.filter(|event| is_borne(tool, event)).collect();
    Some(Restore { tool, held, after: millis(&mut dice, 0, 4_000), strikes })
}

/// Whether the fault may strike during a restore. Only the restore changes records, and the
/// operator's tools must reach the bus. A service that starts between a stock restore and its
/// acceptance knows no more than the backup (decision 0049).
fn is_borne(tool: Tool, event: &Event) -> bool {
    let EventKind::Strike(strike) = &event.kind else { return false };
    let is_service = strike.target.is_client() && !matches!(strike.target, Target::Agent(_));
    let starts = matches!(strike.fault, Fault::Kill | Fault::Leave);
    match strike.fault {
        Fault::Gone(_) | Fault::FullDisk | Fault::Flood(_) | Fault::Clock(_) => false,
        _ if is_service && starts => tool == Tool::Berth,
        _ => strike.target.is_client(),
    }
}
