//! Reports to the registry what this node is and has.
//!
//! **Owns** the report. Each report is complete (D2, D3). It is sent whenever a plugin changes,
//! when the clock was set, and at an interval, so a lost report costs nothing.
//!
//! **Promises** that no half of a plugin is reported that the plugin does not have, if it answers
//! its first probe; that a report is retried with backoff until the registry takes it. At the
//! shutdown one last report is tried once. A retry carries the state of that moment, and a change
//! ends the pause before it: so the loop is written here, and is not `Client::persist`.
//!
//! **Never** asks a second replica for the same report: the exchange with one replica measures the
//! clock.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::{Bus, Call, RequestError};
use berth_contract::message::plugin::SourceFault;
use berth_contract::message::registry::{NodeReport, Reported, ReportedInstance};
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_csi::failure::one_line;
use berth_domain::limits::{CLOCK_SKEW_REPORTED_MS, REQUEST_TIMEOUT};
use berth_domain::plugin::{COMPARED_INCARNATION, Half};
use berth_domain::retry::Schedule;
use berth_domain::{ClockOffset, NodeId, PluginId, Timestamp};
use berth_service::clock;
use berth_service::fault_report::FaultReport;
use berth_service::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::fleet::gate::{Gate, NodePresence};
use crate::fleet::hosting::{HostingRights, ShownRights};
use crate::fleet::lease::LeaseTtl;
use crate::fleet::secret::SealingKey;
use crate::fleet::unaccounted::UnaccountedMounts;
use crate::host::Host;
use crate::plugins::{Plugins, SOCKET_GRACE};

/// Pauses after a report that was not taken.
const RETRY: Schedule = Schedule { first: Duration::from_millis(200), max: Duration::from_secs(5) };
/// Pauses while the registry does not count the node as there. It follows the lease within moments.
const UNSETTLED_RETRY: Schedule =
    Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };
/// Interval of unchanged reports, in lease TTLs that the registry asks for. They only repair lost
/// reports.
const REPORT_INTERVAL_TTLS: u32 = 5;
/// How long the first report waits for the first probe of each plugin: longer than a process may
/// take to make its socket, before which no probe of it counts. A plugin that hangs must not keep
/// the node's others from the report.
const FIRST_PROBES_WITHIN: Duration = Duration::from_millis(2_500);
const _: () = assert!(FIRST_PROBES_WITHIN.as_millis() > SOCKET_GRACE.as_millis());
/// Interval at which the wall clock is compared with the monotonic clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// A clock that was set by more than this is reported at once: calls have their deadlines by it.
const CLOCK_STEP: Duration = Duration::from_millis(250);
/// The attribute that says what keeps a node that counts as gone from coming back.
const RETURNING: &str = "returning";
/// The attribute that says why the agent can journal nothing.
const JOURNAL: &str = "journal";
/// The attribute that names files and sockets that are no plugin.
const BAD_SOURCES: &str = "plugin-faults";
/// The attribute that says how many host operations hang, since when and where.
const HUNG: &str = "hung";
/// The attribute that says of which allocs it cannot be looked at whether they run.
const UNSEEN: &str = "runs";
/// The attribute that names controllers here that do not count.
const HOSTING: &str = "hosting";
/// Longest attribute, in characters.
const ATTRIBUTE_CHARS_MAX: usize = 240;
/// How far the registry's skew may lie outside of the agent's measurement, in milliseconds: the
/// registry keeps a skew that changes by less than 50 ms.
const SKEW_TOLERANCE_MS: u64 = 100;
/// Largest number of reports in a row that correct a wrong skew at once. Replicas of the registry
/// whose clocks differ would otherwise get reports without end.
const SKEW_RETRIES_MAX: u32 = 5;

