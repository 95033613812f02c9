//! A node's agent (rules 10 and 11), and its plugin's node service.
//!
//! The agent holds the volume's lock while its plugin call is unanswered. After a crash it does not
//! know of that call: then the plugin answers ABORTED, as CSI requires.

use crate::action::Ending;
use crate::controller::{answer, outcome};
use crate::model::Model;
use crate::safety::Breach;
use crate::scenario::Mutation;
use crate::world::{
    ALLOCS, Call, Node, NodeCall, NodeCallKind as Kind, NodeCaller, Outcome, World,
};
use berth_domain::volume::{CallKind, State};

impl Model {
    /// A grant reaches the agent, which journals its intent and begins to mount.
    pub(crate) fn mount(&mut self, world: &mut World, at: usize) {
        let grant = world.grants[at];
        let node_at = self.node_of(grant.alloc);
        let published = self.others_on(node_at, grant.alloc).any(|other| {
            let node = &world.nodes[node_at];
            node.intents[other].is_some() && node.mounted[other]
        });
        let node = &mut world.nodes[node_at];
        let told_to_detach = node.told_to_detach[grant.alloc] >= grant.epoch;
        let superseded = node.intents[grant.alloc].is_some_and(|epoch| epoch > grant.epoch);
        if told_to_detach || superseded {
            return;
        }
        let is_there = node.intents[grant.alloc].is_some() && node.mounted[grant.alloc];
        node.intents[grant.alloc] = Some(grant.epoch);
        if is_there {
            return;
        }
        let kind = if published { Kind::Publish } else { Kind::Stage };
        node.busy = Some(NodeCall { kind, alloc: grant.alloc, caller: NodeCaller::Mount });
    }

    /// The call `agent.detach` reaches the agent. Returns whether the agent accepts it.
    pub(crate) fn detach(&mut self, world: &mut World, call: Call) -> bool {
        let node = &mut world.nodes[self.node_of(call.alloc)];
        let newer = node.intents[call.alloc].is_some_and(|epoch| epoch > call.epoch)
            && !self.scenario.is(Mutation::AnyDetach);
        if node.busy.is_some() || newer || node.is_fenced() {
            return false;
        }
        if !self.scenario.is(Mutation::NoEpoch) {
            node.told_to_detach[call.alloc] = node.told_to_detach[call.alloc].max(call.epoch);
        }
        node.busy =
            Some(NodeCall { kind: Kind::Unpublish, alloc: call.alloc, caller: NodeCaller::Detach });
        true
    }

    /// The plugin's node service acts or not, and reports success or not.
    pub(crate) fn end_node_call(
        &mut self,
        world: &mut World,
        node_at: usize,
        ending: Ending,
    ) -> Result<(), Breach> {
        let Some(call) = world.nodes[node_at].busy.take() else { return Ok(()) };
        if ending.acted() {
            self.check_newer(world, node_at, call)?;
            self.act(world, node_at, call)?;
        }
        let goes_on = ending == Ending::Done || self.is_done_by_word(world, node_at, call);
        if goes_on && self.scenario.is(Mutation::CountUses) {
            count(&mut world.nodes[node_at], call);
        }
        match (call.caller, call.kind) {
            (NodeCaller::Mount, Kind::Stage) if goes_on => {
                world.nodes[node_at].busy = Some(NodeCall { kind: Kind::Publish, ..call });
            }
            // The intent stays, because the agent does not know whether the volume is mounted.
            (NodeCaller::Mount | NodeCaller::Nobody, _) => {}
            (NodeCaller::Detach, Kind::Unpublish)
                if goes_on && self.is_last(world, node_at, call) =>
            {
                world.nodes[node_at].busy = Some(NodeCall { kind: Kind::Unstage, ..call });
            }
            (NodeCaller::Detach, _) => {
                if goes_on {
                    world.nodes[node_at].intents[call.alloc] = None;
                }
                let came = if goes_on { Outcome::Done } else { outcome(ending) };
                self.end_detach(world, node_at, Some(came));
            }
        }
        Ok(())
    }

    /// Rule 18: the plugin answered with an error, and the agent finds no mount.
    fn is_done_by_word(&self, world: &World, node_at: usize, call: NodeCall) -> bool {
        let carried =
            self.detaching(world, node_at).is_some_and(|at| world.calls[at].confirmed_unstaged);
        let node = &world.nodes[node_at];
        let is_left = match call.kind {
            Kind::Unpublish => node.mounted[call.alloc],
            Kind::Unstage => node.staged,
            Kind::Stage | Kind::Publish => return false,
        };
        let carried = carried && call.caller == NodeCaller::Detach;
        carried && (!is_left || self.scenario.is(Mutation::BlindWord))
    }

