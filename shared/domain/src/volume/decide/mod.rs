//! The one function that decides, and below it one file for each kind of command.
//!
//! **Never** is used by what it decides on: the record, the command and the context.

mod attempts;
mod busy;
mod checks;
mod claim;
mod due;
mod register;
mod secrets_due;
mod storage;

pub use busy::BusyCall;
pub use due::{Due, DueCall, DueFacts};
pub use secrets_due::SecretCall;
pub use storage::NextStorageCall;

use super::call::CallOwner;
use super::command::Command;
use super::context::Context;
use super::record::{Claim, Volume};
use super::refusal::Refusal;
use super::transition::{Step, Write};

/// What `command` does to `volume`, or why it may not.
///
/// Total: every command in every state gives a step or a named refusal. Pure: the same arguments
/// give the same answer. The caller writes [`Step::write`] under the guard that the volume's
/// subtree is still at the revision it was loaded at, and only then makes [`Step::call`], once.
pub fn step(volume: &Volume, command: &Command, context: &Context) -> Result<Step, Refusal> {
    let mut step = decide(volume, command, context)?;
    if let Some(Write::PutClaim(_, claim)) = &mut step.write {
        name_volume(volume, claim, context);
    }
    Ok(step)
}

/// Adds to a claim which volume it is of, where an earlier version did not: if the claim is younger
/// than the registration, it was granted for this volume.
fn name_volume(volume: &Volume, claim: &mut Claim, context: &Context) {
    let registered = volume.spec.as_ref().map(|spec| spec.create_index);
    let is_younger = registered.is_some_and(|at| at > 0 && claim.epoch > at);
    if is_younger && claim.handle().is_none() {
        *claim = claim.clone().of_volume(context.handle.own.as_ref());
    }
}

fn decide(volume: &Volume, command: &Command, context: &Context) -> Result<Step, Refusal> {
    match command {
        Command::Register(spec) => register::register(volume, spec, context),
        Command::Reserve => register::reserve(volume, context),
        Command::Deregister { force, reason } => {
            register::deregister(volume, *force, reason, context)
        }
        Command::Take(take) => claim::take(volume, take, context),
        Command::Change { take, unmounted } => claim::change(volume, take, *unmounted, context),
        Command::Recover(lost) => claim::recover(volume, lost, context),
        Command::Release { alloc, epoch, reason } => {
            claim::release(volume, alloc, *epoch, reason, context)
        }
        Command::Confirm { alloc, epoch, call, confirmation } => {
            claim::confirm(volume, alloc, *epoch, *call, confirmation, context)
        }
        Command::Begin(begin) => match &begin.owner {
            CallOwner::Claim(alloc) => claim::begin_release(volume, alloc, begin, context),
            CallOwner::Volume => storage::begin_operation(volume, begin, context),
            CallOwner::Snapshot(snapshot) => {
                storage::begin_snapshot(volume, snapshot, begin, context)
            }
        },
        Command::Answer { owner, attempt, outcome, worker } => match owner {
            CallOwner::Claim(alloc) => {
                claim::answer_claim(volume, alloc, attempt, outcome, worker.as_ref(), context)
            }
            CallOwner::Volume => storage::answer_operation(volume, attempt, outcome, context),
            CallOwner::Snapshot(snapshot) => {
                storage::answer_snapshot(volume, snapshot, attempt, outcome, context)
            }
        },
        Command::Observe { alloc, epoch, mount, node } => {
            claim::observe(volume, alloc, *epoch, mount, node.as_ref())
        }
        Command::Create(spec) => storage::create(volume, spec, context),
        Command::Delete { reason } => storage::delete(volume, reason, context),
        Command::Expand { required_bytes, limit_bytes, offline, node_only, when_free } => {
            let wish = storage::ExpansionWish {
                required_bytes: *required_bytes,
                limit_bytes: *limit_bytes,
                offline: *offline,
                node_only: *node_only,
                when_free: *when_free,
            };
            storage::expand(volume, &wish, context)
        }
        Command::Modify { parameters } => storage::modify(volume, parameters, context),
        Command::CutSnapshot { snapshot, wish } => storage::cut(volume, snapshot, wish, context),
        Command::AdoptSnapshot { snapshot, plugin, cut, topologies, home } => {
            let listed_at = (topologies.as_slice(), home.as_ref());
            storage::adopt_snapshot(volume, snapshot, plugin, cut, listed_at, context)
        }
        Command::DeleteSnapshot { snapshot, as_group, forget } => {
            storage::delete_snapshot(volume, snapshot, (*as_group, *forget), context)
        }
    }
}
