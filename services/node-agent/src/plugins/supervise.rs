//! Probes one instance of a plugin: its health, name, version and capabilities.
//!
//! **Promises** that the view of an instance follows each probe, and that capabilities stay known
//! while the instance does not answer.
//!
//! **Never** starts or ends a process: [`crate::roster`] does so.

use std::sync::Arc;
use std::time::Duration;

use berth_csi::{Client, Code, Fingerprint, IdentifyError, identify, v1};
use berth_domain::Timestamp;
use berth_domain::retry::Schedule;
use berth_domain::volume::HoldingProcess;
use berth_host::socket::read_identity;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::time::{Instant, sleep};

use super::member::PluginInstance;
use super::plugin::Plugin;
use super::process::ProcessId;
use super::storage_question::StorageQuestion;
use super::view::InstanceView;

/// Interval of probes of an unhealthy instance.
const UNHEALTHY_PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// Smallest time between two probes, even if a failed call requests one.
const PROBE_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Time for a process to make its socket. After that the view explains why it may be missing.
pub(crate) const SOCKET_GRACE: Duration = Duration::from_secs(2);
/// Longest time between two identifications of an instance that stays healthy, and twice the
/// shortest: its limit of volumes and its capabilities may change while it runs.
const IDENTIFY_INTERVAL: Schedule =
    Schedule { first: Duration::from_secs(300), max: Duration::from_secs(300) };
/// Number of probes between reads of the version. A proxy may change it behind one connection.
const PROBES_PER_VERSION_READ: u32 = 5;

/// The timing of probes.
#[derive(Debug, Clone, Copy)]
pub struct ProbeTiming {
    /// Time between probes of a healthy instance.
    pub interval: Duration,
    /// Largest time for an answer.
    pub timeout: Duration,
}

/// Probes an instance until `gone` or the shutdown. The shutdown leaves an unhealthy view.
///
/// A healthy instance gets `Probe`. An instance is identified again if it is new or unhealthy, if
/// it may be another process or version by now, after some minutes, and when it has no room.
pub async fn supervise(
    member: Arc<PluginInstance>,
    plugin: Plugin,
    timing: ProbeTiming,
    gone: Shutdown,
    shutdown: Shutdown,
) {
    let mut prober = InstanceProbe { connections: 0, probes: 0, identify_at: Instant::now() };
    let mut missing_socket = MissingSocket::default();
    let mut storage = StorageQuestion::new(&member);
    let began = Instant::now();
    let mut wait = Duration::ZERO;
    loop {
        let seen = tokio::select! {
            seen = async {
                wait_for_next_probe(&member, wait).await;
                prober.probe_instance(&member, timing.timeout).await
            } => seen,
            () = gone.requested() => return,
            () = shutdown.requested() => break,
        };
        // Releases may wait for an unhealthy instance, and a probe of a dead socket is cheap.
        let interval = if seen.is_ok() { timing.interval } else { UNHEALTHY_PROBE_INTERVAL };
        wait = interval.min(timing.interval);
        // A process that the agent has just started does not listen yet: that is no first probe.
        let is_starting = member.declaration.command().is_some() && began.elapsed() < SOCKET_GRACE;
        if seen.is_err() && is_starting && !member.is_probed() {
            continue;
        }
        let seen = match seen {
            Ok(found) => Ok(found),
            Err(why) => Err(missing_socket.explain(&member, why).await),
        };
        record_probe(&member, seen, &plugin);
        plugin.expire_full();
        storage.ask_if_due(&member, &plugin);
    }
    record_probe(&member, Err("the agent is stopping".to_owned()), &plugin);
}

/// The process that has not made its socket, and when that was first seen.
#[derive(Default)]
struct MissingSocket {
    process: Option<(ProcessId, Instant)>,
}

