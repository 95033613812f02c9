//! What breaks, and mends.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use serde_json::{Value, json};

use super::operation::{index, millis};
use super::shape::{PLUGINS, Shape, VOLUMES};
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
    /// What connects two nats-servers, the lower number first.
    Link(usize, usize),
    /// The records of the volumes on the bus.
    Records,
}

impl Target {
    /// Every process, link and record there is in a system of this shape.
    pub fn all(shape: Shape) -> Vec<Self> {
        let pairs = |one| (one + 1..shape.servers).map(move |other| Self::Link(one, other));
        let links = (0..shape.servers).flat_map(pairs);
        Self::processes(shape).into_iter().chain(links).chain([Self::Records]).collect()
    }

    /// Every process there is in a system of this shape.
    pub fn processes(shape: Shape) -> Vec<Self> {
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
        !matches!(self, Self::Nats(_) | Self::Driver { .. } | Self::Link(..) | Self::Records)
    }

    /// Whether it decides by a clock of its own, which can be set.
    pub fn has_clock(self) -> bool {
        matches!(self, Self::Claim(_) | Self::Watcher(_) | Self::Agent(_))
    }

    /// Whether it stores something that must not be lost.
    pub fn has_disk(self) -> bool {
        matches!(self, Self::Nats(_) | Self::Agent(_))
    }

    /// The subject of a request that it answers, and that changes nothing without a body.
    pub fn flooded_at(self) -> Option<String> {
        match self {
            Self::Claim(_) => Some(verb::ClaimTake::subject(&Namespace::default())),
            Self::Registry(_) => Some(verb::NodeReport::subject(&())),
            _ => None,
        }
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
            Self::Link(one, other) => write!(f, "nats-{}--nats-{}", one + 1, other + 1),
            Self::Records => f.write_str("records"),
        }
    }
}

/// A fault at a target, for a while.
#[derive(Clone, PartialEq, Debug)]
pub struct Strike {
    /// The process that it hits.
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
    /// Its connections to the bus stay open, and what is sent is lost: it has to notice by itself,
    /// and reconnect.
    Loss,
    /// What passes to and from the bus is held up again and again, for a moment each.
    Lag,
    /// Its plugin misbehaves.
    Plugin(Planted),
    /// Its disk is full. An operator frees it and starts the process again.
    FullDisk,
    /// Its clock is off by so many milliseconds.
    Clock(i64),
    /// Two servers cannot reach each other.
    Part,
    /// The first of two servers hears the second, and is not heard by it; or the other way round.
    Mute {
        /// Whether the second is the one that is not heard.
        second: bool,
    },
    /// The agent's node goes. A person fences its storage and declares it gone. Then it is back.
    Gone(Absence),
    /// So many empty requests at once, without a deadline, whose caller waits for no answer.
    Flood(u64),
    /// A record that is none appears as a claim of a volume.
    Junk {
        /// Which of [`VOLUMES`](super::VOLUMES).
        volume: usize,
        /// Its text.
        text: &'static str,
    },
    /// The record of a claim is deleted while its workload runs. A person unmounts the volume.
    Lost {
        /// On which node.
        node: usize,
        /// What its allocs are called by.
        number: u64,
        /// Whether an older backup is restored: it has a claim that is gone, too.
        restored: bool,
    },
}

