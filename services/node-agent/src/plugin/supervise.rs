//! Watching one instance: who it is, and whether it is well.

use std::sync::Arc;
use std::time::Duration;

use berth_csi::{Client, Code, Fingerprint, IdentifyError, identify, v1};
use berth_domain::Timestamp;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::time::{Instant, sleep};

use super::process::ProcessId;
use super::{InstanceView, Plugin, PluginInstance};

/// How often it is looked whether an instance that is away is back.
const AWAY: Duration = Duration::from_millis(200);
/// How soon after one look comes the next, whoever asks for it.
const SOONEST: Duration = Duration::from_millis(20);
/// How long a process may take to make its socket before its absence is explained.
const TIME_TO_SERVE: Duration = Duration::from_secs(2);
/// Every so many probes it is also asked for its version, which may change behind a connection.
const VERSION_EVERY: u32 = 5;

/// How a plugin is watched.
#[derive(Debug, Clone, Copy)]
pub struct ProbeTiming {
    /// How often it is asked.
    pub interval: Duration,
    /// How long it may take to answer.
    pub timeout: Duration,
}

/// Watches an instance until it is `gone`, or until the shutdown, which is its last, unhealthy,
/// view.
///
/// An instance that is well is probed; one that is not, that is new, or that may be another process
/// or version by now, is asked who it is.
pub async fn supervise(
    member: Arc<PluginInstance>,
    plugin: Plugin,
    supervision: ProbeTiming,
    gone: Shutdown,
    shutdown: Shutdown,
) {
    let mut looking = InstanceProbe { connections: 0, probes: 0 };
    let mut unserved = MissingSocket::default();
    let mut wait = Duration::ZERO;
    loop {
        let seen = tokio::select! {
            seen = async {
                wait_for(&member, wait).await;
                looking.probe_instance(&member.client, &member.view(), supervision.timeout).await
            } => seen,
            () = gone.requested() => return,
            () = shutdown.requested() => break,
        };
        // Releases may wait for its return, and a socket that nobody listens at costs nothing.
        let often = if seen.is_ok() { supervision.interval } else { AWAY };
        wait = often.min(supervision.interval);
        let seen = seen.map_err(|why| unserved.explain(&member, why));
        record_probe(&member, seen, &plugin);
    }
    record_probe(&member, Err("the agent is stopping".to_owned()), &plugin);
}

/// Since when a process of ours has run without making its socket.
#[derive(Default)]
struct MissingSocket {
    process: Option<(ProcessId, Instant)>,
}

impl MissingSocket {
    /// Adds to the reason why an instance is unhealthy that its process serves no socket, once it
    /// has had the time to. The words stay the same from look to look, so that they are told once.
    fn explain(&mut self, member: &PluginInstance, why: String) -> String {
        let (Some(command), Some(process)) =
            (member.declaration.command(), member.record().process)
        else {
            self.process = None;
            return why;
        };
        if std::fs::symlink_metadata(&member.socket).is_ok() {
            self.process = None;
            return why;
        }
        let (_, since) = match self.process.take() {
            Some(known) if known.0 == process => self.process.insert(known),
            _ => self.process.insert((process, Instant::now())),
        };
        if since.elapsed() < TIME_TO_SERVE {
            return why;
        }
        format!(
            "its process runs and has not made its socket {}: {}",
            member.socket.display(),
            command.why_no_socket()
        )
    }
}

/// Waits for so long, or until somebody found that the instance does not answer.
async fn wait_for(member: &PluginInstance, wait: Duration) {
    sleep(wait.min(SOONEST)).await;
    tokio::select! {
        () = sleep(wait.saturating_sub(SOONEST)) => {}
        () = member.probe_requested.notified() => {}
    }
}

/// Well, as who it is; or the reason why not, in words.
type ProbeResult = Result<Fingerprint, String>;

/// What was last seen through the connection, beside the view.
struct InstanceProbe {
    /// How often a connection had been opened when it was asked who it is.
    connections: u64,
    /// Probes since then.
    probes: u32,
}

