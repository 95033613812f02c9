//! Good weather: from each state, the world must come to rest when nothing fails any more. A state
//! from which it does not is stuck.

use std::collections::HashSet;
use std::fmt::Write as _;

use berth_domain::volume::State;

use crate::action::{Action, Ending};
use crate::fingerprint::{Quick, fingerprint};
use crate::model::Model;
use crate::safety::Breach;
use crate::scenario::{Attaches, Scenario};
use crate::world::{Claim, LONG_AGO, NODES, Node, Presence, Spec, World};

/// The most actions on a way to rest.
const STEPS_MAX: usize = 200;

/// The alloc that still wants the volume, if any. All other allocs have ended.
type Wanting = Option<usize>;

/// The possible ends, and the states from which each is known to be reached.
pub struct Weather {
    wishes: Vec<Wanting>,
    calm: HashSet<(Wanting, u64), Quick>,
}

impl Weather {
    /// In one end all allocs have ended, and the volume is free. In the others, one alloc stays and
    /// gets the volume.
    pub fn new(scenario: &Scenario) -> Self {
        let stays = (0..scenario.allocs.len()).map(Some);
        Self { wishes: std::iter::once(None).chain(stays).collect(), calm: HashSet::default() }
    }

    /// Checks that the world comes to rest both if the messages under way arrive, and if they are
    /// lost.
    pub fn comes_to_rest(&mut self, model: &mut Model, world: &World) -> Result<(), Breach> {
        for at in 0..self.wishes.len() {
            let wish = self.wishes[at];
            for mut world in beginnings(world) {
                let mut path = Vec::new();
                loop {
                    let state = fingerprint(&world);
                    // A state that led to rest earlier does so again. A state that was already on
                    // this way closes a circle.
                    if path.contains(&state) || path.len() > STEPS_MAX {
                        return Err(stuck(wish));
                    }
                    if !self.calm.insert((wish, state)) {
                        break;
                    }
                    path.push(state);
                    match step(model, &world, wish)? {
                        Some((_, after)) => world = after,
                        None if is_at_rest(model, &world, wish) => break,
                        None => return Err(stuck(wish)),
                    }
                }
            }
        }
        Ok(())
    }

    /// The actions from a world that does not come to rest, as text.
    pub fn story(&self, model: &mut Model, world: &World) -> String {
        for wish in &self.wishes {
            for mut world in beginnings(world) {
                let mut story = "     Then all goes well:\n".to_owned();
                for _ in 0..STEPS_MAX {
                    // Writing to a String cannot fail.
                    let _ = writeln!(story, "        {}", model.picture(&world));
                    match step(model, &world, *wish) {
                        Ok(Some((action, after))) => {
                            let _ = writeln!(story, "     {}", model.describe(&world, action));
                            world = after;
                        }
                        Ok(None) if is_at_rest(model, &world, *wish) => break,
                        Ok(None) | Err(_) => return story,
                    }
                }
            }
        }
        String::new()
    }
}

/// The world with all messages under way, and without them.
fn beginnings(world: &World) -> [World; 2] {
    let arriving = World { attempts_left: None, ..world.clone() };
    let mut losing = arriving.clone();
    losing.answers.clear();
    losing.grants.clear();
    losing.calls.retain(|call| call.at_work);
    [arriving, losing]
}

fn stuck(wish: Wanting) -> Breach {
    Breach::new(match wish {
        Some(alloc) => format!("stuck: a{} never gets the volume", alloc + 1),
        None => "stuck: the volume never becomes free".to_owned(),
    })
}

/// The next action when all goes well; `None` when no action is left.
fn step(
    model: &mut Model,
    world: &World,
    wish: Wanting,
) -> Result<Option<(Action, World)>, Breach> {
    for action in fair_actions(model.scenario(), world, wish) {
        if model.is_in_vain(world, action)? {
            continue;
        }
        let after = model.next(world, action)?;
        if after != *world {
            return Ok(Some((action, after)));
        }
    }
    Ok(None)
}

