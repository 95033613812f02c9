//! Signals that `berth run` forwards.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use berth_host::process::read_stat;
use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

use crate::failure::Failure;

/// Signals that are forwarded to the command, or that end the wait for its volumes.
const CAUGHT: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// A signal that came less than this before the command's end was sent to the command, too.
const SETTLED: Duration = Duration::from_millis(5);

/// Catches signals while this exists.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Starts to catch the signals.
    pub fn catch() -> Result<Self, Failure> {
        let catch = |signal: Signal| {
            let next = "look at the limits of this shell: ulimit -a";
            let caught = unix::signal(SignalKind::from_raw(signal as i32));
            Ok((signal, caught.map_err(|error| Failure::local(error, next))?))
        };
        CAUGHT.into_iter().map(catch).collect::<Result<_, _>>().map(Self)
    }

    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut caught = self.0.iter_mut();
            let came = caught.find_map(|(signal, stream)| {
                stream.poll_recv(context).is_ready().then_some(*signal)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Discards the signals so far: they were for the command, which may have ended because of
    /// them.
    pub async fn forget(&mut self) {
        while timeout(SETTLED, self.next()).await.is_ok() {}
    }

    /// Waits for the next signal that means termination. Other signals are for a command, and are
    /// lost where there is none.
    pub async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2 | Signal::SIGWINCH) {
                return signal;
            }
        }
    }
}

/// Whether the command has received the signal already. A terminal sends these to every process of
/// its foreground group, which contains us and the command. It stops and continues with us, too.
pub fn terminal_told_everybody(signal: Signal) -> bool {
    let of_terminals = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP, Signal::SIGWINCH];
    of_terminals.contains(&signal)
        && read_stat(std::process::id())
            .is_ok_and(|stat| stat.is_some_and(|stat| stat.pgrp == stat.tpgid))
}