impl InstanceProbe {
    async fn probe_instance(
        &mut self,
        client: &Client,
        last: &InstanceView,
        timeout: Duration,
    ) -> ProbeResult {
        if let Some(known) = last.fingerprint.as_ref().filter(|_| last.healthy)
            && client.connections() == self.connections
        {
            probe(client, timeout).await?;
            self.probes += 1;
            let asks = self.probes.is_multiple_of(VERSION_EVERY);
            let same = !asks || is_same(client, known, timeout).await;
            if same && client.connections() == self.connections {
                return Ok(known.clone());
            }
        }
        let before = client.connections();
        let seen = identify(client, timeout).await.map_err(|error| match error {
            IdentifyError::Call(error) if error.code() == Some(Code::FailedPrecondition) => {
                format!("the plugin says that it is unhealthy: {error}")
            }
            error => error.to_string(),
        });
        // Over more than one new connection the answers may be two processes'.
        let after = client.connections();
        self.connections = if after > before + 1 { before } else { after };
        self.probes = 0;
        seen
    }
}

async fn probe(client: &Client, timeout: Duration) -> Result<(), String> {
    match berth_csi::probe(client, timeout).await {
        Ok(true) => Ok(()),
        Ok(false) => Err("the plugin says that it is not ready".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether it is still of the version that it was. One that does not say so counts as the same:
/// the next probe tells whether it is well.
async fn is_same(client: &Client, known: &Fingerprint, timeout: Duration) -> bool {
    let info = client.call(v1::GetPluginInfoRequest {}, timeout).await;
    info.map_or(true, |info| {
        // A version that was shortened differs, and is read again each time.
        info.name == known.name && info.vendor_version == known.vendor_version
    })
}

/// Takes in what was seen; the registry, which is told of each change, makes the event of it.
fn record_probe(member: &PluginInstance, seen: ProbeResult, plugin: &Plugin) {
    let last = member.view();
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

/// The view after what was seen: what the plugin can do stays known when it does not answer.
fn next_view(last: &InstanceView, seen: ProbeResult, now: Timestamp) -> InstanceView {
    let seen = seen.and_then(|seen| check_same_driver(last, seen));
    let healthy = seen.is_ok();
    let since = if healthy == last.healthy { last.since } else { now };
    match seen {
        Ok(fingerprint) => InstanceView {
            healthy,
            description: format!("{} {} is ready", fingerprint.name, fingerprint.vendor_version),
            since,
            fingerprint: Some(fingerprint),
        },
        Err(reason) => InstanceView {
            healthy,
            description: reason,
            since,
            fingerprint: last.fingerprint.clone(),
        },
    }
}

/// Another version is an upgrade; another name is another driver, which knows nothing of what is
/// mounted, and would say of each volume that there is nothing to undo.
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
            controller: None,
            node: None,
        }
    }

    #[test]
    fn health_keeps_its_time_until_it_changes_and_abilities_outlive_it() {
        let at = Timestamp::from_unix_ms;
        let new = InstanceView {
            healthy: false,
            description: String::new(),
            since: at(1),
            fingerprint: None,
        };
        let away = next_view(&new, Err("no such file".to_owned()), at(2));
        assert_eq!((away.since, away.description.as_str()), (at(1), "no such file"));
        let well = next_view(&away, Ok(fingerprint("1")), at(3));
        assert!(well.healthy && well.since == at(3));
        let still = next_view(&well, Ok(fingerprint("1")), at(4));
        assert_eq!(still, well);
        let gone = next_view(&still, Err("no answer".to_owned()), at(5));
        assert!(!gone.healthy && gone.since == at(5));
        assert_eq!(gone.fingerprint, Some(fingerprint("1")));
        let upgraded = next_view(&gone, Ok(fingerprint("2")), at(6));
        assert_eq!(upgraded.fingerprint, Some(fingerprint("2")));
        let other = Fingerprint { name: "csi.other".to_owned(), ..fingerprint("2") };
        let usurped = next_view(&upgraded, Ok(other), at(7));
        assert!(!usurped.healthy && usurped.description.contains("csi.other"), "{usurped:?}");
        assert_eq!(usurped.fingerprint, Some(fingerprint("2")));
    }
}
