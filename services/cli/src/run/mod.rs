//! `berth run`: a command with volumes, like a lock wrapper.
//!
//! **Owns** the order: check everything that can be checked, register the alloc, mount every
//! volume, run the command, stop the alloc, tell its release.
//!
//! **Promises** that the command never starts unless all its volumes are mounted; that whatever was
//! claimed is given back however it ends, or what remains is said with the command that finishes
//! it.
//!
//! **Never** decides whether a volume may be had, and never frees one: it says that the alloc
//! ended.

mod child;
mod mount;
mod plan;
mod signals;
mod stop;
mod volume_arg;

use std::io::ErrorKind;

use berth_contract::code::Code;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::subject::Namespaced;
use berth_domain::alloc::AllocState;
use nix::sys::signal::Signal;

pub use volume_arg::VolumeArg;

use crate::args::{Global, Run};
use crate::command;
use crate::exit;
use crate::failure::Failure;
use crate::output::say;
use crate::session::{Patience, Session};
use child::{Child, StartError};
use plan::Plan;
use signals::Signals;

/// Why the command was not started.
enum NotStarted {
    /// Something failed.
    Failure(Failure),
    /// It was found, and could not be executed, or was not found.
    Command(Failure, u8),
    /// We were told to end before it began.
    Signal(Signal),
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl NotStarted {
    /// The exit code; the reason has been said then.
    fn exit(&self) -> u8 {
        match self {
            Self::Failure(failure) => match failure.code() {
                Some(Code::Held | Code::AccessInUse | Code::Waiting) => exit::RUN_HELD,
                _ => exit::RUN_NOT_STARTED,
            },
            Self::Command(_, exit) => *exit,
            Self::Signal(signal) => signal_exit(*signal as i32),
        }
    }

    fn say(&self) {
        match self {
            Self::Failure(failure) | Self::Command(failure, _) => say(failure),
            Self::Signal(signal) => say(format_args!("told to end ({signal}); not started")),
        }
    }
}

/// Runs the command; its exit code, or ours.
pub async fn run(args: &Run, global: &Global) -> Result<u8, Failure> {
    let plan = Plan::new(args, &plan::host_name(), rand::random())?;
    let not_started = |failure: Failure| {
        let reason = NotStarted::Failure(failure);
        reason.say();
        Ok(reason.exit())
    };
    if let Err(failure) = plan.check() {
        return not_started(failure);
    }
    let (mut signals, session) = match (Signals::catch(), Session::open(global).await) {
        (Ok(signals), Ok(session)) => (signals, session),
        (Err(failure), _) | (_, Err(failure)) => return not_started(failure),
    };
    // A node that nobody knows is a typing error more often than one that is late. Who cannot be
    // asked about it is no reason to give up yet.
    match command::node::find(&session, &plan.node).await {
        Err(failure) if failure.code() == Some(Code::NoSuchNode) => return not_started(failure),
        _ => {}
    }
    let patience = session.patience(mount::PATIENCE);
    let outcome = match register(&session, &plan, patience, &mut signals).await {
        Ok(()) => with_volumes(&session, &plan, args, patience, &mut signals).await,
        Err(NotStarted::Failure(failure)) if failure.code() != Some(Code::NoAnswer) => {
            // The alloc never came to be: there is nothing to give back.
            return not_started(failure);
        }
        Err(reason) => Err(reason),
    };
    let (state, note, code) = match &outcome {
        Ok(code) if *code == exit::OK => (AllocState::Complete, "exit code 0".to_owned(), *code),
        Ok(code) => (AllocState::Failed, format!("exit code {code}"), *code),
        Err(reason) => {
            reason.say();
            (AllocState::Failed, "not started".to_owned(), reason.exit())
        }
    };
    stop::stop(&session, &plan, state, note, args.no_wait_release, &mut signals).await;
    Ok(code)
}

/// Says that the alloc is placed here.
async fn register(
    session: &Session,
    plan: &Plan,
    patience: Patience,
    signals: &mut Signals,
) -> Result<(), NotStarted> {
    let (question, body) = (session.about(Namespaced::AllocRegister), plan.register());
    tokio::select! {
        registered = session.pursue(&question, &body, patience, |problem| problem.retryable) => {
            let _: AllocStatus = registered?;
            Ok(())
        }
        signal = signals.next() => Err(NotStarted::Signal(signal)),
    }
}

/// From the first claim to the end of the command.
async fn with_volumes(
    session: &Session,
    plan: &Plan,
    args: &Run,
    patience: Patience,
    signals: &mut Signals,
) -> Result<u8, NotStarted> {
    let mounted = tokio::select! {
        mounted = mount::all(session, plan, args.wait, patience) => mounted?,
        signal = signals.next() => return Err(NotStarted::Signal(signal)),
    };
    let command = plan::command(args, &mounted);
    let child = child::start(command, plan.binds(&mounted)).await.map_err(explain)?;
    Ok(wait(child, signals).await)
}

/// Waits for the command's end, and hands on to it what we are told meanwhile.
async fn wait(mut child: Child, signals: &mut Signals) -> u8 {
    loop {
        tokio::select! {
            status = child.ended() => return child::exit_code(status),
            signal = signals.next() => {
                if !signals::terminal_told_everybody(signal) {
                    child.tell(signal);
                }
            }
        }
    }
}

fn explain(error: StartError) -> NotStarted {
    let StartError::Spawn { command, source } = &error else {
        let next = "the path must be on this machine, and a directory for a file system";
        return NotStarted::Failure(Failure::here(error, next));
    };
    let (exit, next) = match source.kind() {
        ErrorKind::NotFound => (exit::RUN_NO_SUCH_COMMAND, "check its name, and the PATH"),
        _ => (exit::RUN_NOT_EXECUTABLE, "check that it may be executed"),
    };
    let message = format!("{command} cannot be started: {source}");
    NotStarted::Command(Failure::here(message, next), exit)
}

/// 128 + n.
fn signal_exit(number: i32) -> u8 {
    u8::try_from(number).map_or(u8::MAX, |number| exit::RUN_SIGNAL.saturating_add(number))
}
