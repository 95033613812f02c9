//! Every point of a flow.

use berth_harness::proxy::{Point, Side};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};

use super::blow::{Blow, strike};
use super::flow::Flow;

/// A flow of more writes and calls than this does not end.
const POINTS_MAX: usize = 60;

/// Which points are tried.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    Every,
    /// One in so many, from the first on, on either side in turn.
    OneIn(usize),
}

impl Which {
    fn takes(self, at: usize, side: Side) -> bool {
        match self {
            Self::Every => true,
            Self::OneIn(step) => (at * 2 + usize::from(side == Side::After)) % (step * 2 + 1) == 0,
        }
    }
}

/// Strikes at the points of a flow, one after another, each time with a volume of its own.
pub async fn at_points(flow: Flow, blow: Blow, which: Which, options: Options) {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options).await;
    let quiet = Point { subjects: flow.subjects(), at: usize::MAX, side: Side::Before };
    flow.prepare(&system, "quiet").await;
    system.wire.arm(quiet);
    flow.run(&system, "quiet").await;
    let points = system.wire.disarm();
    flow.rest(&system, "quiet").await;
    println!("{flow:?} has {} points: {points:#?}", points.len());

    for side in [Side::Before, Side::After] {
        let mut struck = 0;
        for at in 0..POINTS_MAX {
            if !which.takes(at, side) && at < points.len() {
                continue;
            }
            let volume = format!("{side:?}-{at}").to_lowercase();
            let began = std::time::Instant::now();
            flow.prepare(&system, &volume).await;
            system.wire.arm(Point { subjects: flow.subjects(), at, side });
            let tripped = strike(&system, blow, flow.run(&system, &volume)).await;
            system.wire.disarm();
            println!("{blow:?} {volume}: {tripped:?}, {:?}", began.elapsed());
            system.healthy().await;
            flow.rest(&system, &volume).await;
            println!("  at rest, {:?}", began.elapsed());
            struck += usize::from(tripped.is_some());
            // Timing may have joined two steps into one; past what was counted it is the end.
            if tripped.is_none() && at >= points.len() {
                break;
            }
        }
        assert!(struck > 0, "{flow:?} was never struck {side:?} a message");
    }
}
