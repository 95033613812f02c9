//! The one function that decides.

use super::command::{Command, Context, Step};
use super::refusal::Refusal;
use super::{Volume, answer, begin, confirm, node_mount, register, release, take};

/// What `command` does to `volume`, or why it may not.
///
/// Total: every command in every state gives a step or a named refusal. Pure: the same arguments
/// give the same answer. The caller writes [`Step::write`] under the guard that the volume's
/// subtree is still at the revision it was loaded at, and only then makes [`Step::call`], once.
pub fn step(volume: &Volume, command: &Command, context: &Context) -> Result<Step, Refusal> {
    match command {
        Command::Register(spec) => register::register(volume, spec, context),
        Command::Reserve => register::reserve(volume, context),
        Command::Deregister { force, reason, running } => {
            register::deregister(volume, *force, reason, running, context)
        }
        Command::Take(take) => take::take(volume, take, context),
        Command::Release { alloc, epoch, reason } => {
            release::release(volume, alloc, *epoch, reason, context)
        }
        Command::Confirm { alloc, epoch, call, word } => {
            confirm::confirm(volume, alloc, *epoch, *call, word, context)
        }
        Command::Begin { alloc, worker, wanted, early, proven } => {
            let (wanted, early, proven) = (*wanted, *early, proven.as_ref());
            let known = begin::WorkerFacts { wanted, early, proven };
            begin::begin(volume, alloc, worker, &known, context)
        }
        Command::Observe { alloc, epoch, mount, node } => {
            node_mount::observe(volume, alloc, *epoch, mount, node.as_ref())
        }
        Command::Answer { alloc, attempt, outcome, worker } => {
            answer::answer(volume, alloc, attempt, outcome, worker.as_ref(), context)
        }
    }
}
