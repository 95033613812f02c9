//! Points of flows, struck one after another.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use berth_harness::proxy::{Passed, Point, Proxy, Side};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};

use super::blow::{Blow, strike};
use super::flow::Flow;

/// A flow of more writes and calls than this does not end.
const POINTS_MAX: usize = 60;

/// More places than this are struck on several systems.
const SEVERAL: usize = 4;

/// Which points are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Every,
    /// One in so many, from the first on, on either side in turn.
    OneIn(usize),
    /// Where the flow turns, before and after.
    Turns,
}

/// A place in a flow.
struct Place {
    flow: Flow,
    point: Point,
    /// Whether the point certainly has a value.
    sure: bool,
    /// Whether it is past all that was counted.
    past: bool,
}

/// Strikes at points of flows, each time with a volume of its own. Most of the time is spent
/// waiting, so several systems are struck side by side.
pub async fn at_points(flows: &[Flow], blow: Blow, which: Which, options: Options) {
    if or_skip("real mounts") {
        Box::pin(strike_all(flows, blow, which, options)).await;
    }
}

async fn strike_all(flows: &[Flow], blow: Blow, which: Which, options: Options) {
    let first = System::start(options).await;
    let mut places = VecDeque::new();
    for flow in flows {
        places.extend(flow.places(which, &first).await);
    }
    let struck = Struck { blow, places: Mutex::new(places) };
    let another = async || {
        let system = System::start(options).await;
        struck.work(&system).await
    };
    let several = struck.left() > SEVERAL;
    let second = async || if several { another().await } else { 0 };
    // What takes time on three servers is their elections; and three times three are many.
    let third = async || if several && options.servers == 1 { another().await } else { 0 };
    let done = tokio::join!(struck.work(&first), second(), third());
    assert!(done.0 + done.1 + done.2 > 0, "{flows:?} were never struck");
}

impl Flow {
    async fn places(self, which: Which, system: &System) -> Vec<Place> {
        let step = match which {
            Which::Every => 1,
            Which::OneIn(step) => step,
            Which::Turns => {
                let turn = |(side, subject, at): (Side, &str, usize)| {
                    let subjects = vec![subject.replace("{}", &self.volume(at, side))];
                    let point = Point { subjects, at, side };
                    Place { flow: self, point, sure: true, past: false }
                };
                return self.turns().into_iter().map(turn).collect();
            }
        };
        let count = self.count(system).await;
        (0..count)
            .flat_map(|at| [(at, Side::Before), (at, Side::After)])
            .step_by(step)
            .map(|(at, side)| self.place(at, side, false))
            // One more: it is past the end, or what was counted was not all.
            .chain((which == Which::Every).then(|| self.place(count, Side::Before, true)))
            .collect()
    }

    fn place(self, at: usize, side: Side, past: bool) -> Place {
        let point = Point { subjects: self.subjects(), at, side };
        Place { flow: self, point, sure: false, past }
    }

    /// The volume it is tried with there.
    fn volume(self, at: usize, side: Side) -> String {
        format!("{self:?}-{side:?}-{at}").to_lowercase()
    }

    /// How many points it has when nothing happens.
    async fn count(self, system: &System) -> usize {
        let quiet = format!("{self:?}-quiet").to_lowercase();
        self.prepare(system, &quiet).await;
        system.wire.arm(self.place(usize::MAX, Side::Before, true).point);
        self.run(system, &quiet).await;
        let points = system.wire.disarm();
        self.rest(system, &quiet).await;
        println!("{self:?} has {} points: {points:#?}", points.len());
        points.len()
    }
}

struct Struck {
    blow: Blow,
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
        while let Some(Place { flow, point, sure, past }) = self.next() {
            let (blow, at, side) = (self.blow, point.at, point.side);
            let volume = flow.volume(at, side);
            let began = Instant::now();
            flow.prepare(system, &volume).await;
            system.wire.arm(point);
            let tripped = strike(system, blow, flow.run(system, &volume)).await;
            system.wire.disarm();
            let (over, subject) = (began.elapsed(), tripped.as_ref().map(|at| &at.subject));
            if let Some(Passed { cable, .. }) = &tripped {
                // A server takes half a minute to see that a connection is lost, and has it share
                // in the requests until then. The flow is over in spite of that; what follows, and
                // the next point, is to be without.
                system.cables(system.part_of(cable)).iter().for_each(Proxy::tell_lost);
            }
            flow.rest(system, &volume).await;
            let rest = began.elapsed();
            println!("{blow:?} {volume} {subject:?}: {over:?}, at rest {rest:?}");
            assert!(tripped.is_some() || !sure, "{flow:?} does not turn there: {volume}");
            struck += usize::from(tripped.is_some());
            if past && tripped.is_some() {
                assert!(at < POINTS_MAX, "{flow:?} does not end");
                let next = match side {
                    Side::Before => flow.place(at, Side::After, true),
                    Side::After => flow.place(at + 1, Side::Before, true),
                };
                self.places.lock().unwrap().push_back(next);
            }
        }
        struck
    }
}
