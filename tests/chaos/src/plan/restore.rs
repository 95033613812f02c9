//! The bucket that a seed has restored under the workloads of its end.

use std::time::Duration;

use super::fault::{self, Fault};
use super::operation::millis;
use super::shape::{Shape, VOLUMES};
use super::{Event, Target, What};
use crate::dice::Dice;

/// All buckets are set back to a backup while workloads run that are younger than it.
#[derive(Clone, PartialEq, Debug)]
pub struct Restore {
    /// By which tool.
    pub tool: Tool,
    /// The volumes of those workloads, each with its node.
    pub held: Vec<(usize, usize)>,
    /// How long after they run.
    pub after: Duration,
    /// What else breaks meanwhile.
    pub strikes: Vec<Event>,
}

/// What restores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// `berth bus restore`.
    Berth,
    /// The stock tool, and a person accepts what it restored.
    Stock,
}

impl Tool {
    /// What kind of fault it is, for counting.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Berth => "buckets restored",
            Self::Stock => "buckets set back and accepted",
        }
    }
}

/// How long other faults go on.
const STRIKES_FOR: Duration = Duration::from_secs(20);

/// A quarter of the seeds have one.
pub fn restore(seed: u64, shape: Shape) -> Option<Restore> {
    let mut dice = Dice::new(seed, "restore");
    if !dice.percent(25) {
        return None;
    }
    let tool = if dice.percent(50) { Tool::Berth } else { Tool::Stock };
    // What one node alone may have. Files are written and read, so no block device.
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

/// Whether the fault may strike meanwhile. Records are changed by the restore alone, and the
/// operator's tools reach the bus. A service that starts between the stock restore and its
/// acceptance knows no better than the backup (decision 0049).
fn is_borne(tool: Tool, event: &Event) -> bool {
    let What::Strike(strike) = &event.what else { return false };
    let is_service = strike.target.is_client() && !matches!(strike.target, Target::Agent(_));
    let starts = matches!(strike.fault, Fault::Kill | Fault::Leave);
    match strike.fault {
        Fault::Gone(_) | Fault::FullDisk | Fault::Flood(_) | Fault::Clock(_) => false,
        _ if is_service && starts => tool == Tool::Berth,
        _ => strike.target.is_client(),
    }
}
