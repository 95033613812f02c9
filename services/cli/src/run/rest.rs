//! What a command leaves running when it ends.
//!
//! **Promises** that none of it is there any more when the alloc is said to have ended: it is told
//! to end, and killed when it does not. A process that nobody waits for would keep the volumes for
//! ever, or write to them when they are somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep, timeout};

use super::child::Child;
use super::signals::Signals;
use crate::output::say;

/// What goes by itself in this time is not spoken of.
const UNSAID: Duration = Duration::from_millis(100);
/// How often it is looked again who is left.
const LOOK: Duration = Duration::from_millis(100);
/// How long they have before they are killed.
const GRACE: Duration = Duration::from_secs(10);

/// Ends what is left, and waits until it is gone.
pub async fn end(child: &mut Child, signals: &mut Signals) {
    if timeout(UNSAID, child.gone()).await.is_ok() {
        return;
    }
    let mut kill_at = Instant::now() + GRACE;
    let (mut told, mut killed) = (BTreeSet::new(), false);
    loop {
        let left = children();
        for (pid, name) in &left {
            if told.insert(*pid) {
                say(format_args!("  left running: {name}, pid {pid}; told to end"));
                let _ = kill(Pid::from_raw(*pid), Signal::SIGTERM);
            }
        }
        if Instant::now() >= kill_at {
            for pid in left.keys() {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            if !killed {
                say("  not everything has ended yet: killed; the volumes stay until it is gone");
                killed = true;
            }
        }
        tokio::select! {
            () = child.gone() => return,
            () = sleep(LOOK) => {}
            _ = signals.ending() => kill_at = Instant::now(),
        }
    }
}

/// Our children by their process id, with their names. Children of theirs become ours in time.
fn children() -> BTreeMap<i32, String> {
    let own = i64::from(std::process::id());
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| child_of(own, &stat)).collect()
}

/// Reads `/proc/PID/stat`: after the name in brackets come state and parent.
fn child_of(parent: i64, stat: &str) -> Option<(i32, String)> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let is_there = fields.next()? != "Z";
    let is_child = fields.next()?.parse() == Ok(parent);
    (is_there && is_child).then_some((pid.parse().ok()?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_known_by_its_parent_past_any_name() {
        let child = Some((42, "a) (b".to_owned()));
        assert_eq!(child_of(7, "42 (a) (b) S 7 42 42 0 -1"), child);
        assert_eq!(child_of(8, "42 (a) (b) S 7 42 42 0 -1"), None);
        assert_eq!(child_of(7, "42 (sh) Z 7 42 42 0 -1"), None);
        assert_eq!(child_of(7, "42"), None);
    }
}