/// The actions in the order in which they would happen.
fn fair_actions(scenario: &Scenario, world: &World, wish: Wanting) -> Vec<Action> {
    let mut actions = Vec::new();
    let wished = wish.map(|alloc| scenario.allocs[alloc].node);
    for (at, node) in world.nodes.iter().enumerate() {
        match node.presence {
            Presence::Present => {}
            // A node that no alloc wants does not return.
            Presence::Off if wished == Some(at) => actions.push(Action::Return(at, false)),
            Presence::Off => actions.extend([Action::Gather(at), Action::Prove(at)]),
            Presence::Back => actions.push(Action::Undo(at)),
            Presence::Undone => actions.push(Action::Fence(at)),
        }
    }
    let busy = (0..NODES).filter(|node| world.nodes[*node].busy.is_some());
    actions.extend(busy.map(|node| {
        let lost = world.nodes[node].plugin_lost;
        Action::Node(node, if lost { Ending::Error } else { Ending::Done })
    }));
    for (at, call) in world.calls.iter().enumerate() {
        if !call.at_work {
            actions.push(Action::Deliver(at));
        } else if call.kind.is_controller() && call.behind == 0 {
            actions.push(Action::Controller(at, Ending::Done));
        }
    }
    actions.extend((0..world.answers.len()).map(Action::Report));
    let idle = |alloc: usize| {
        let node = &world.nodes[scenario.allocs[alloc].node];
        node.busy.is_none() && node.presence == Presence::Present
    };
    let deliverable = world.grants.iter().enumerate().filter(|(_, grant)| idle(grant.alloc));
    actions.extend(deliverable.map(|(at, _)| Action::Mount(at)));
    for alloc in 0..scenario.allocs.len() {
        let node = &world.nodes[scenario.allocs[alloc].node];
        let claim = world.record.claims[alloc];
        if claim.is_some() && node.gone {
            actions.extend([Action::SeeProof(alloc), Action::UseProof(alloc)]);
        }
        // An agent that will not follow a grant asks to release it.
        if claim.is_some_and(|claim| claim.epoch <= node.told_to_detach[alloc]) {
            actions.push(Action::Release(alloc));
        }
        if claim.is_some() && world.record.spec == Spec::Closing {
            actions.push(Action::Begin(alloc, false));
        }
        if wish == Some(alloc) {
            actions.push(Action::Take(alloc, scenario.attaches != Attaches::Never));
        }
        // An alloc that waits in the queue, or for the controller, retries in time.
        let waits = |claim: Claim| matches!(claim.state, State::Waiting | State::Publishing);
        if claim.is_some_and(|claim| wish != Some(alloc) || !waits(claim)) {
            actions.push(Action::Begin(alloc, wish == Some(alloc)));
        }
    }
    match world.record.spec {
        Spec::Closing => actions.push(Action::Deregister(true)),
        Spec::Gone if wish.is_some() => actions.push(Action::Register),
        Spec::Open | Spec::Gone => {}
    }
    let attempts = world.record.claims.iter().flatten().filter_map(|claim| claim.attempt);
    if attempts.into_iter().any(|attempt| attempt.left > LONG_AGO) {
        actions.push(Action::Tick);
    }
    actions
}

/// Whether the wanted end is reached, except for claims that wait for a lost plugin and for the
/// volume that they block.
fn is_at_rest(model: &Model, world: &World, wish: Wanting) -> bool {
    let waits = |alloc: usize| {
        let claim = world.record.claims[alloc];
        claim.is_some_and(|claim| model.waits_for_the_lost(world, alloc, claim))
    };
    let is = |alloc: usize, state: State| {
        world.record.claims[alloc].is_some_and(|claim| claim.state == state)
    };
    let is_blocked = (0..world.record.claims.len()).any(waits);
    let claims = world.record.claims.iter().enumerate();
    let claims_are_wanted = claims.into_iter().all(|(alloc, claim)| match claim {
        _ if waits(alloc) => true,
        Some(claim) => {
            let in_line = claim.state == State::Waiting && is_blocked;
            wish == Some(alloc) && (claim.state == State::Taken || in_line)
        }
        None => wish != Some(alloc),
    });
    let there = || world.nodes.iter().filter(|node| !node.is_fenced());
    let uses_are_wanted = there().all(|node| {
        let mut uses = node.mounted.iter().zip(&node.intents).enumerate();
        uses.all(|(alloc, (mounted, intent))| {
            wish == Some(alloc) || waits(alloc) || (!mounted && intent.is_none())
        })
    });
    let is_left = world.attached.contains(&true) || there().any(Node::in_use);
    let is_quiet = world.calls.is_empty() && world.nodes.iter().all(|node| node.busy.is_none());
    let as_wished = match wish {
        Some(alloc) => {
            let node = &world.nodes[model.node_of(alloc)];
            let is_used = node.mounted[alloc] && !node.is_fenced();
            let in_line = is(alloc, State::Waiting);
            // A lost plugin mounts nothing again.
            is_used || waits(alloc) || in_line || node.plugin_lost
        }
        None => !is_left || is_blocked,
    };
    claims_are_wanted && uses_are_wanted && is_quiet && as_wished
}