    /// Safety rule 8: a call for an earlier claim removes nothing of the present claim.
    fn check_newer(&self, world: &World, node_at: usize, now: NodeCall) -> Result<(), Breach> {
        let call = self.detaching(world, node_at).map(|at| world.calls[at]);
        let claim = world.record.claims[now.alloc].filter(|claim| claim.state == State::Taken);
        let is_old = claim.zip(call).is_some_and(|(claim, call)| call.epoch < claim.epoch);
        if now.kind == Kind::Unpublish && is_old && world.nodes[node_at].mounted[now.alloc] {
            return Err(Breach::new("safety 8: an old call unpublished what a later claim has"));
        }
        Ok(())
    }

    fn act(&self, world: &mut World, node_at: usize, call: NodeCall) -> Result<(), Breach> {
        let claim = world.record.claims[call.alloc];
        let attached = world.attached[self.scenario.attached_at(node_at)];
        let attached = attached || !claim.is_some_and(|claim| claim.controller);
        let node = &mut world.nodes[node_at];
        match call.kind {
            Kind::Stage | Kind::Publish if !attached => {
                let what = format!("{} of a volume that is not attached", call.kind);
                return Err(Breach::new(what));
            }
            Kind::Publish if !node.staged => {
                return Err(Breach::new("publish of a volume that is not staged"));
            }
            Kind::Unstage if node.mounted.contains(&true) => {
                return Err(Breach::new("unstage while it is published"));
            }
            Kind::Stage => node.staged = true,
            Kind::Publish => node.mounted[call.alloc] = true,
            Kind::Unpublish => node.mounted[call.alloc] = false,
            Kind::Unstage => node.staged = false,
        }
        Ok(())
    }

    /// Rule 11: no other alloc has an intent or a mount on the node.
    fn is_last(&self, world: &World, node_at: usize, call: NodeCall) -> bool {
        let node = &world.nodes[node_at];
        let mut others = self.others_on(node_at, call.alloc);
        if self.scenario.is(Mutation::CountUses) {
            return node.uses == 0;
        }
        self.scenario.is(Mutation::CarelessUnstage)
            || !others.any(|other| node.mounted[other] || node.intents[other].is_some())
    }

    /// The call `agent.detach` that works on the node ends, answered or not.
    pub(crate) fn end_detach(&self, world: &mut World, node_at: usize, came: Option<Outcome>) {
        if let Some(at) = self.detaching(world, node_at) {
            let call = world.calls.remove(at);
            if let Some(came) = came {
                answer(world, call, came);
            }
        }
    }

    /// The call `agent.detach` that works on the node.
    fn detaching(&self, world: &World, node_at: usize) -> Option<usize> {
        world.calls.iter().position(|call| {
            call.at_work && call.kind == CallKind::NodeDetach && self.node_of(call.alloc) == node_at
        })
    }

    /// The agent ends with its own work. The plugin goes on with its call.
    pub(crate) fn crash(&self, world: &mut World, node_at: usize) {
        if let Some(call) = &mut world.nodes[node_at].busy {
            call.caller = NodeCaller::Nobody;
        }
        self.end_detach(world, node_at, None);
    }

    /// A boot removes all mounts. The journal is on a disk and stays.
    pub(crate) fn reboot(&self, world: &mut World, node_at: usize) {
        self.end_detach(world, node_at, None);
        let Node { intents, told_to_detach, ended, plugin_lost, .. } = world.nodes[node_at];
        let kept = Node { intents, told_to_detach, ended, plugin_lost, ..Node::default() };
        world.nodes[node_at] = kept;
    }

    /// A journal is lost only while no agent runs. The process that sent a request is therefore
    /// gone, and a grant under way is ignored (rule 10). The next process refuses calls from before
    /// its start (rule 4), because it does not know whose its mounts are. An agent with a journal
    /// refuses them as well; the model leaves that out, which is the harder world.
    pub(crate) fn lose_journal(&self, world: &mut World, node_at: usize) {
        self.crash(world, node_at);
        if !self.scenario.is(Mutation::NoBeginning) {
            let is_here = |call: &&mut Call| self.node_of(call.alloc) == node_at;
            for call in world.calls.iter_mut().filter(is_here) {
                call.old |= call.kind == CallKind::NodeDetach && !call.at_work;
            }
        }
        world.nodes[node_at].intents = [None; ALLOCS];
        world.nodes[node_at].told_to_detach = world.nodes[node_at].ended;
        let allocs = self.scenario.allocs;
        world.grants.retain(|grant| allocs[grant.alloc].node != node_at);
    }
}

/// The mutation of an agent that counts uses instead of looking at the mounts.
fn count(node: &mut Node, call: NodeCall) {
    match call.kind {
        Kind::Publish => node.uses = node.uses.saturating_add(1),
        Kind::Unpublish => node.uses = node.uses.saturating_sub(1),
        Kind::Stage | Kind::Unstage => {}
    }
}
