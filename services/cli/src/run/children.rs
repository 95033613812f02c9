//! Processes that a command leaves running when it ends.
//!
//! **Promises** that all of them have ended before the alloc is reported as ended: each process
//! gets SIGTERM, and SIGKILL if it does not end. A process that is left would keep the volumes
//! busy, or write to them when another alloc has them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::process::{list_pids, read_stat};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep, timeout};

use super::child::Child;
use super::signals::Signals;
use crate::output::print_note;

/// Processes that end within this time are not mentioned.
const QUIET_END: Duration = Duration::from_millis(100);
/// Interval at which the children are listed.
const CHILDREN_POLL: Duration = Duration::from_millis(100);
/// How long the processes have after SIGTERM until SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// Ends the processes that the command left running, and waits until all of them are gone.
pub async fn end_children(child: &mut Child, signals: &mut Signals) {
    if timeout(QUIET_END, child.gone()).await.is_ok() {
        return;
    }
    let mut kill_at = Instant::now() + GRACE;
    let (mut terminated, mut killed) = (BTreeSet::new(), false);
    loop {
        let left = children();
        for (pid, name) in &left {
            if terminated.insert(*pid) {
                print_note(format_args!("  left running: {name}, pid {pid}; told to end"));
                let _ = kill(Pid::from_raw(*pid), Signal::SIGTERM);
            }
        }
        if Instant::now() >= kill_at {
            for pid in left.keys() {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            if !killed {
                print_note(
                    "  not everything has ended yet: killed; the volumes stay until it is gone",
                );
                killed = true;
            }
        }
        tokio::select! {
            () = child.gone() => return,
            () = sleep(CHILDREN_POLL) => {}
            _ = signals.ending() => kill_at = Instant::now(),
        }
    }
}

/// Our children by process id, with their names. A child's orphans become our children.
fn children() -> BTreeMap<i32, String> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let stats =
        list_pids().unwrap_or_default().into_iter().filter_map(|pid| read_stat(pid).ok()?);
    let children = stats.filter(|stat| stat.ppid == own && stat.state != 'Z');
    children.map(|stat| (stat.pid, stat.comm)).collect()
}