impl MissingSocket {
    /// Adds to the reason of an unhealthy instance that its process has made no socket within
    /// [`SOCKET_GRACE`]. The text stays the same between probes, so that it is logged once.
    async fn explain(&mut self, member: &PluginInstance, why: String) -> String {
        let (Some(command), Some(process)) =
            (member.declaration.command(), member.record().process)
        else {
            self.process = None;
            return why;
        };
        if read_identity(&Arc::from(member.socket.as_path())).await.is_some() {
            self.process = None;
            return why;
        }
        let (_, since) = match self.process.take() {
            Some(known) if known.0 == process => self.process.insert(known),
            _ => self.process.insert((process, Instant::now())),
        };
        if since.elapsed() < SOCKET_GRACE {
            return why;
        }
        format!(
            "its process runs and has not made its socket {}: {}",
            member.socket.display(),
            command.why_no_socket()
        )
    }
}

/// Waits until the time has passed, or until a failed call requests a probe.
async fn wait_for_next_probe(member: &PluginInstance, wait: Duration) {
    sleep(wait.min(PROBE_PAUSE_MIN)).await;
    tokio::select! {
        () = sleep(wait.saturating_sub(PROBE_PAUSE_MIN)) => {}
        () = member.probe_requested.notified() => {}
    }
}

/// The fingerprint of a healthy instance, or the reason why it is unhealthy.
type ProbeResult = Result<Fingerprint, String>;

/// The state of the probes that the view does not hold.
struct InstanceProbe {
    /// Number of connections that had been opened when the instance was last identified.
    connections: u64,
    /// Number of probes since then.
    probes: u32,
    /// When it is identified again, if it stays healthy.
    identify_at: Instant,
}

impl InstanceProbe {
    async fn probe_instance(&mut self, member: &PluginInstance, timeout: Duration) -> ProbeResult {
        let (client, last) = (&member.client, member.view());
        if let Some(known) = last.fingerprint.as_ref().filter(|_| last.healthy)
            && client.connections() == self.connections
        {
            probe(client, timeout).await?;
            self.probes += 1;
            let reads_version = self.probes.is_multiple_of(PROBES_PER_VERSION_READ);
            let same = !reads_version || has_same_version(client, known, timeout).await;
            if same && client.connections() == self.connections {
                return Ok(self.refresh(member, known, timeout).await);
            }
        }
        let before = client.connections();
        let seen = identify(client, timeout).await.map_err(|error| match error {
            IdentifyError::Call(error) if error.code() == Some(Code::FailedPrecondition) => {
                format!("the plugin says that it is unhealthy: {error}")
            }
            error => error.to_string(),
        });
        // If a connection was opened meanwhile, two processes may have answered. The next probe
        // identifies again.
        self.connections = before;
        self.probes = 0;
        self.schedule_identify();
        seen
    }

    /// The fingerprint of a healthy instance, identified again if that is due or requested. Without
    /// an answer the known one stays: the instance is healthy by its probe.
    async fn refresh(
        &mut self,
        member: &PluginInstance,
        known: &Fingerprint,
        timeout: Duration,
    ) -> Fingerprint {
        if !member.take_identify_request() && Instant::now() < self.identify_at {
            return known.clone();
        }
        self.schedule_identify();
        identify(&member.client, timeout).await.unwrap_or_else(|error| {
            let (plugin, instance) = (&member.declaration.id, &member.key);
            tracing::debug!(%plugin, instance, %error, "a healthy plugin was not identified again");
            known.clone()
        })
    }

    fn schedule_identify(&mut self) {
        self.identify_at = Instant::now() + IDENTIFY_INTERVAL.wait(1, clock::jitter());
    }
}

