//! Histories of a CO that follows its scripts, with plugins that fail in every way.
//!
//! The CO repeats a call until the answer is OK, as CSI requires; a script itself may be wrong. The
//! plugins do whatever they are asked; the world records the real state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;

use serde_json::{Value, json};

use super::log::*;
use crate::{Finding, judge_files};

pub const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A step of a script, at a node.
pub type Step = (&'static str, usize);

/// The calls that one part of the CO makes for one volume, in order.
#[derive(Clone, Debug)]
pub struct Script {
    pub volume: String,
    pub mode: &'static str,
    pub steps: VecDeque<Step>,
}

/// Decisions, drawn one by one; after the last one, every call succeeds.
struct Dice<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl Dice<'_> {
    fn draw(&mut self, sides: usize) -> usize {
        usize::from(*self.bytes.next().unwrap_or(&0)) % sides
    }
}

/// The real state of a volume.
#[derive(Default)]
struct Truth {
    attachments: u64,
    attached: BTreeMap<usize, u64>,
    staged: BTreeSet<usize>,
    published: BTreeSet<usize>,
}

/// A part of the CO that follows a script, and the call that it waits for.
struct Actor {
    script: Script,
    /// By node: the context that attaching returned last.
    contexts: BTreeMap<usize, Value>,
    in_flight: Option<Call>,
}

struct Call {
    begin: Value,
    step: Step,
    is_gone: bool,
}

struct World<'a> {
    dice: Dice<'a>,
    now_us: u64,
    truths: BTreeMap<String, Truth>,
    /// How often each node's instance was started.
    starts: [u64; NODES.len()],
    logs: [Vec<Value>; NODES.len()],
}

/// The judge's findings after these scripts ran side by side.
pub fn play(scripts: Vec<Script>, decisions: &[u8]) -> Vec<Finding> {
    let mut world = World {
        dice: Dice { bytes: decisions.iter() },
        now_us: 0,
        truths: BTreeMap::new(),
        starts: [0; NODES.len()],
        logs: Default::default(),
    };
    (0..NODES.len()).for_each(|node| world.start(node));
    let actor = |script| Actor { script, contexts: BTreeMap::new(), in_flight: None };
    let mut actors: Vec<_> = scripts.into_iter().map(actor).collect();
    for turn in 0.. {
        let (dice, busy) = (&mut world.dice, |actor: &Actor| !actor.is_done());
        let unfinished: Vec<usize> = (0..actors.len()).filter(|at| busy(&actors[*at])).collect();
        let Some(at) = unfinished.get((turn + dice.draw(3)) % unfinished.len().max(1)) else {
            break;
        };
        world.advance(&mut actors, *at);
    }
    let dir = tempfile::tempdir().unwrap();
    let paths = NODES.map(|node| dir.path().join(node));
    for (path, log) in paths.iter().zip(&world.logs) {
        fs::write(path, text(log)).unwrap();
    }
    judge_files(&paths).unwrap()
}

impl Actor {
    fn is_done(&self) -> bool {
        self.in_flight.is_none() && self.script.steps.is_empty()
    }

    fn has_controller_call(&self, volume: &str) -> bool {
        let call = self.in_flight.as_ref().filter(|_| self.script.volume == volume);
        call.is_some_and(|call| !call.step.0.starts_with("Node"))
    }
}

