//! What a command leaves running when it ends.
//!
//! **Promises** that none of it is there any more when the alloc is said to have ended: it is told
//! to end, and killed when it does not. A process that nobody waits for would keep the volumes for
//! ever, or write to them when they are somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::process::{list_pids, read_stat};
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
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let stats =
        list_pids().unwrap_or_default().into_iter().filter_map(|pid| read_stat(pid).ok()?);
    let children = stats.filter(|stat| stat.ppid == own && stat.state != 'Z');
    children.map(|stat| (stat.pid, stat.comm)).collect()
}
