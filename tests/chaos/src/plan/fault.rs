//! The faults: what is broken, for how long, and how it is mended.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use serde_json::{Value, json};

use super::operation::{index, millis};
use super::shape::{PLUGINS, Shape, VOLUMES};
use super::{Event, EventKind};
use crate::dice::Dice;

/// What a fault hits. Numbers count from 0; the log shows them from 1.
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
        /// The index in [`PLUGINS`].
        plugin: usize,
        /// The number of the node.
        node: usize,
    },
    /// The connection between two nats-servers. The lower number comes first.
    Link(usize, usize),
    /// The records of the volumes on the bus.
    Records,
}

impl Target {
    /// Every process, link and set of records in a system of this shape.
    pub fn all(shape: Shape) -> Vec<Self> {
        let pairs = |one| (one + 1..shape.servers).map(move |other| Self::Link(one, other));
        let links = (0..shape.servers).flat_map(pairs);
        Self::processes(shape).into_iter().chain(links).chain([Self::Records]).collect()
    }

    /// Every process in a system of this shape.
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

    /// Whether the process is a client of the bus.
    pub fn is_client(self) -> bool {
        !matches!(self, Self::Nats(_) | Self::Driver { .. } | Self::Link(..) | Self::Records)
    }

    /// Whether the process decides by a clock that a fault can set.
    pub fn has_clock(self) -> bool {
        matches!(self, Self::Claim(_) | Self::Watcher(_) | Self::Agent(_))
    }

    /// Whether the process stores something that must not be lost.
    pub fn has_disk(self) -> bool {
        matches!(self, Self::Nats(_) | Self::Agent(_))
    }

    /// The subject of a request that the process answers, and that changes nothing if its body
    /// is empty.
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

/// A fault that hits a target for a while.
#[derive(Clone, PartialEq, Debug)]
pub struct Strike {
    /// What the fault hits.
    pub target: Target,
    /// The kind of fault.
    pub fault: Fault,
    /// How long the fault lasts before it is mended.
    pub lasts: Duration,
}

/// The kinds of faults.
#[derive(Clone, PartialEq, Debug)]
pub enum Fault {
    /// The process gets SIGKILL, and is started again afterwards.
    Kill,
    /// The process gets SIGTERM, as from an operator, and is started again afterwards.
    Leave,
    /// The process gets SIGSTOP, and SIGCONT afterwards.
    Pause,
    /// The connections of the process to the bus break. New connections work at once.
    Cut,
    /// The connections to the bus stay open, and nothing passes until they are mended.
    Silence,
    /// The connections to the bus stay open, and everything that is sent is lost. The process
    /// must notice that by itself and connect again.
    Loss,
    /// Traffic to and from the bus is held up again and again, each time for a moment.
    Lag,
    /// The plugin gives wrong answers or delays calls.
    Plugin(Planted),
    /// The disk of the process is full. An operator frees it and starts the process again.
    FullDisk,
    /// The clock of the process is off by this many milliseconds.
    Clock(i64),
    /// Two servers cannot reach each other.
    Part,
    /// One of two servers does not hear the other, which hears it.
    Mute {
        /// Whether the second server is the one that is not heard.
        second: bool,
    },
    /// The agent's node goes. A person fences its storage and declares it gone. Later it comes
    /// back.
    Gone(Absence),
    /// This many empty requests arrive at once, without a deadline. Their caller waits for no
    /// answer.
    Flood(u64),
    /// A value that is no record appears among the claims of a volume.
    Junk {
        /// The index in [`VOLUMES`](super::VOLUMES).
        volume: usize,
        /// The text of the value.
        text: &'static str,
    },
    /// The record of a claim is deleted while its workload runs. A person unmounts the volume.
    Lost {
        /// The number of the node.
        node: usize,
        /// The number in the names of its allocs.
        number: u64,
        /// Whether an older backup is restored as well. It contains a claim that is gone by
        /// now.
        restored: bool,
    },
}

/// How a node becomes absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absence {
    /// Its agent is killed, and started when the node is back.
    Killed,
    /// Its agent stops, and continues with all its calls when the node is back.
    Stopped,
    /// Its agent runs, and cannot reach the bus.
    CutOff,
}