impl World<'_> {
    fn tick(&mut self) -> u64 {
        self.now_us += 1;
        self.now_us
    }

    fn write(&mut self, node: usize, line: Value) {
        self.logs[node].push(line);
    }

    fn advance(&mut self, actors: &mut [Actor], at: usize) {
        if actors[at].in_flight.is_some() {
            return self.go_on(actors, at);
        }
        let Some(step) = actors[at].script.steps.front().copied() else { return };
        let volume = &actors[at].script.volume;
        let is_node_call = step.0.starts_with("Node");
        if is_node_call || !actors.iter().any(|other| other.has_controller_call(volume)) {
            let begin = self.begin(&actors[at], step);
            actors[at].in_flight = Some(Call { begin, step, is_gone: false });
        }
    }

    fn begin(&mut self, actor: &Actor, (rpc, node): Step) -> Value {
        // Any instance may serve a controller call.
        let at = if rpc.starts_with("Node") { node } else { self.dice.draw(NODES.len()) };
        let now = self.tick();
        let begin = json!({
            "entry": "begin", "seq": now, "begin_us": now, "node_id": NODES[at],
            "instance": format!("{}@{}", NODES[at], self.starts[at]), "rpc": rpc,
            "args": args(actor, rpc, node),
        });
        self.write(at, begin.clone());
        begin
    }

    /// Decides what happens to a call in flight.
    fn go_on(&mut self, actors: &mut [Actor], at: usize) {
        let Some(call) = &mut actors[at].in_flight else { return };
        let node = NODES.iter().position(|node| call.begin["node_id"] == *node).unwrap();
        match self.dice.draw(16) {
            9 => self.end(&mut actors[at], "UNAVAILABLE", "none", Value::Null),
            10 => self.end(&mut actors[at], "UNAVAILABLE", "done", "after".into()),
            11 => self.end(&mut actors[at], "OK", "done", "lost".into()),
            12 => self.end(&mut actors[at], "INTERNAL", "unknown", Value::Null),
            13 if !call.is_gone => {
                call.is_gone = true;
                let mut gone = call.begin.clone();
                gone["entry"] = "gone".into();
                gone["gone_us"] = self.tick().into();
                self.write(node, gone);
            }
            // The CO retries, and is answered that the first call is not done yet.
            13 => {
                let step = call.step;
                if step.0.starts_with("Node") {
                    let begin = self.begin(&actors[at], step);
                    self.write_end(&begin, "ABORTED", "none", Value::Null, Value::Null);
                }
            }
            14 => self.crash(actors, node),
            15 => {}
            _ => self.end(&mut actors[at], "OK", "done", Value::Null),
        }
    }

    /// Ends the actor's call with this code and effect.
    fn end(&mut self, actor: &mut Actor, code: &str, effect: &str, fault: Value) {
        let Some(call) = actor.in_flight.take() else { return };
        let (rpc, node) = call.step;
        if effect == "done" || effect == "unknown" && self.dice.draw(2) == 0 {
            self.happen(&actor.script.volume, call.step);
        }
        let truth = self.truths.entry(actor.script.volume.clone()).or_default();
        let number = truth.attached.get(&node).copied().unwrap_or_default();
        let context = json!({"device": number.to_string()});
        let answer = match rpc {
            ATTACH => json!({"publish_context": context}),
            CREATE => json!({"volume": {"volume_id": actor.script.volume}}),
            SNAPSHOT => json!({"snapshot": {"snapshot_id": call.begin["args"]["name"]}}),
            GROUP => {
                let args = &call.begin["args"];
                json!({"group_snapshot": group(&args["name"], &args["source_volume_ids"])})
            }
            _ => Value::Null,
        };
        let is_known_success = code == "OK" && fault != "lost" && !call.is_gone;
        self.write_end(&call.begin, code, effect, fault, answer);
        if is_known_success {
            actor.script.steps.pop_front();
            if rpc == ATTACH {
                actor.contexts.insert(node, context);
            }
        }
    }

    fn write_end(&mut self, begin: &Value, code: &str, effect: &str, fault: Value, answer: Value) {
        let now = self.tick();
        let mut end = begin.clone();
        let more = json!({
            "entry": "end", "end_us": now, "code": code, "effect": effect, "fault": fault,
        });
        end = with(end, more);
        end["kernel"] = kernel(&end);
        if code == "OK" && !answer.is_null() {
            end["answer"] = answer;
        }
        let node = NODES.iter().position(|node| begin["node_id"] == *node).unwrap();
        self.write(node, end);
    }

    /// Gives the call its effect.
    fn happen(&mut self, volume: &str, (rpc, node): Step) {
        let truth = self.truths.entry(volume.to_owned()).or_default();
        match rpc {
            ATTACH if !truth.attached.contains_key(&node) => {
                truth.attachments += 1;
                truth.attached.insert(node, truth.attachments);
            }
            DETACH => _ = truth.attached.remove(&node),
            STAGE => _ = truth.staged.insert(node),
            UNSTAGE => _ = truth.staged.remove(&node),
            PUBLISH => _ = truth.published.insert(node),
            UNPUBLISH => _ = truth.published.remove(&node),
            _ => {}
        }
    }

    /// The instance of a node is killed, and another one started.
    fn crash(&mut self, actors: &mut [Actor], node: usize) {
        for actor in actors {
            let call = actor.in_flight.take_if(|call| call.begin["node_id"] == NODES[node]);
            if let Some(call) = call
                && self.dice.draw(2) == 0
            {
                self.happen(&actor.script.volume, call.step);
            }
        }
        self.start(node);
    }

    fn start(&mut self, node: usize) {
        self.starts[node] += 1;
        let holds = self.truths.iter().filter_map(|(volume, truth)| {
            let staged = truth.staged.contains(&node).then(|| format!("/stage/{volume}"));
            let published = truth.published.contains(&node);
            let targets = published.then(|| format!("/target/{volume}"));
            let targets: Vec<_> = targets.into_iter().collect();
            let holds = json!({"volume_id": volume, "staging": staged, "targets": targets});
            (staged.is_some() || published).then_some(holds)
        });
        let holds: Vec<_> = holds.collect();
        let now = self.tick();
        let start = json!({
            "entry": "start", "start_us": now, "node_id": NODES[node],
            "instance": format!("{}@{}", NODES[node], self.starts[node]),
            "attach": true, "stage": true, "holds": holds,
        });
        self.write(node, start);
    }
}

fn args(actor: &Actor, rpc: &str, node: usize) -> Value {
    let Script { volume, mode: access, .. } = &actor.script;
    let about = json!({"volume_id": volume});
    let used = || with(mode(access), about.clone());
    let empty = json!({});
    let context = actor.contexts.get(&node).unwrap_or(&empty);
    let staging = json!({"staging_target_path": format!("/stage/{volume}")});
    let target = json!({"target_path": format!("/target/{volume}")});
    let stage = || with(with(used(), staging.clone()), json!({"publish_context": context}));
    match rpc {
        CREATE => json!({"name": volume, "capacity_range": {"required_bytes": 1}}),
        ATTACH => with(used(), json!({"node_id": NODES[node]})),
        DETACH => with(about, json!({"node_id": NODES[node]})),
        STAGE => stage(),
        PUBLISH => with(stage(), target),
        UNSTAGE => with(about, staging),
        UNPUBLISH => with(about, target),
        SNAPSHOT => json!({"name": format!("of-{volume}"), "source_volume_id": volume}),
        DELETE_SNAPSHOT => json!({"snapshot_id": format!("of-{volume}")}),
        MODIFY => with(about, json!({"mutable_parameters": {"tier": "gold"}})),
        GROUP => json!({"name": format!("group-of-{volume}"), "source_volume_ids": [volume]}),
        DELETE_GROUP => {
            let group = format!("group-of-{volume}");
            json!({"snapshot_ids": [member(&group, volume)], "group_snapshot_id": group})
        }
        _ => about,
    }
}