/// Reports this node.
#[derive(Debug, Clone)]
pub struct Reporter {
    /// The bus.
    pub bus: Bus,
    /// The node.
    pub host: Host,
    /// Its plugins.
    pub plugins: Plugins,
    /// Interval of unchanged reports. It is longer if the registry says that the fleet is large.
    pub interval: Duration,
    /// Set to what the registry asks for.
    pub ttl: LeaseTtl,
    /// Opened and closed by the registry's answers.
    pub gate: Gate,
    /// Mounts that no claim covers.
    pub unaccounted: UnaccountedMounts,
    /// The incarnation of the volumes bucket with which the journal was compared; 0 before.
    pub compared: watch::Receiver<u64>,
    /// Why nothing can be journalled, and so nothing be mounted or unmounted.
    pub journal: FaultReport,
    /// Which host operations hang.
    pub hung: FaultReport,
    /// Of which allocs it cannot be looked at whether they run.
    pub unseen: FaultReport,
    /// The key that secrets are sealed for.
    pub sealing: SealingKey,
    /// Which controllers the node may host.
    pub rights: HostingRights,
}

impl Reporter {
    /// Reports until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let mut compared = self.compared.clone();
        let mut plugins = self.plugins.follow_changes();
        let hanging = tokio::select! {
            hanging = self.await_first_probes() => hanging,
            () = shutdown.requested() => return,
        };
        let mut gate = self.gate.follow_changes();
        let mut unaccounted = self.unaccounted.subscribe();
        let mut journal = self.journal.follow();
        let mut hung = self.hung.follow();
        let mut unseen = self.unseen.follow();
        let mut sealing = self.sealing.follow_missed();
        let mut hosting = self.rights.fault.follow();
        let (mut tries, mut unsettled, mut skew_retries) = (0, 0, 0);
        let (mut known, mut clock_offset) = (None, None);
        let mut is_repeated = false;
        loop {
            // Marked before the report is made, so that a later change is reported again.
            compared.mark_unchanged();
            plugins.mark_unchanged();
            gate.mark_unchanged();
            unaccounted.mark_unchanged();
            journal.mark_unchanged();
            hung.mark_unchanged();
            unseen.mark_unchanged();
            sealing.mark_unchanged();
            hosting.mark_unchanged();
            let reading = ClockReading::now();
            let trace =
                if is_repeated { clock::begin_unrecorded_trace() } else { clock::begin_trace() };
            let pause = match self.report(clock_offset, trace, &hanging, REQUEST_TIMEOUT).await {
                Ok(TakenReport { reported, clock_offset: measured, is_unproven }) => {
                    clock_offset = measured;
                    self.log_answer(tries, &reported);
                    tries = 0;
                    // The registry may have taken a delay for a skew: it gets this measurement.
                    let is_skew_wrong = measured.is_some_and(|offset| {
                        !offset.allows(reported.clock_skew_ms, SKEW_TOLERANCE_MS)
                    });
                    skew_retries = if is_skew_wrong { skew_retries + 1 } else { 0 };
                    let measures_again = (1..=SKEW_RETRIES_MAX).contains(&skew_retries);
                    let is_unsettled = self.gate.presence() == NodePresence::Unknown;
                    if is_unsettled || measures_again || is_unproven {
                        unsettled += 1;
                        UNSETTLED_RETRY.wait(unsettled, clock::jitter()).min(self.interval)
                    } else {
                        unsettled = 0;
                        let interval =
                            self.interval.max(REPORT_INTERVAL_TTLS * lease_ttl(&reported));
                        // After a small growth the agents' reports are still spread.
                        let spread_out = known.is_some_and(|known| interval <= known * 2);
                        known = Some(interval);
                        spread_reports(interval, spread_out, clock::jitter())
                    }
                }
                Err(error) => {
                    let why = berth_service::process::chain(&error);
                    if tries == 0 {
                        tracing::warn!(why, "the registry did not take the report; asking again");
                    } else {
                        tracing::debug!(why, tries, "the registry did not take the report");
                    }
                    tries += 1;
                    RETRY.wait(tries, clock::jitter())
                }
            };
            is_repeated = tokio::select! {
                // A change that was not taken is still one.
                () = sleep(pause) => tries == 0,
                // The senders live as long as this reporter.
                Ok(()) = compared.changed() => false,
                _ = plugins.changed() => false,
                _ = gate.changed() => false,
                _ = unaccounted.changed() => false,
                _ = journal.changed() => false,
                _ = hung.changed() => false,
                _ = unseen.changed() => false,
                _ = sealing.changed() => false,
                _ = hosting.changed() => false,
                () = reading.was_set() => {
                    clock_offset = None;
                    false
                }
                () = shutdown.requested() => return,
            };
        }
    }

    /// Reports once, without a measurement of the clock.
    pub async fn report_once(&self, within: Duration) -> Result<(), RequestError> {
        self.report(None, clock::begin_trace(), &BTreeSet::new(), within).await.map(drop)
    }

    /// Waits for the first probe of each plugin that is there at the start. Returns the plugins
    /// that have not answered by then: the registry may know them, and a report without them would
    /// remove them there.
    async fn await_first_probes(&self) -> BTreeSet<PluginId> {
        let mut changes = self.plugins.follow_changes();
        let all_probed = async {
            while !self.plugins.list_unprobed().is_empty() {
                // The sender lives as long as this reporter.
                let _ = changes.changed().await;
            }
        };
        let _ = timeout(FIRST_PROBES_WITHIN, all_probed).await;
        self.plugins.list_unprobed()
    }

    /// Reports once, with the previous measurement of the clock. A plugin is reported from its
    /// first probe on, because only then it is known which halves it has; and a `hanging` one.
    async fn report(
        &self,
        clock_offset: Option<ClockOffset>,
        trace: TraceContext,
        hanging: &BTreeSet<PluginId>,
        within: Duration,
    ) -> Result<TakenReport, RequestError> {
        // Read before the request: an answer from before the lease was regained does not count.
        let tenure = self.gate.tenure();
        let (undone, kept_by) = self.gate.progress();
        let mut attributes = self.host.attributes.clone();
        // Read before the mounts: what is reported as compared must not lack any of them.
        let compared = *self.compared.borrow();
        if compared > 0 {
            attributes.insert(COMPARED_INCARNATION.to_owned(), compared.to_string());
        }
        attributes.extend(kept_by.map(|why| (RETURNING.to_owned(), shorten(why))));
        attributes.extend(describe_faults(&self.host.node, &self.plugins.faults()));
        let fault = self.journal.current();
        let plugins = self.plugins.list().into_iter();
        let known = plugins.filter(|plugin| plugin.is_probed() || hanging.contains(&plugin.id));
        let mut instances: Vec<_> = known.flat_map(|plugin| plugin.instances()).collect();
        if let Some(why) = &fault {
            for instance in &mut instances {
                mark_unhealthy(instance, why);
            }
        }
        attributes.extend(fault.map(|why| (JOURNAL.to_owned(), shorten(why))));
        let with_controller = instances.iter().filter(|one| one.half == Half::Controller);
        let with_controller = with_controller.map(|one| one.plugin.clone()).collect();
        let ShownRights { unheard, denied } = self.rights.show(with_controller, within).await?;
        instances.retain(|one| one.half != Half::Controller || !unheard.contains(&one.plugin));
        attributes
            .extend(self.rights.fault.current().map(|why| (HOSTING.to_owned(), shorten(why))));
        attributes.extend(self.hung.current().map(|hung| (HUNG.to_owned(), shorten(hung))));
        attributes.extend(self.unseen.current().map(|why| (UNSEEN.to_owned(), shorten(why))));
        let unaccounted = self.unaccounted.read_known();
        let report = NodeReport {
            node: self.host.node.clone(),
            version: berth_version::current().to_owned(),
            boot_id: self.host.boot_id.clone(),
            clock: clock::now(),
            clock_offset,
            attributes,
            instances,
            undone,
            unaccounted: unaccounted.mounts,
            compared: Some(unaccounted.is_compared),
            sealing_key: Some(self.sealing.public()),
        };
        let call = Call::within(trace, within);
        let began = Instant::now();
        let reported = self.bus.ask_service::<verb::NodeReport>(&(), &report, &call).await?;
        if let Some(tenure) = tenure {
            self.gate.record_answer(tenure, &reported);
        }
        self.ttl.at_least(lease_ttl(&reported));
        let unproven: BTreeSet<_> = reported.unproven.iter().cloned().collect();
        let is_unproven = unproven.iter().any(|plugin| !denied.contains(plugin));
        self.rights.note_uncounted(&unheard.into_iter().chain(unproven).collect());
        let clock_offset = reported
            .clock
            .map(|registry| ClockOffset::from_exchange(report.clock, registry, began.elapsed()));
        Ok(TakenReport { reported, clock_offset, is_unproven })
    }

    fn log_answer(&self, tries: u32, reported: &Reported) {
        if tries > 0 {
            tracing::info!(node = %self.host.node, "the registry takes reports again");
        }
        if reported.clock_skew_ms.unsigned_abs() > CLOCK_SKEW_REPORTED_MS {
            tracing::warn!(
                clock_skew_ms = reported.clock_skew_ms,
                "this host's clock differs from the registry's; claims need it within 2 s"
            );
        }
    }
}