/// How a node goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// Its agent is killed, and started when the node is back.
    Killed,
    /// Its agent stops, and goes on with all that it had in hand.
    Stopped,
    /// Its agent runs, and the bus cannot be reached.
    CutOff,
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
            Self::FullDisk => "disk full",
            Self::Clock(_) => "clock set",
            Self::Part => "servers parted",
            Self::Mute { .. } => "servers parted one way",
            Self::Gone(Absence::Killed) => "node gone, agent killed",
            Self::Gone(Absence::Stopped) => "node gone, agent stopped",
            Self::Gone(Absence::CutOff) => "node gone, agent cut off",
            Self::Flood(_) => "flood",
            Self::Junk { .. } => "junk record",
            Self::Lost { restored: false, .. } => "record lost",
            Self::Lost { restored: true, .. } => "backup restored",
        }
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, fault, lasts } = self;
        write!(f, "{}: {target} for {lasts:?}", fault.kind())?;
        match fault {
            Fault::Plugin(planted) => write!(f, " {}", planted.entry),
            Fault::Clock(..)
            | Fault::Mute { .. }
            | Fault::Flood(_)
            | Fault::Junk { .. }
            | Fault::Lost { .. } => write!(f, " {fault:?}"),
            _ => Ok(()),
        }
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
        let strike = strike(&mut dice, target, shape);
        // Mended, it needs a moment to be hurt again rather than still.
        let free = suffers.get(&target).is_none_or(|until| *until < now);
        free.then(|| {
            let lasts = u64::try_from(strike.lasts.as_millis()).unwrap_or(u64::MAX);
            suffers.insert(target, now.saturating_add(lasts + 500));
            Event { at: Duration::from_millis(now), what: What::Strike(strike) }
        })
    })
}

fn strike(dice: &mut Dice, target: Target, shape: Shape) -> Strike {
    let fault = match target {
        Target::Link(..) if dice.percent(50) => Fault::Part,
        Target::Link(..) => Fault::Mute { second: dice.percent(50) },
        Target::Records if dice.percent(50) => Fault::Lost {
            node: index(dice, shape.nodes),
            number: dice.below(1 << 32),
            restored: dice.percent(50),
        },
        // A server that is killed twice may forget a purge that is in the file which it writes to.
        Target::Nats(_) if shape.is_purged_soon() => Fault::Pause,
        Target::Records => {
            Fault::Junk { volume: index(dice, VOLUMES.len()), text: JUNK[index(dice, JUNK.len())] }
        }
        _ => of_process(dice, target),
    };
    let long = dice.percent(25);
    let lasts = match fault {
        // So long that it meets a call.
        Fault::Plugin(_) => millis(dice, 1_000, 6_000),
        Fault::Loss | Fault::Flood(_) => Duration::ZERO,
        // Shorter than a request is waited for. A driver that was frozen for longer notes a call
        // that was given up and the next one in any order. The judge takes them for two at once.
        Fault::Pause if matches!(target, Target::Driver { .. }) => millis(dice, 50, 3_500),
        // Longer than a lease lasts, and than markers stay where they go soon.
        Fault::Pause if long => millis(dice, 4_000, 15_000),
        // So long that servers elect another leader.
        Fault::Part | Fault::Mute { .. } => millis(dice, 1_000, 15_000),
        Fault::Gone(_) | Fault::Lost { .. } => millis(dice, 500, 8_000),
        Fault::Clock(_) | Fault::FullDisk => millis(dice, 500, 6_000),
        _ => millis(dice, 50, if long { 6_000 } else { 1_500 }),
    };
    Strike { target, fault, lasts }
}

fn of_process(dice: &mut Dice, target: Target) -> Fault {
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
        FullDisk,
        Clock,
        Gone,
        Flood,
    }
    let choice = {
        let of = |is_so: bool, weight| if is_so { weight } else { 0 };
        let (client, agent) = (target.is_client(), matches!(target, Target::Agent(_)));
        let driver = matches!(target, Target::Driver { .. });
        dice.weigh(&[
            (30, Choice::Kill),
            (of(client, 10), Choice::Leave),
            (15, Choice::Pause),
            (of(client, 12), Choice::Cut),
            (of(client, 12), Choice::Silence),
            (of(client, 8), Choice::Loss),
            (of(client, 8), Choice::Lag),
            (of(driver, 80), Choice::Plugin),
            (of(target.has_disk(), 8), Choice::FullDisk),
            (of(target.has_clock(), 12), Choice::Clock),
            (of(agent, 12), Choice::Gone),
            (of(target.flooded_at().is_some(), 6), Choice::Flood),
        ])
    };
    match choice {
        Choice::Kill => Fault::Kill,
        Choice::Leave => Fault::Leave,
        Choice::Pause => Fault::Pause,
        Choice::Cut => Fault::Cut,
        Choice::Silence => Fault::Silence,
        Choice::Loss => Fault::Loss,
        Choice::Lag => Fault::Lag,
        Choice::Plugin => Fault::Plugin(planted(dice)),
        Choice::FullDisk => Fault::FullDisk,
        Choice::Clock => Fault::Clock(clock(dice, target)),
        Choice::Gone => {
            Fault::Gone(*dice.pick(&[Absence::Killed, Absence::Stopped, Absence::CutOff]))
        }
        Choice::Flood => Fault::Flood(dice.between(100, 3_000)),
    }
}

