//! Hits processes with faults at one point of a flow after another.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use berth_harness::proxy::{Passed, Point, Proxy, Side};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};

use super::blow::{Blow, strike};
use super::flow::Flow;

/// Most writes and calls of a flow. A flow with more is taken to repeat for ever.
const POINTS_MAX: usize = 60;

/// Most points that one system runs alone. More are spread over several systems.
const POINTS_OF_ONE_SYSTEM: usize = 4;

/// The points that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointChoice {
    Every,
    /// Every n-th point, from the first, alternately before and after its message.
    OneIn(usize),
    /// The turning points of the flow, each before and after its message.
    Turns,
}

/// A point of a flow at which a fault is due.
struct FaultPoint {
    flow: Flow,
    point: Point,
    /// Whether the flow certainly reaches the point.
    sure: bool,
    /// Whether the point comes after all counted points.
    past: bool,
}

/// Runs a fault at points of flows, each with its own volume. Most of the time is spent waiting, so
/// several systems run in parallel.
pub async fn at_points(flows: &[Flow], blow: Blow, choice: PointChoice, options: Options) {
    if or_skip("real mounts") {
        Box::pin(strike_all(flows, blow, choice, options)).await;
    }
}

async fn strike_all(flows: &[Flow], blow: Blow, choice: PointChoice, options: Options) {
    let first = System::start(options).await;
    let mut points = VecDeque::new();
    for flow in flows {
        points.extend(flow.fault_points(choice, &first).await);
    }
    let queue = PointQueue { blow, points: Mutex::new(points) };
    let start_and_strike = async || {
        let system = System::start(options).await;
        queue.strike_each(&system).await
    };
    let several = queue.remaining() > POINTS_OF_ONE_SYSTEM;
    let second = async || if several { start_and_strike().await } else { 0 };
    // Elections take most of the time on three servers, and three systems of three servers are too
    // many.
    let third = async || if several && options.servers == 1 { start_and_strike().await } else { 0 };
    let struck = tokio::join!(queue.strike_each(&first), second(), third());
    assert!(struck.0 + struck.1 + struck.2 > 0, "{flows:?} were never struck");
}

impl Flow {
    async fn fault_points(self, choice: PointChoice, system: &System) -> Vec<FaultPoint> {
        let step = match choice {
            PointChoice::Every => 1,
            PointChoice::OneIn(step) => step,
            PointChoice::Turns => {
                let fault_point = |(side, subject, at): (Side, &str, usize)| {
                    let subjects = vec![subject.replace("{}", &self.volume(at, side))];
                    let point = Point { subjects, at, side };
                    FaultPoint { flow: self, point, sure: true, past: false }
                };
                return self.turns().into_iter().map(fault_point).collect();
            }
        };
        let count = self.count(system).await;
        (0..count)
            .flat_map(|at| [(at, Side::Before), (at, Side::After)])
            .step_by(step)
            .map(|(at, side)| self.fault_point(at, side, false))
            // One more point is tried. If the flow reaches it, the count was too low.
            .chain(
                (choice == PointChoice::Every).then(|| self.fault_point(count, Side::Before, true)),
            )
            .collect()
    }

    fn fault_point(self, at: usize, side: Side, past: bool) -> FaultPoint {
        let point = Point { subjects: self.subjects(), at, side };
        FaultPoint { flow: self, point, sure: false, past }
    }

    fn name(self) -> String {
        match self {
            Self::Storage(flow) => format!("{flow:?}"),
            other => format!("{other:?}"),
        }
    }

    /// The id of the volume for this point.
    fn volume(self, at: usize, side: Side) -> String {
        format!("{}-{side:?}-{at}", self.name()).to_lowercase()
    }

    /// The number of points of the flow without faults.
    async fn count(self, system: &System) -> usize {
        let quiet = format!("{}-quiet", self.name()).to_lowercase();
        self.prepare(system, &quiet).await;
        system.wire.arm(self.fault_point(usize::MAX, Side::Before, true).point);
        self.run(system, &quiet).await;
        let points = system.wire.disarm();
        self.check_end(system, &quiet).await;
        println!("{self:?} has {} points: {points:#?}", points.len());
        points.len()
    }
}

/// The points that are still to be hit by one fault.
struct PointQueue {
    blow: Blow,
    points: Mutex<VecDeque<FaultPoint>>,
}

impl PointQueue {
    fn remaining(&self) -> usize {
        self.points.lock().unwrap().len()
    }

    fn next(&self) -> Option<FaultPoint> {
        self.points.lock().unwrap().pop_front()
    }

    /// Takes points until none is left. Returns at how many of them a message triggered the fault.
    async fn strike_each(&self, system: &System) -> usize {
        let mut struck = 0;
        while let Some(FaultPoint { flow, point, sure, past }) = self.next() {
            let (blow, at, side) = (self.blow, point.at, point.side);
            let volume = flow.volume(at, side);
            let began = Instant::now();
            flow.prepare(system, &volume).await;
            system.wire.arm(point);
            let tripped = strike(system, blow, Box::pin(flow.run(system, &volume))).await;
            system.wire.disarm();
            let (flow_took, subject) = (began.elapsed(), tripped.as_ref().map(|at| &at.subject));
            if let Some(Passed { cable, .. }) = &tripped {
                // A server takes half a minute to notice a lost connection, and sends requests
                // there until then. The flow has ended in spite of that. The following steps, and
                // the next point, must not be affected.
                system.cables(system.part_of(cable)).iter().for_each(Proxy::tell_lost);
            }
            flow.check_end(system, &volume).await;
            let took = began.elapsed();
            println!("{blow:?} {volume} {subject:?}: {flow_took:?}, at rest {took:?}");
            assert!(
                tripped.is_some() || !sure,
                "{flow:?} does not send the message of its turning point: {volume}"
            );
            struck += usize::from(tripped.is_some());
            if past && tripped.is_some() {
                assert!(at < POINTS_MAX, "{flow:?} does not end");
                let next = match side {
                    Side::Before => flow.fault_point(at, Side::After, true),
                    Side::After => flow.fault_point(at + 1, Side::Before, true),
                };
                self.points.lock().unwrap().push_back(next);
            }
        }
        struck
    }
}
