//! Every point of a flow.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use berth_harness::proxy::{Point, Side};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};

use super::blow::{Blow, strike};
use super::flow::Flow;

/// A flow of more writes and calls than this does not end.
const POINTS_MAX: usize = 60;

/// Which points are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Every,
    /// One in so many, from the first on, on either side in turn.
    OneIn(usize),
}

/// A place in a flow, from 0, and the side of it.
type Place = (usize, Side);

/// Strikes at the points of a flow, each time with a volume of its own. Most of the time somebody
/// waits for something, so several systems are struck side by side.
pub async fn at_points(flow: Flow, blow: Blow, which: Which, options: Options) {
    if or_skip("real mounts") {
        Box::pin(strike_all(flow, blow, which, options)).await;
    }
}

async fn strike_all(flow: Flow, blow: Blow, which: Which, options: Options) {
    let first = System::start(options).await;
    let count = count(&first, flow).await;
    let places: VecDeque<Place> = (0..count)
        .flat_map(|at| [(at, Side::Before), (at, Side::After)])
        .step_by(if let Which::OneIn(step) = which { step } else { 1 })
        // One more: it is past the end, or what was counted was not all.
        .chain((which == Which::Every).then_some((count, Side::Before)))
        .collect();
    let struck = Struck { flow, blow, count, places: Mutex::new(places) };
    let another = async || {
        let system = System::start(options).await;
        struck.work(&system).await
    };
    let done = if options.servers > 1 || struck.left() < 8 {
        struck.work(&first).await
    } else {
        let done = tokio::join!(struck.work(&first), another(), another());
        done.0 + done.1 + done.2
    };
    assert!(done > 0, "{flow:?} of {count} points was never struck");
}

/// How many points a flow has when nothing happens.
async fn count(system: &System, flow: Flow) -> usize {
    let nowhere = Point { subjects: flow.subjects(), at: usize::MAX, side: Side::Before };
    flow.prepare(system, "quiet").await;
    system.wire.arm(nowhere);
    flow.run(system, "quiet").await;
    let points = system.wire.disarm();
    flow.rest(system, "quiet").await;
    println!("{flow:?} has {} points: {points:#?}", points.len());
    points.len()
}

struct Struck {
    flow: Flow,
    blow: Blow,
    count: usize,
    places: Mutex<VecDeque<Place>>,
}

impl Struck {
    fn left(&self) -> usize {
        self.places.lock().unwrap().len()
    }

    fn next(&self) -> Option<Place> {
        self.places.lock().unwrap().pop_front()
    }

    /// Takes one place after another; at how many of them something stood.
    async fn work(&self, system: &System) -> usize {
        let mut struck = 0;
        while let Some((at, side)) = self.next() {
            let (flow, blow) = (self.flow, self.blow);
            let volume = format!("{side:?}-{at}").to_lowercase();
            let began = Instant::now();
            flow.prepare(system, &volume).await;
            system.wire.arm(Point { subjects: flow.subjects(), at, side });
            let tripped = strike(system, blow, flow.run(system, &volume)).await;
            system.wire.disarm();
            let (over, subject) = (began.elapsed(), tripped.as_ref().map(|at| &at.subject));
            system.healthy().await;
            flow.rest(system, &volume).await;
            let rest = began.elapsed();
            println!("{blow:?} {side:?} {at} {subject:?}: {over:?}, at rest {rest:?}");
            struck += usize::from(tripped.is_some());
            if tripped.is_some() && at >= self.count {
                assert!(at < POINTS_MAX, "{flow:?} does not end");
                let next = match side {
                    Side::Before => (at, Side::After),
                    Side::After => (at + 1, Side::Before),
                };
                self.places.lock().unwrap().push_back(next);
            }
        }
        struck
    }
}
