//! Good weather: from wherever the world has got to, it must find its way to rest when nothing
//! fails any more. A state from which it does not is stuck.

use std::collections::HashSet;
use std::fmt::Write as _;

use berth_domain::volume::State;

use crate::action::{Action, Ending};
use crate::fingerprint::{Quick, fingerprint};
use crate::model::Model;
use crate::safety::Breach;
use crate::scenario::{Attaches, Scenario};
use crate::world::{LONG_AGO, NODES, Node, World};

/// The longest way to rest.
const STEPS_MAX: usize = 200;

/// Who still wants the volume, if anybody does; all others have ended.
type Wish = Option<usize>;

/// What is wished for, and the states from which it is known to come true.
pub struct Weather {
    wishes: Vec<Wish>,
    calm: HashSet<(Wish, u64), Quick>,
}

impl Weather {
    /// All allocs end, and the volume is free; or all but one end, and that one gets it.
    pub fn new(scenario: &Scenario) -> Self {
        let stays = (0..scenario.allocs.len()).map(Some);
        Self { wishes: std::iter::once(None).chain(stays).collect(), calm: HashSet::default() }
    }

    /// Whether the world comes to rest, when what is on its way arrives, and when it is lost.
    pub fn comes_to_rest(&mut self, model: &mut Model, world: &World) -> Result<(), Breach> {
        for at in 0..self.wishes.len() {
            let wish = self.wishes[at];
            for mut world in beginnings(world) {
                for _ in 0..STEPS_MAX {
                    if !self.calm.insert((wish, fingerprint(&world))) {
                        break;
                    }
                    match step(model, &world, wish)? {
                        Some((_, after)) => world = after,
                        None if is_at_rest(&world, wish) => break,
                        None => return Err(stuck(wish)),
                    }
                }
            }
        }
        Ok(())
    }

    /// The way on from a world that does not come to rest.
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
                        Ok(None) if is_at_rest(&world, *wish) => break,
                        Ok(None) | Err(_) => return story,
                    }
                }
            }
        }
        String::new()
    }
}

/// The world with all that is on its way, and without.
fn beginnings(world: &World) -> [World; 2] {
    let arriving = World { attempts_left: None, ..world.clone() };
    let mut losing = arriving.clone();
    losing.answers.clear();
    losing.grants.clear();
    losing.calls.retain(|call| call.at_work);
    [arriving, losing]
}

fn stuck(wish: Wish) -> Breach {
    Breach::new(match wish {
        Some(alloc) => format!("stuck: a{} never gets the volume", alloc + 1),
        None => "stuck: the volume never becomes free".to_owned(),
    })
}

/// The next thing that happens when all goes well; none when nothing is left to happen.
fn step(model: &mut Model, world: &World, wish: Wish) -> Result<Option<(Action, World)>, Breach> {
    for action in fair_actions(model.scenario(), world, wish) {
        let after = model.next(world, action)?;
        if after != *world {
            return Ok(Some((action, after)));
        }
    }
    Ok(None)
}

/// In the order of how soon they would happen.
fn fair_actions(scenario: &Scenario, world: &World, wish: Wish) -> Vec<Action> {
    let mut actions = Vec::new();
    let busy = (0..NODES).filter(|node| world.nodes[*node].busy.is_some());
    actions.extend(busy.map(|node| Action::Node(node, Ending::Done)));
    for (at, call) in world.calls.iter().enumerate() {
        if !call.at_work {
            actions.push(Action::Deliver(at));
        } else if call.kind.is_controller() {
            actions.push(Action::Controller(at, Ending::Done));
        }
    }
    actions.extend((0..world.answers.len()).map(Action::Report));
    let idle = |alloc: usize| world.nodes[scenario.allocs[alloc].node].busy.is_none();
    let deliverable = world.grants.iter().enumerate().filter(|(_, grant)| idle(grant.alloc));
    actions.extend(deliverable.map(|(at, _)| Action::Mount(at)));
    for alloc in 0..scenario.allocs.len() {
        if wish == Some(alloc) {
            actions.push(Action::Take(alloc, scenario.attaches != Attaches::Never));
        }
        if world.record.claims[alloc].is_some() {
            actions.push(Action::Begin(alloc, wish == Some(alloc)));
        }
    }
    let attempts = world.record.claims.iter().flatten().filter_map(|claim| claim.attempt);
    if attempts.into_iter().any(|attempt| attempt.left > LONG_AGO) {
        actions.push(Action::Tick);
    }
    actions
}

fn is_at_rest(world: &World, wish: Wish) -> bool {
    let claims = world.record.claims.iter().enumerate();
    let claims_are_wanted = claims.into_iter().all(|(alloc, claim)| match claim {
        Some(claim) => wish == Some(alloc) && claim.state == State::Taken,
        None => wish != Some(alloc),
    });
    let uses_are_wanted = world.nodes.iter().all(|node| {
        let mut uses = node.mounted.iter().zip(&node.intents).enumerate();
        uses.all(|(alloc, (mounted, intent))| wish == Some(alloc) || (!mounted && intent.is_none()))
    });
    let is_used = world.nodes.iter().any(|node| node.mounted.contains(&true));
    let is_left = world.attached.contains(&true) || world.nodes.iter().any(Node::in_use);
    let is_quiet = world.calls.is_empty() && world.nodes.iter().all(|node| node.busy.is_none());
    let as_wished = if wish.is_some() { is_used } else { !is_left };
    claims_are_wanted && uses_are_wanted && is_quiet && as_wished
}