/// Clocks of services differ by less than the margin of the claim protocol (300 ms, see
/// [`Site`](crate::site::Site)). An agent's clock is measured: beyond it, its node takes nothing.
fn clock(dice: &mut Dice, target: Target) -> i64 {
    let most = if matches!(target, Target::Agent(_)) && dice.percent(50) { 5_000 } else { 120 };
    let by = i64::try_from(dice.between(20, most)).unwrap_or(0);
    if dice.percent(50) { -by } else { by }
}

/// What may stand where a record should: nothing, half of one, one of another kind, one of a newer
/// version.
const JUNK: [&str; 5] = [
    "",
    "{\"state\":\"taken\",\"node\":\"n1\"",
    "[]",
    "{\"plugin\":\"dev.berth\",\"capabilities\":[],\"schema\":1}",
    "{\"state\":\"shared\",\"node\":\"n1\",\"schema\":99}",
];

const RPCS: [Option<&str>; 17] = [
    Some("ControllerPublishVolume"),
    Some("ControllerUnpublishVolume"),
    Some("NodeStageVolume"),
    Some("NodePublishVolume"),
    Some("NodeUnpublishVolume"),
    Some("NodeUnstageVolume"),
    Some("ValidateVolumeCapabilities"),
    // Twice as often: there are few of these calls.
    Some("CreateVolume"),
    Some("CreateVolume"),
    Some("DeleteVolume"),
    Some("DeleteVolume"),
    Some("CreateSnapshot"),
    Some("DeleteSnapshot"),
    Some("CreateVolumeGroupSnapshot"),
    Some("DeleteVolumeGroupSnapshot"),
    Some("ControllerExpandVolume"),
    None,
];

/// Calls that a plugin may refuse, or have no room for: what is refused then is ended, or waits.
const REFUSED: [&str; 5] =
    ["CreateVolume", "DeleteVolume", "CreateSnapshot", "DeleteSnapshot", "ControllerExpandVolume"];

/// Codes that say that nothing was done.
const REFUSALS: [&str; 3] = ["INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"];

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
        (8, "plugin has no room"),
        (8, "plugin refuses"),
    ]);
    let refused = REFUSED[index(dice, REFUSED.len())];
    let refusal = REFUSALS[index(dice, REFUSALS.len())];
    let entry = match kind {
        "plugin delays" => json!({"when": when, "delay_ms": delay}),
        "plugin hangs" => json!({"when": when, "hang": true, "times": times}),
        "plugin crashes" => json!({"when": when, "crash": true, "times": 1}),
        "plugin loses the answer" => json!({"lose_answer": true, "times": 1}),
        "plugin has no room" => json!({"code": "RESOURCE_EXHAUSTED", "times": times}),
        "plugin refuses" => json!({"code": refusal, "times": times}),
        _ => json!({
            // ABORTED says that another call is under way, which after the work is none.
            "when": when, "code": OPEN[index(dice, if before { OPEN.len() } else { 4 })],
            "probability": f64::from(u32::try_from(share).unwrap_or(1)) / 10.0, "seed": seed,
        }),
    };
    let rpc = match kind {
        "plugin has no room" if before => Some("ControllerPublishVolume"),
        "plugin has no room" | "plugin refuses" => Some(refused),
        _ => rpc,
    };
    Planted { kind, entry: with_rpc(entry, rpc) }
}

fn with_rpc(mut entry: Value, rpc: Option<&str>) -> Value {
    if let (Some(fields), Some(rpc)) = (entry.as_object_mut(), rpc) {
        fields.insert("rpc".to_owned(), json!(rpc));
    }
    entry
}
