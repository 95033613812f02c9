//! Carries out faults and mends them.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::Duration;

use berth_harness::nats::raw;
use berth_harness::proxy::Proxy;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::Run;
use crate::plan::{Fault, Strike, Target};

/// How often it is checked that everything runs that should.
const ROUND: Duration = Duration::from_millis(250);
/// The exit status of a Rust program that panicked.
const PANICKED: i32 = 101;

impl Run {
    /// Hurts the target, waits, and heals it.
    pub(super) async fn strike(&self, strike: Strike) {
        let target = strike.target;
        // A fault may last longer than planned, because it waits until the target has recovered.
        let _turn = self.turns[&target].lock().await;
        // Faults queue up in a long run. Those that still wait at its end do not strike.
        if self.last.get().is_some_and(|last| Instant::now() > *last + ROUND) {
            let kind = strike.fault.kind();
            return self.ledger.note(format!("no turn in time for {target}: {kind}"));
        }
        self.hurt(strike).await;
    }

    /// As [`strike`](Self::strike), and also after the last event of the plan. No other fault
    /// may strike the target meanwhile.
    pub(super) async fn hurt(&self, strike: Strike) {
        let Strike { target, fault, lasts } = strike;
        self.ledger.struck(fault.kind());
        let cables = self.site.cables(target);
        match fault {
            Fault::Kill => {
                self.down().insert(target);
                block_in_place(|| self.site.daemon(target).kill9());
                sleep(lasts).await;
                self.up(target);
            }
            Fault::Leave => {
                self.down().insert(target);
                self.site.daemon(target).terminate().await;
                sleep(lasts).await;
                self.up(target);
            }
            Fault::Pause => {
                block_in_place(|| self.site.daemon(target).pause());
                sleep(lasts).await;
                self.site.daemon(target).resume();
            }
            Fault::Cut => {
                each(cables, Proxy::cut);
                sleep(lasts).await;
                each(cables, Proxy::heal);
            }
            Fault::Silence => {
                each(cables, Proxy::half_open);
                sleep(lasts).await;
                each(cables, Proxy::heal);
            }
            Fault::Loss => each(cables, Proxy::lose),
            Fault::Lag => {
                let end = Instant::now() + lasts;
                while Instant::now() < end {
                    each(cables, Proxy::half_open);
                    sleep(Duration::from_millis(120)).await;
                    each(cables, Proxy::heal);
                    sleep(Duration::from_millis(30)).await;
                }
            }
            Fault::Plugin(planted) => {
                self.site.plant(target, &json!([planted.entry]));
                sleep(lasts).await;
                self.site.plant(target, &json!([]));
            }
            Fault::FullDisk => {
                let disk = self.site.disk(target).expect("the plan fills disks");
                block_in_place(|| disk.fill());
                sleep(lasts).await;
                disk.free();
                self.down().insert(target);
                self.up(target);
            }
            Fault::Clock(ahead_ms) => {
                self.site.set_clock(target, ahead_ms);
                sleep(lasts).await;
                self.site.set_clock(target, 0);
            }
            Fault::Part | Fault::Mute { .. } => {
                let Target::Link(one, other) = target else { return };
                let cluster = &self.site.nats;
                match fault {
                    Fault::Mute { second: false } => cluster.mute(one, other),
                    Fault::Mute { second: true } => cluster.mute(other, one),
                    _ => cluster.part(one, other),
                }
                sleep(lasts).await;
                cluster.join(one, other);
            }
            Fault::Gone(absence) => {
                let Target::Agent(node) = target else { return };
                self.gone(node, absence, lasts).await;
            }
            Fault::Flood(times) => {
                let sent = match (self.site.server(), target.flooded_at()) {
                    (Some(server), Some(subject)) => {
                        raw::flood(server, &subject, b"{}", times).await
                    }
                    _ => return,
                };
                if let Err(error) = sent {
                    self.ledger.note(format!("the flood was not sent: {error}"));
                }
            }
            Fault::Junk { volume, text } => self.junk(volume, text, lasts).await,
            Fault::Lost { node, number, restored } => {
                self.lost(node, number, restored, lasts).await;
            }
        }
        self.ledger.note(format!("{target} is mended"));
    }

    pub(super) fn up(&self, target: Target) {
        let mut down = self.down();
        block_in_place(|| self.site.daemon(target).restart());
        down.remove(&target);
    }

    /// Starts again what ended by itself, as a supervisor does on a host.
    pub(super) async fn keep_running(self: Arc<Self>) {
        loop {
            sleep(ROUND).await;
            block_in_place(|| self.revive());
        }
    }

    /// Starts every process that should run and does not. Reports a process that ended when it
    /// may not: a driver may end by a planted crash, and any process when it gives up on an absent
    /// bus.
    pub(super) fn revive(&self) {
        for target in Target::processes(self.site.shape) {
            let down = self.down();
            let daemon = self.site.daemon(target);
            let Some(status) = daemon.exit_status().filter(|_| !down.contains(&target)) else {
                continue;
            };
            self.ledger.note(format!("{target} ended by itself: {status}"));
            let killed_itself = status.signal() == Some(9);
            let driver = matches!(target, Target::Driver { .. });
            if status.code() == Some(PANICKED) || status.signal().is_some_and(|_| !driver) {
                self.ledger.violated("a process ended by itself", format!("{target}: {status}"));
            } else if driver && !killed_itself {
                self.ledger.violated("a driver ended by itself", format!("{target}: {status}"));
            }
            daemon.restart();
        }
    }
}

pub(super) fn each(cables: &[Proxy], change: impl Fn(&Proxy)) {
    for cable in cables {
        change(cable);
    }
}
