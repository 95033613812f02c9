//! The signals that `berth run` hands on.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::timeout;

use crate::failure::Failure;

/// A signal that came before this is one that was sent to the command, too.
const SETTLED: Duration = Duration::from_millis(5);

/// Signals that are caught for as long as this lives.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    quit: unix::Signal,
    user_1: unix::Signal,
    user_2: unix::Signal,
    window: unix::Signal,
}

impl Signals {
    /// Catches them from now on.
    pub fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            let next = "look at the limits of this shell: ulimit -a";
            signal(kind).map_err(|error| Failure::here(error, next))
        };
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
            quit: catch(SignalKind::quit())?,
            user_1: catch(SignalKind::user_defined1())?,
            user_2: catch(SignalKind::user_defined2())?,
            window: catch(SignalKind::window_change())?,
        })
    }

    /// The next one that comes.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.hang_up.recv() => Signal::SIGHUP,
            _ = self.quit.recv() => Signal::SIGQUIT,
            _ = self.user_1.recv() => Signal::SIGUSR1,
            _ = self.user_2.recv() => Signal::SIGUSR2,
            _ = self.window.recv() => Signal::SIGWINCH,
        }
    }

    /// Forgets what has come so far: it was for the command, which may have ended of it.
    pub async fn forget(&mut self) {
        while timeout(SETTLED, self.next()).await.is_ok() {}
    }

    /// The next one that tells us to end. The others say something to a command, and are lost
    /// where there is none.
    pub async fn ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2 | Signal::SIGWINCH) {
                return signal;
            }
        }
    }
}

/// Whether the command has had the signal already: a terminal sends these to every process of its
/// foreground group, to which the command belongs as we do. It stops and continues with us, too.
pub fn terminal_told_everybody(signal: Signal) -> bool {
    let of_terminals = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP, Signal::SIGWINCH];
    of_terminals.contains(&signal)
        && std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| in_foreground(&stat))
}

/// Reads `/proc/PID/stat`: after the name in brackets come state, parent, process group, session,
/// terminal, and the terminal's foreground group.
fn in_foreground(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    matches!(fields.as_slice(), [_, _, group, _, _, foreground, ..] if group == foreground)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_foreground_group_is_read_past_any_name() {
        assert!(in_foreground("7 (a) b) S 1 42 42 34816 42 4194304 1"));
        assert!(!in_foreground("7 (berth) S 1 42 42 34816 41 4194304 1"));
        assert!(!in_foreground("7 (no terminal) S 1 42 42 0 -1 4194304 1"));
        assert!(!in_foreground("7"));
    }
}