/// A fault that is planted in the development driver.
#[derive(Clone, PartialEq, Debug)]
pub struct Planted {
    /// The kind of fault, by which faults are counted.
    pub kind: &'static str,
    /// Its entry in the driver's fault file.
    pub entry: Value,
}

impl Fault {
    /// The kind of fault, by which faults are counted.
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
        // A target that was mended needs a moment before the next fault, or the two would be one
        // fault.
        let free = suffers.get(&target).is_none_or(|until| *until < now);
        free.then(|| {
            let lasts = u64::try_from(strike.lasts.as_millis()).unwrap_or(u64::MAX);
            suffers.insert(target, now.saturating_add(lasts + 500));
            Event { at: Duration::from_millis(now), kind: EventKind::Strike(strike) }
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
        // A server that is killed twice may forget a purge in the file that it is writing to.
        Target::Nats(_) if shape.is_purged_soon() => Fault::Pause,
        Target::Records => {
            Fault::Junk { volume: index(dice, VOLUMES.len()), text: JUNK[index(dice, JUNK.len())] }
        }
        _ => of_process(dice, target),
    };
    let long = dice.percent(25);
    let lasts = match fault {
        // Long enough that a call meets the fault.
        Fault::Plugin(_) => millis(dice, 1_000, 6_000),
        Fault::Loss | Fault::Flood(_) => Duration::ZERO,
        // This is shorter than the timeout of a request. A driver that was frozen for longer
        // logs a call that was given up and the next call in any order, and the judge takes them
        // for two calls at once.
        Fault::Pause if matches!(target, Target::Driver { .. }) => millis(dice, 50, 3_500),
        // This is longer than a lease, and longer than markers stay where they are purged soon.
        Fault::Pause if long => millis(dice, 4_000, 15_000),
        // Long enough that the servers elect another leader.
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
        let weight_if = |is_so: bool, weight| if is_so { weight } else { 0 };
        let (client, agent) = (target.is_client(), matches!(target, Target::Agent(_)));
        let driver = matches!(target, Target::Driver { .. });
        dice.weigh(&[
            (30, Choice::Kill),
            (weight_if(client, 10), Choice::Leave),
            (15, Choice::Pause),
            (weight_if(client, 12), Choice::Cut),
            (weight_if(client, 12), Choice::Silence),
            (weight_if(client, 8), Choice::Loss),
            (weight_if(client, 8), Choice::Lag),
            (weight_if(driver, 80), Choice::Plugin),
            (weight_if(target.has_disk(), 8), Choice::FullDisk),
            (weight_if(target.has_clock(), 12), Choice::Clock),
            (weight_if(agent, 12), Choice::Gone),
            (weight_if(target.flooded_at().is_some(), 6), Choice::Flood),
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

/// A clock of a service is off by less than the margin of the claim protocol (300 ms, see
/// [`Site`](crate::site::Site)). An agent measures its clock: if it is off by more than that, its
/// node takes no claim.
fn clock(dice: &mut Dice, target: Target) -> i64 {
    let limit_ms = if matches!(target, Target::Agent(_)) && dice.percent(50) { 5_000 } else { 120 };
    let offset_ms = i64::try_from(dice.between(20, limit_ms)).unwrap_or(0);
    if dice.percent(50) { -offset_ms } else { offset_ms }
}

/// Values that may stand where a record should: nothing, half a record, a record of another
/// kind, and a record of a newer version.
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
    // It counts twice because there are few of these calls.
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

/// Calls that a plugin may refuse, or have no room for. A refused call ends, or waits.
const REFUSED: [&str; 5] =
    ["CreateVolume", "DeleteVolume", "CreateSnapshot", "DeleteSnapshot", "ControllerExpandVolume"];

/// Status codes that say that the call did nothing.
const REFUSALS: [&str; 3] = ["INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"];

/// Status codes that leave open whether the call did something. A code that says "nothing was
/// done and never will be" after the work was done would be a lie, which no CO can see through.
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
            // ABORTED says that another call is under way. That is not so once the work is done.
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
