//! What breaks, and mends.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::operation::{index, millis};
use super::shape::{PLUGINS, Shape};
use super::{Event, What};
use crate::dice::Dice;

/// One process. Numbers count from 0; what is shown counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// A nats-server.
    Nats(usize),
    /// A claim service.
    Claim(usize),
    /// A plugin registry.
    Registry(usize),
    /// A volumewatcher.
    Watcher(usize),
    /// A collector.
    Gc(usize),
    /// The agent of a node.
    Agent(usize),
    /// The driver of a plugin on a node.
    Driver {
        /// Which of [`PLUGINS`].
        plugin: usize,
        /// Where.
        node: usize,
    },
}

impl Target {
    /// Everything there is in a system of this shape.
    pub fn all(shape: Shape) -> Vec<Self> {
        let replicas = |of: fn(usize) -> Self| (0..shape.replicas).map(of);
        let nodes = || 0..shape.nodes;
        let drivers = |plugin| nodes().map(move |node| Self::Driver { plugin, node });
        (0..shape.servers)
            .map(Self::Nats)
            .chain(replicas(Self::Claim))
            .chain(replicas(Self::Registry))
            .chain(replicas(Self::Watcher))
            .chain(replicas(Self::Gc))
            .chain(nodes().map(Self::Agent))
            .chain((0..PLUGINS.len()).flat_map(drivers))
            .collect()
    }

    /// Whether it talks to the bus as a client.
    pub fn is_client(self) -> bool {
        !matches!(self, Self::Nats(_) | Self::Driver { .. })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nats(at) => write!(f, "nats-{}", at + 1),
            Self::Claim(at) => write!(f, "claim-{}", at + 1),
            Self::Registry(at) => write!(f, "plugin-registry-{}", at + 1),
            Self::Watcher(at) => write!(f, "volumewatcher-{}", at + 1),
            Self::Gc(at) => write!(f, "gc-{}", at + 1),
            Self::Agent(node) => write!(f, "agent-{}", node + 1),
            Self::Driver { plugin, node } => write!(f, "driver-{}-{}", plugin + 1, node + 1),
        }
    }
}

/// A fault at a target, for a while.
#[derive(Clone, PartialEq, Debug)]
pub struct Strike {
    /// Who suffers it.
    pub target: Target,
    /// What it is.
    pub fault: Fault,
    /// How long.
    pub lasts: Duration,
}

/// What breaks.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// SIGKILL; started again after.
    Kill,
    /// SIGTERM, as an operator ends it; started again after.
    Leave,
    /// SIGSTOP; SIGCONT after.
    Pause,
    /// Its connections to the bus break, and new ones at once.
    Cut,
    /// Its connections to the bus stand, and nothing passes until they are mended.
    Silence,
    /// Its connections to the bus stand, and what is sent vanishes for ever: it has to notice by
    /// itself, and connect anew.
    Loss,
    /// What passes to and from the bus is held up again and again, for a moment each.
    Lag,
    /// Its plugin misbehaves.
    Plugin(Planted),
}

/// A fault of the development driver.
#[derive(Clone, PartialEq, Debug)]
pub struct Planted {
    /// What kind, for counting.
    pub kind: &'static str,
    /// As the driver's fault file has it.
    pub entry: Value,
}

impl Fault {
    /// What kind it is, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Leave => "terminate",
            Self::Pause => "pause",
            Self::Cut => "connections cut",
            Self::Silence => "connections half-open",
            Self::Loss => "connections lost",
            Self::Lag => "connections delayed",
            Self::Plugin(planted) => planted.kind,
        }
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, fault, lasts } = self;
        write!(f, "{}: {target} for {lasts:?}", fault.kind())?;
        if let Fault::Plugin(planted) = fault { write!(f, " {}", planted.entry) } else { Ok(()) }
    }
}

/// All strikes of a seed, without end. A target that still suffers is passed over.
pub(super) fn all(seed: u64, shape: Shape) -> impl Iterator<Item = Event> {
    let mut dice = Dice::new(seed, "faults");
    let targets = Target::all(shape);
    let mut suffers: BTreeMap<Target, u64> = BTreeMap::new();
    let mut now = 2_000;
    (0..).filter_map(move |_| {
        now += dice.between(100, 1_700);
        let target = *dice.pick(&targets);
        let strike = strike(&mut dice, target);
        // Mended, it needs a moment to be hurt again rather than still.
        let free = suffers.get(&target).is_none_or(|until| *until < now);
        free.then(|| {
            let lasts = u64::try_from(strike.lasts.as_millis()).unwrap_or(u64::MAX);
            suffers.insert(target, now.saturating_add(lasts + 500));
            Event { at: Duration::from_millis(now), what: What::Strike(strike) }
        })
    })
}