/// A report that the registry took.
struct TakenReport {
    reported: Reported,
    /// How far this host's clock is ahead of the registry's; none from an older registry.
    clock_offset: Option<ClockOffset>,
    /// The registry has lost what was shown to it: it is to be shown again.
    is_unproven: bool,
}

/// One reading of the monotonic clock and of the wall clock.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    at: Instant,
    wall: Timestamp,
}

impl ClockReading {
    fn now() -> Self {
        Self { at: Instant::now(), wall: clock::now() }
    }

    /// Returns when the clock has been set since.
    async fn was_set(self) {
        while self.step(Self::now()) < CLOCK_STEP {
            sleep(CLOCK_CHECK_INTERVAL).await;
        }
    }

    /// By how much the wall clock was set between two readings.
    fn step(self, then: Self) -> Duration {
        let expected = self.wall.after(then.at - self.at);
        expected.since(then.wall).max(then.wall.since(expected))
    }
}

/// The lease TTL that the registry asks for.
fn lease_ttl(reported: &Reported) -> Duration {
    Duration::from_secs(reported.pace_s.into())
}

/// The interval ±10 %. For a new interval any part of it, so that agents that learned of it at the
/// same time do not report at the same time.
fn spread_reports(interval: Duration, spread_out: bool, jitter: u32) -> Duration {
    let part = f64::from(jitter) / f64::from(u32::MAX);
    interval.mul_f64(if spread_out { 0.9 + 0.2 * part } else { part })
}