async fn probe(client: &Client, timeout: Duration) -> Result<(), String> {
    match berth_csi::probe(client, timeout).await {
        Ok(true) => Ok(()),
        Ok(false) => Err("the plugin says that it is not ready".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the plugin's name and version are unchanged. No answer counts as unchanged: the next
/// probe finds out whether the plugin is healthy.
async fn has_same_version(client: &Client, known: &Fingerprint, timeout: Duration) -> bool {
    let info = client.call(v1::GetPluginInfoRequest {}, timeout).await;
    info.map_or(true, |info| {
        // A version that the fingerprint shortened always differs. It is then identified again.
        info.name == known.name && info.vendor_version == known.vendor_version
    })
}

/// Stores the result of a probe. The registry gets each change and publishes the event.
fn record_probe(member: &PluginInstance, seen: ProbeResult, plugin: &Plugin) {
    let last = member.view();
    let seen = seen.map(|fingerprint| (fingerprint, member.process()));
    let next = next_view(&last, seen, clock::now());
    if next == last {
        return;
    }
    let (id, instance, why) = (&plugin.id, &member.key, &next.description);
    if next.healthy == last.healthy {
        tracing::debug!(plugin = %id, instance, why, "a plugin is seen otherwise");
    } else {
        let healthy = next.healthy;
        tracing::info!(plugin = %id, instance, healthy, why, "a plugin's health changed");
    }
    plugin.set_instance_view(member, next);
}

/// The view after a probe. The fingerprint and the process stay known if the plugin does not
/// answer.
fn next_view(
    last: &InstanceView,
    seen: Result<(Fingerprint, Option<HoldingProcess>), String>,
    now: Timestamp,
) -> InstanceView {
    let seen = seen.and_then(|(seen, process)| Ok((check_same_driver(last, seen)?, process)));
    let healthy = seen.is_ok();
    let since = if healthy == last.healthy { last.since } else { now };
    match seen {
        Ok((fingerprint, process)) => InstanceView {
            healthy,
            description: format!("{} {} is ready", fingerprint.name, fingerprint.vendor_version),
            since,
            fingerprint: Some(fingerprint),
            process,
        },
        Err(reason) => InstanceView {
            healthy,
            description: reason,
            since,
            fingerprint: last.fingerprint.clone(),
            process: last.process.clone(),
        },
    }
}

/// Refuses another driver. Another version is an upgrade. Another name is another driver: it does
/// not know the mounted volumes, and would report success for an unmount that it did not make.
fn check_same_driver(last: &InstanceView, seen: Fingerprint) -> ProbeResult {
    match &last.fingerprint {
        Some(known) if known.name != seen.name => Err(format!(
            "it was {}, and says that it is {} now: another driver has taken its place; if that is \
             meant, restart the agent, or give the other driver an id of its own",
            known.name, seen.name
        )),
        _ => Ok(seen),
    }
}

#[cfg(test)]
mod tests {
    use berth_csi::advertised::{PluginServices, VolumeExpansion};

    use super::*;

    fn fingerprint(version: &str) -> Fingerprint {
        Fingerprint {
            name: "csi.example".to_owned(),
            vendor_version: version.to_owned(),
            services: PluginServices::default(),
            expansion: VolumeExpansion::default(),
            group_snapshots: false,
            controller: None,
            node: None,
        }
    }

    #[test]
    fn a_view_keeps_its_time_while_health_is_unchanged_and_the_rest_while_unhealthy() {
        let at = Timestamp::from_unix_ms;
        let process = |pid| Some(HoldingProcess { pid, command: "plugin".to_owned() });
        let new = InstanceView {
            healthy: false,
            description: String::new(),
            since: at(1),
            fingerprint: None,
            process: None,
        };
        let away = next_view(&new, Err("no such file".to_owned()), at(2));
        assert_eq!((away.since, away.description.as_str()), (at(1), "no such file"));
        let well = next_view(&away, Ok((fingerprint("1"), process(7))), at(3));
        assert!(well.healthy && well.since == at(3));
        let still = next_view(&well, Ok((fingerprint("1"), process(7))), at(4));
        assert_eq!(still, well);
        let replaced = next_view(&well, Ok((fingerprint("1"), process(8))), at(4));
        assert_eq!((replaced.since, &replaced.process), (at(3), &process(8)));
        let gone = next_view(&replaced, Err("no answer".to_owned()), at(5));
        assert!(!gone.healthy && gone.since == at(5));
        assert_eq!((&gone.fingerprint, &gone.process), (&Some(fingerprint("1")), &process(8)));
        let upgraded = next_view(&gone, Ok((fingerprint("2"), process(9))), at(6));
        assert_eq!(upgraded.fingerprint, Some(fingerprint("2")));
        let other = Fingerprint { name: "csi.other".to_owned(), ..fingerprint("2") };
        let usurped = next_view(&upgraded, Ok((other, process(10))), at(7));
        assert!(!usurped.healthy && usurped.description.contains("csi.other"), "{usurped:?}");
        assert_eq!(
            (&usurped.fingerprint, &usurped.process),
            (&Some(fingerprint("2")), &process(9))
        );
    }
}
