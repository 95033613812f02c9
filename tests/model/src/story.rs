//! Actions and worlds as text, for a reader who wants to know how a breach came about.

use std::fmt;

use crate::action::{Action, Ending};
use crate::model::Model;
use crate::world::{
    Answer, Attempt, AttemptId, Call, Claim, Grant, Node, NodeCall, NodeCallKind, NodeCaller,
    Presence, Spec, World,
};

/// The name of an alloc or a node, by its number.
struct Name(char, usize);

fn alloc(alloc: usize) -> Name {
    Name('a', alloc)
}

fn node(node: usize) -> Name {
    Name('n', node)
}

impl Model {
    /// The action as text. The world is the one before the action.
    pub fn describe(&self, world: &World, action: Action) -> String {
        match action {
            Action::Tick => "time passes".to_owned(),
            Action::Take(at, true) => format!("{} asks for the volume", alloc(at)),
            Action::Take(at, false) => {
                format!("{} asks for the volume; no controller is needed", alloc(at))
            }
            Action::Release(at) => format!("the claim of {} is given up", alloc(at)),
            Action::Begin(at, true) => {
                format!("a worker looks after the claim of {}, which lives", alloc(at))
            }
            Action::Begin(at, false) => {
                format!("a worker looks after the claim of {}, which has ended", alloc(at))
            }
            Action::GiveUp(at) => format!("nobody has answered for {}", alloc(at)),
            Action::Deliver(at) if world.calls[at].asks => {
                format!("the other node is asked what it is at, before {}", world.calls[at])
            }
            Action::Deliver(at) => format!("{} arrives", world.calls[at]),
            Action::Repeat(at) => format!("{} arrives, and is on its way again", world.calls[at]),
            Action::Controller(at, ending) => {
                format!("the plugin ends {} {ending}", world.calls[at])
            }
            Action::Report(at) => format!("{} is recorded", world.answers[at]),
            Action::Mount(at) => format!("{} arrives", world.grants[at]),
            Action::Node(at, ending) => {
                let call = world.nodes[at].busy.map(|call| call.to_string()).unwrap_or_default();
                format!("the plugin on {} ends {call} {ending}", node(at))
            }
            Action::Crash(at) => format!("the agent of {} crashes and starts again", node(at)),
            Action::Reboot(at) => format!("{} reboots", node(at)),
            Action::LoseJournal(at) => format!("the agent of {} loses its journal", node(at)),
            Action::Off(at) => format!("{} goes off, or is fenced", node(at)),
            Action::Gather(at) => format!("somebody makes sure that {} cannot write", node(at)),
            Action::Prove(at) => format!("somebody says by this that {} is gone", node(at)),
            Action::Return(at, true) => format!("{} is back after a boot", node(at)),
            Action::Return(at, false) => format!("{} is back as it went", node(at)),
            Action::Undo(at) => format!("{} undoes what it has, or has done so", node(at)),
            Action::Fence(at) => format!("{} learns which claims are older than this", node(at)),
            Action::SeeProof(at) => {
                format!("a service sees the claim of {}, and that its node is gone", alloc(at))
            }
            Action::UseProof(at) => format!("it uses the proof for the claim of {}", alloc(at)),
            Action::Look => "a second service looks at the record".to_owned(),
            Action::Late(at, ask) => {
                format!("it decides on what it saw: {ask:?}, {}", alloc(at))
            }
            Action::Confirm(at) => {
                format!("a person says that the storage has detached {}", alloc(at))
            }
            Action::Register => "the volume is registered or updated".to_owned(),
            Action::Deregister(false) => "the volume is deregistered".to_owned(),
            Action::Deregister(true) => "the volume is deregistered by force".to_owned(),
            Action::LoseController => "the plugin's controller is gone for good".to_owned(),
            Action::LosePlugin(at) => format!("the plugin on {} is gone for good", node(at)),
        }
    }

    /// The world as text: the record, the messages under way, and the facts.
    pub fn picture(&self, world: &World) -> String {
        let mut parts = Vec::new();
        for (at, claim) in world.record.claims.iter().enumerate() {
            parts.extend(claim.map(|claim| format!("{}: {claim}", alloc(at))));
        }
        if parts.is_empty() {
            parts.push("no claims".to_owned());
        }
        if world.record.spec != Spec::Open {
            parts.insert(0, format!("{:?}", world.record.spec));
        }
        for (at, _) in world.proven.iter().enumerate().filter(|(_, proven)| **proven) {
            parts.push(format!("a proof for {}", alloc(at)));
        }
        for call in &world.calls {
            let stands = match (call.at_work, call.behind) {
                (false, _) if call.old => "sent, and old to its executor".to_owned(),
                (false, _) if call.asks => "is to be made".to_owned(),
                (false, _) => "sent".to_owned(),
                (true, 0) => "at work".to_owned(),
                (true, behind) => format!("waits behind {behind}"),
            };
            parts.push(format!("{call} {stands}"));
        }
        parts.extend(world.controller_lost.then(|| "no controller".to_owned()));
        parts.extend(world.answers.iter().map(Answer::to_string));
        parts.extend(world.grants.iter().map(Grant::to_string));
        for (at, there) in world.nodes.iter().enumerate() {
            let facts = facts(there, world.attached[at]);
            if !facts.is_empty() {
                parts.push(format!("{}: {}", node(at), facts.join(", ")));
            }
        }
        parts.join("; ")
    }
}

fn facts(node: &Node, attached: bool) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(
        (node.presence != Presence::Present).then(|| format!("{:?}", node.presence).to_lowercase()),
    );
    facts.extend(node.gone.then(|| "counts as gone".to_owned()));
    facts.extend(node.evidence.then(|| "known to be off".to_owned()));
    facts.extend(node.plugin_lost.then(|| "without plugin".to_owned()));
    facts.extend(attached.then(|| "attached".to_owned()));
    facts.extend(node.staged.then(|| "staged".to_owned()));
    for (at, mounted) in node.mounted.iter().enumerate() {
        facts.extend(mounted.then(|| format!("mounted for {}", alloc(at))));
    }
    if let Some(call) = node.busy {
        let forgotten =
            if call.caller == NodeCaller::Nobody { ", forgotten by its agent" } else { "" };
        facts.push(format!("at {call}{forgotten}"));
    }
    facts
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.0, self.1 + 1)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.state)?;
        if self.exhausted {
            f.write_str(", without room")?;
        }
        match self.attempt {
            None => Ok(()),
            Some(Attempt { kind, left: left @ 0.., .. }) => {
                write!(f, " ({kind}, {left} ticks left)")
            }
            Some(Attempt { kind, left, .. }) => write!(f, " ({kind}, {} ticks late)", -left),
        }
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Old { "old " } else { "" })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} for {}", self.attempt, self.kind, alloc(self.alloc))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}answer {:?} for {}", self.attempt, self.outcome, alloc(self.alloc))
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grant for {}", alloc(self.alloc))
    }
}

impl fmt::Display for NodeCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.kind, alloc(self.alloc))
    }
}

impl fmt::Display for NodeCallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stage => "stage",
            Self::Publish => "publish",
            Self::Unpublish => "unpublish",
            Self::Unstage => "unstage",
        })
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "well",
            Self::DoneButError => "with an error, though it acted",
            Self::Error => "with an error, and did nothing",
            Self::Refused => "by refusing it for good",
            Self::NoRoom => "for want of room",
        })
    }
}