/// Without a journal nothing can be mounted here, even if the plugin is healthy. A controller needs
/// no journal.
fn mark_unhealthy(reported: &mut ReportedInstance, why: &str) {
    if reported.half == Half::Node {
        reported.instance.healthy = false;
        reported.instance.description = one_line(why);
    }
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(ATTRIBUTE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The number of files and sockets that are no plugin, and the first of them. `agent.plugins` lists
/// all.
fn describe_faults(node: &NodeId, faults: &[SourceFault]) -> Option<(String, String)> {
    let first = faults.first()?;
    let more = match faults.len() {
        1 => String::new(),
        many => format!("{many} of them, see `berth plugin instances {node}`; "),
    };
    let text = format!("{more}{}: {}", first.source, first.problem);
    Some((BAD_SOURCES.to_owned(), shorten(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_interval_is_gone_into_anywhere_and_then_kept_to() {
        let interval = Duration::from_secs(100);
        let ends =
            |known| [0, u32::MAX].map(|jitter| spread_reports(interval, known, jitter).as_secs());
        assert_eq!(ends(false), [0, 100]);
        assert_eq!(ends(true), [90, 110]);
    }

    #[test]
    fn a_clock_that_was_set_either_way_is_told_from_one_that_goes_on() {
        let at = Instant::now();
        let reading = |passed, told: u64| ClockReading {
            at: at + Duration::from_millis(passed),
            wall: Timestamp::from_unix_ms(1_000_000 + told),
        };
        let cases = [(0, 0, 0), (5_000, 5_000, 0), (5_000, 5_010, 10), (5_000, 1_000, 4_000)];
        for (passed, told, step) in cases.into_iter().chain([(0, 90_000, 90_000)]) {
            let step = Duration::from_millis(step);
            assert_eq!(reading(0, 0).step(reading(passed, told)), step, "{passed} {told}");
        }
    }

    // Tokio's time passes here and the wall clock does not, as if it were set back all the time.
    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_within_seconds_of_the_clock_being_set() {
        let began = Instant::now();
        ClockReading::now().was_set().await;
        assert!(began.elapsed() <= CLOCK_CHECK_INTERVAL * 2, "{:?}", began.elapsed());
    }
}
