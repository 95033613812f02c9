//! Watching one plugin: who it is, and whether it is well.

use std::time::Duration;

use berth_csi::{Client, Code, Fingerprint, IdentifyError, identify, v1};
use berth_domain::Timestamp;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::{Plugin, View};

/// How a plugin is watched.
#[derive(Debug, Clone, Copy)]
pub struct Supervision {
    /// How often it is asked.
    pub interval: Duration,
    /// How long it may take to answer.
    pub timeout: Duration,
}

/// Watches a plugin until the shutdown, which is its last, unhealthy, view.
///
/// A plugin that is well is probed; one that is not, or that is new, is asked who it is: another
/// version may have taken its place.
pub async fn supervise(
    plugin: Plugin,
    view: watch::Sender<View>,
    supervision: Supervision,
    shutdown: Shutdown,
) {
    let mut ticks = interval(supervision.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let seen = tokio::select! {
            seen = async {
                ticks.tick().await;
                look(&plugin.client, &plugin.view(), supervision.timeout).await
            } => seen,
            () = shutdown.requested() => break,
        };
        take(&view, seen, &plugin);
    }
    take(&view, Err("the agent is stopping".to_owned()), &plugin);
}

/// Well, as who it is; or the reason why not, in words.
type Seen = Result<Fingerprint, String>;

async fn look(client: &Client, last: &View, timeout: Duration) -> Seen {
    match &last.fingerprint {
        Some(known) if last.healthy => probe(client, timeout).await.map(|()| known.clone()),
        _ => identify(client, timeout).await.map_err(|error| match error {
            IdentifyError::Call(error) if error.code() == Some(Code::FailedPrecondition) => {
                format!("the plugin says that it is unhealthy: {error}")
            }
            error => error.to_string(),
        }),
    }
}

async fn probe(client: &Client, timeout: Duration) -> Result<(), String> {
    match client.call(v1::ProbeRequest {}, timeout).await {
        // An answer without the flag means ready (CSI, Probe).
        Ok(answer) if answer.ready.unwrap_or(true) => Ok(()),
        Ok(_) => Err("the plugin says that it is not ready".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Takes in what was seen; the registry, which is told of each change, makes the event of it.
fn take(view: &watch::Sender<View>, seen: Seen, plugin: &Plugin) {
    let last = view.borrow().clone();
    let next = after(&last, seen, clock::now());
    if next == last {
        return;
    }
    if next.healthy == last.healthy {
        tracing::debug!(plugin = %plugin.id, why = next.description, "a plugin is seen otherwise");
    } else {
        let (healthy, why) = (next.healthy, &next.description);
        tracing::info!(plugin = %plugin.id, healthy, why, "a plugin's health changed");
    }
    view.send_replace(next);
}

/// The view after what was seen: what the plugin can do stays known when it does not answer.
fn after(last: &View, seen: Seen, now: Timestamp) -> View {
    let healthy = seen.is_ok();
    let since = if healthy == last.healthy { last.since } else { now };
    match seen {
        Ok(fingerprint) => View {
            healthy,
            description: format!("{} {} is ready", fingerprint.name, fingerprint.vendor_version),
            since,
            fingerprint: Some(fingerprint),
        },
        Err(reason) => {
            View { healthy, description: reason, since, fingerprint: last.fingerprint.clone() }
        }
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
        let new =
            View { healthy: false, description: String::new(), since: at(1), fingerprint: None };
        let away = after(&new, Err("no such file".to_owned()), at(2));
        assert_eq!((away.since, away.description.as_str()), (at(1), "no such file"));
        let well = after(&away, Ok(fingerprint("1")), at(3));
        assert!(well.healthy && well.since == at(3));
        let still = after(&well, Ok(fingerprint("1")), at(4));
        assert_eq!(still, well);
        let gone = after(&still, Err("no answer".to_owned()), at(5));
        assert!(!gone.healthy && gone.since == at(5));
        assert_eq!(gone.fingerprint, Some(fingerprint("1")));
        let upgraded = after(&gone, Ok(fingerprint("2")), at(6));
        assert_eq!(upgraded.fingerprint, Some(fingerprint("2")));
    }
}
