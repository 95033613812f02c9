//! Nomad's figures, for comparison: Nomad 2.0-dev of 2026-08-21 on a 2-core VM with ext4,
//! upstream hostpath driver with attach, measured by us. Medians over their own RPC.

use std::fmt;

use crate::measure::CLAIM;
use crate::numbers::{grouped, ms};
use crate::row::{Part, Row};

/// One figure: operations per second, and the median time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Operations per second, where a rate was measured.
    pub per_second: Option<f64>,
    /// The median, or the mean for the shared volume.
    pub ms: f64,
    pub p99_ms: Option<f64>,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let median = ms(self.ms * 1e3);
        match (self.per_second, self.p99_ms) {
            (Some(rate), Some(p99)) => {
                f.pad(&format!("{} · {median}/{}", grouped(rate), ms(p99 * 1e3)))
            }
            _ => f.pad(&format!("{median} ms")),
        }
    }
}

/// `CSIVolume.Claim`, no controller, each claim on its own volume, durable log: servers, at once,
/// per second, p50 and p99.
const CLAIMS: [(u32, u32, f64, f64, f64); 6] = [
    (1, 1, 1950.0, 0.46, 1.3),
    (1, 16, 5500.0, 2.3, 8.9),
    (1, 128, 7400.0, 12.0, 43.0),
    (3, 1, 930.0, 0.97, 3.7),
    (3, 16, 2300.0, 6.3, 22.0),
    (3, 128, 3500.0, 34.0, 84.0),
];

/// Nomad's figure for the same operation as this row, where it was measured.
pub fn beside(row: &Row) -> Option<Figure> {
    match row.part {
        Part::Claims if row.name == CLAIM => CLAIMS
            .iter()
            .find(|(servers, at_once, ..)| (*servers, *at_once) == (row.servers, row.at_once))
            .map(|(_, _, per_second, ms, p99_ms)| Figure {
                per_second: Some(*per_second),
                ms: *ms,
                p99_ms: Some(*p99_ms),
            }),
        // Each claim copies the whole volume: first tenth and last tenth of 3000.
        Part::Shared if row.name.starts_with("100th") => Some(only(1.2)),
        Part::Shared if row.name.starts_with("3000th") => Some(only(10.5)),
        // Job registered to mounted; job stopped to free, of which 50 ms go to the container.
        Part::Mounts if row.name == "claim to mounted" => Some(only(20.0)),
        Part::Mounts if row.name == "release to free" => Some(only(69.0)),
        _ => None,
    }
}

fn only(ms: f64) -> Figure {
    Figure { per_second: None, ms, p99_ms: None }
}
