//! The signals that `berth run` hands on.

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::failure::Failure;

/// TERM, INT and HUP, caught for as long as this lives.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
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
        })
    }

    /// The next one that comes.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.interrupt.recv() => Signal::SIGINT,
            _ = self.hang_up.recv() => Signal::SIGHUP,
        }
    }
}

/// Whether the command has had the signal already: a terminal sends INT and HUP to every process of
/// its foreground group, to which the command belongs as we do.
pub fn terminal_told_everybody(signal: Signal) -> bool {
    signal != Signal::SIGTERM
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
