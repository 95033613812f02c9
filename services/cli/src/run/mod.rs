//! `berth run`: a command with volumes, like a lock wrapper.
//!
//! **Owns** the order: check all that can be checked, announce the run to the node's agent, create
//! the volumes that are for this run alone, register the alloc, mount every volume, run the
//! command, end its remaining processes, stop the alloc, print its release and the deletion of
//! those volumes.
//!
//! **Promises** that the command never starts unless all its volumes are mounted. The volumes are
//! released after every end, and only after all processes of the command have ended. If this
//! process is killed, the kernel kills the command, and the agent notices and does the rest.
//!
//! **Never** decides whether a volume may be claimed, and never frees one: it reports that the
//! alloc ended.

mod child;
mod children;
mod ephemeral;
mod mount;
mod others;
mod plan;
mod queue_position;
mod signals;
mod stage;
mod stop;
mod watched;

use berth_contract::code::Code;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use nix::sys::signal::Signal;

pub use stage::enter as becomes_the_command;

use crate::args::{Global, Run};
use crate::command;
use crate::exit;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::{Patience, Session};
use child::{Child, StartError};
use plan::Plan;
use signals::Signals;
use watched::Watched;

/// Why the command was not started.
enum NotStarted {
    /// Something failed.
    Failure(Failure),
    /// A signal ended `berth run` before the command began.
    Signal(Signal),
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl NotStarted {
    /// The exit code; the reason was printed before.
    fn exit(&self) -> u8 {
        match self {
            Self::Failure(failure) => match failure.code() {
                Some(Code::Held | Code::AccessInUse | Code::Waiting) => exit::RUN_HELD,
                _ => exit::RUN_NOT_STARTED,
            },
            Self::Signal(signal) => exit::signal_exit(*signal as i32),
        }
    }

    /// The note on the alloc's record. `berth alloc status` shows only this part of the error.
    fn record_note(&self) -> String {
        match self {
            Self::Failure(failure) => match failure.code() {
                Some(code) => format!("not started ({code})"),
                None => "not started".to_owned(),
            },
            Self::Signal(signal) => format!("not started ({signal})"),
        }
    }

    fn print(&self) {
        match self {
            Self::Failure(failure) => print_note(failure),
            Self::Signal(signal) => print_note(format_args!("told to end ({signal}); not started")),
        }
    }
}

/// Runs the command; its exit code, or ours.
pub async fn run(args: &Run, global: &Global) -> Result<u8, Failure> {
    let plan = Plan::new(args, &command::node::host_name(), rand::random())?;
    let not_started = |failure: Failure| {
        let reason = NotStarted::Failure(failure);
        reason.print();
        Ok(reason.exit())
    };
    if let Err(failure) = plan.check() {
        return not_started(failure);
    }
    let (mut signals, session) = match (Signals::catch(), Session::open(global).await) {
        (Ok(signals), Ok(session)) => (signals, session),
        (Err(failure), _) | (_, Err(failure)) => return not_started(failure),
    };
    // An unknown node is usually a typing error. A registry that does not answer does not end the
    // run yet.
    match command::node::find(&session, &plan.node).await {
        Err(failure) if failure.code() == Some(Code::NoSuchNode) => return not_started(failure),
        _ => {}
    }
    let patience = session.patience(mount::PATIENCE);
    let announced = tokio::select! {
        announced = watched::announce(&session, &plan, patience) => announced,
        signal = signals.ending() => {
            let reason = NotStarted::Signal(signal);
            reason.print();
            return Ok(reason.exit());
        }
    };
    let mut watched = match announced {
        Ok(watched) => watched,
        Err(failure) => return not_started(failure),
    };
    let made = ephemeral::Created::default();
    let created = tokio::select! {
        created = ephemeral::create(&session, &plan, args, patience, &made) => {
            created.map_err(NotStarted::Failure)
        }
        signal = signals.ending() => Err(NotStarted::Signal(signal)),
    };
    if let Err(reason) = created {
        reason.print();
        ephemeral::give_up(&session, &plan, &made).await;
        // The alloc was never registered: there is nothing to release.
        watched.forget_ended();
        return Ok(reason.exit());
    }
    let outcome = match register(&session, &plan, patience, &mut signals).await {
        Ok(()) => with_volumes(&session, &plan, args, &watched, &mut signals).await,
        Err(NotStarted::Failure(failure)) if failure.code() != Some(Code::NoAnswer) => {
            ephemeral::give_up(&session, &plan, &made).await;
            watched.forget_ended();
            return not_started(failure);
        }
        Err(reason) => Err(reason),
    };
    let (state, note, code) = match &outcome {
        Ok(code) if *code == exit::OK => (AllocState::Complete, "exit code 0".to_owned(), *code),
        Ok(code) => (AllocState::Failed, format!("exit code {code}"), *code),
        Err(reason) => {
            reason.print();
            (AllocState::Failed, reason.record_note(), reason.exit())
        }
    };
    watched.ended(state, &note);
    if stop::stop(&session, &plan, state, note, args.no_wait_release, &mut signals).await {
        watched.forget_ended();
    }
    if !args.no_wait_release {
        tokio::select! {
            () = ephemeral::await_gone(&session, &plan) => {}
            signal = signals.ending() => print_note(format_args!("{signal}: no longer watching")),
        }
    }
    Ok(code)
}

/// Registers the alloc on this node.
async fn register(
    session: &Session,
    plan: &Plan,
    patience: Patience,
    signals: &mut Signals,
) -> Result<(), NotStarted> {
    let body = plan.register();
    let reply = session.pursue::<verb::AllocRegister>(&session.namespace, &body, patience);
    tokio::select! {
        registered = reply => Ok(registered.map(drop)?),
        signal = signals.ending() => Err(NotStarted::Signal(signal)),
    }
}

/// Claims and mounts the volumes, and runs the command to its end.
async fn with_volumes(
    session: &Session,
    plan: &Plan,
    args: &Run,
    watched: &Watched,
    signals: &mut Signals,
) -> Result<u8, NotStarted> {
    let patience = match args.wait {
        Some(Some(span)) => Patience::lasting(span),
        _ => session.patience(mount::PATIENCE),
    };
    let mounted = tokio::select! {
        mounted = mount::mount_all(session, plan, args.wait.is_some(), patience) => mounted?,
        signal = signals.ending() => return Err(NotStarted::Signal(signal)),
    };
    let command = plan.command(args, &mounted);
    // Real paths, because the mount table contains no symbolic links.
    let own = mounted.iter().map(|volume| volume.path.canonicalize()).collect::<Result<_, _>>();
    let own =
        own.map_err(|error| Failure::local(error, "look at the volume with `berth node status`"))?;
    let started = child::start(command, plan.binds(&mounted), own, watched.mark()?).await;
    let mut child = started.map_err(explain)?;
    let code = wait(&mut child, signals).await;
    signals.forget().await;
    children::end_children(&mut child, signals).await;
    Ok(code)
}

/// Waits for the command's end, and forwards signals to it.
async fn wait(child: &mut Child, signals: &mut Signals) -> u8 {
    loop {
        tokio::select! {
            status = child.ended() => return child::exit_code(status),
            signal = signals.next() => {
                if !signals::terminal_told_everybody(signal) {
                    child.send_signal(signal);
                }
            }
        }
    }
}

fn explain(error: StartError) -> NotStarted {
    let next = match &error {
        StartError::Bind { .. } => {
            "the path must be on this machine: a directory for a file system, a file for a block \
             device; inside another volume it must be there already"
        }
        _ => "look at the limits of this shell: ulimit -a",
    };
    NotStarted::Failure(Failure::local(berth_service::process::chain(&error), next))
}