fn strike(dice: &mut Dice, target: Target) -> Strike {
    #[derive(Clone, Copy)]
    enum Choice {
        Kill,
        Leave,
        Pause,
        Cut,
        Silence,
        Loss,
        Lag,
        Plugin,
    }
    let (client, driver) = (target.is_client(), matches!(target, Target::Driver { .. }));
    let of_client = |weight| if client { weight } else { 0 };
    let choice = dice.weigh(&[
        (30, Choice::Kill),
        (of_client(10), Choice::Leave),
        (15, Choice::Pause),
        (of_client(12), Choice::Cut),
        (of_client(12), Choice::Silence),
        (of_client(8), Choice::Loss),
        (of_client(8), Choice::Lag),
        (if driver { 80 } else { 0 }, Choice::Plugin),
    ]);
    let long = dice.percent(25);
    let lasts = millis(dice, 50, if long { 6_000 } else { 1_500 });
    let fault = match choice {
        Choice::Kill => Fault::Kill,
        Choice::Leave => Fault::Leave,
        Choice::Pause => Fault::Pause,
        Choice::Cut => Fault::Cut,
        Choice::Silence => Fault::Silence,
        Choice::Loss => Fault::Loss,
        Choice::Lag => Fault::Lag,
        Choice::Plugin => Fault::Plugin(planted(dice)),
    };
    let lasts = match fault {
        // So long that it meets a call.
        Fault::Plugin(_) => millis(dice, 1_000, 6_000),
        Fault::Loss => Duration::ZERO,
        _ => lasts,
    };
    Strike { target, fault, lasts }
}

const RPCS: [Option<&str>; 8] = [
    Some("ControllerPublishVolume"),
    Some("ControllerUnpublishVolume"),
    Some("NodeStageVolume"),
    Some("NodePublishVolume"),
    Some("NodeUnpublishVolume"),
    Some("NodeUnstageVolume"),
    Some("ValidateVolumeCapabilities"),
    None,
];

/// Codes that leave it open what was done. One that says "nothing was done and never will be" after
/// it was done would be a lie that no CO can see through.
const OPEN: [&str; 5] = ["UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED", "UNKNOWN", "ABORTED"];

fn planted(dice: &mut Dice) -> Planted {
    let rpc = RPCS[index(dice, RPCS.len())];
    let before = dice.percent(50);
    let when = if before { "before" } else { "after" };
    let (delay, times, share) = (dice.between(50, 3_000), dice.between(1, 3), dice.between(1, 9));
    let seed = dice.below(1 << 32);
    let kind = dice.weigh(&[
        (20, "plugin delays"),
        (15, "plugin hangs"),
        (25, "plugin fails"),
        (20, "plugin crashes"),
        (15, "plugin loses the answer"),
        (5, "plugin has no room"),
    ]);
    let entry = match kind {
        "plugin delays" => json!({"when": when, "delay_ms": delay}),
        "plugin hangs" => json!({"when": when, "hang": true, "times": times}),
        "plugin crashes" => json!({"when": when, "crash": true, "times": 1}),
        "plugin loses the answer" => json!({"lose_answer": true, "times": 1}),
        "plugin has no room" => json!({"code": "RESOURCE_EXHAUSTED", "times": times}),
        _ => json!({
            // ABORTED says that another call is under way, which after the work is none.
            "when": when, "code": OPEN[index(dice, if before { OPEN.len() } else { 4 })],
            "probability": f64::from(u32::try_from(share).unwrap_or(1)) / 10.0, "seed": seed,
        }),
    };
    let rpc = if kind == "plugin has no room" { Some("ControllerPublishVolume") } else { rpc };
    Planted { kind, entry: with_rpc(entry, rpc) }
}

fn with_rpc(mut entry: Value, rpc: Option<&str>) -> Value {
    if let (Some(fields), Some(rpc)) = (entry.as_object_mut(), rpc) {
        fields.insert("rpc".to_owned(), json!(rpc));
    }
    entry
}
