//! Claim to mounted, and release to free, with a real agent, a real driver and real mounts.
//!
//! The limit is the sum of the plugin's own call times, from the driver's log. The rest is Berth's
//! own time.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use berth_bus::Bus;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, NodeId};
use berth_harness::root;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Effort, plugin_back};
use crate::Fatal;
use crate::ask::{self, NODE};
use crate::freed::Freed;
use crate::machine::since_1970;
use crate::row::{AIM, Part, Row};
use crate::site::{self, Site};
use crate::stats::{Sample, median};

/// The driver's plugin id.
pub(super) const PLUGIN: &str = "dev.berth";
/// The driver's process.
pub(super) const DRIVER: &str = "driver";
/// The volume that is mounted, in the backend from the start.
pub(super) const VOLUME: &str = "data";
/// The delay of each call that mounts or unmounts, in the slow rows.
const DELAY_MS: u64 = 20;
const MOUNT_CALLS: [&str; 3] = ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"];
const FREE_CALLS: [&str; 3] =
    ["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"];

/// The time within which a volume shall be free after the plugin's last answer.
const FREED_WITHIN: Duration = Duration::from_millis(250);

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let Some(site) = start_with_driver("the rows of mounts").await? else {
        return Ok(Vec::new());
    };
    let namespace = Namespace::default();
    let access = "single-node-writer";
    ask::register_volume(&site.bus, &namespace, VOLUME, PLUGIN, access).await?;
    let freed = Freed::watch(&site.volumes().await?, &namespace).await?;
    let mut rows = Vec::new();
    for delay_ms in [0, DELAY_MS] {
        plant(&site, delay_ms)?;
        let times = rounds(&site, &freed, delay_ms, effort.mounts).await?;
        rows.extend(times.rows(delay_ms)?);
    }
    plant(&site, 0)?;
    rows.push(plugin_back::measure(&site, &freed, effort.returns).await?);
    Ok(rows)
}

/// Starts a server, all services, a driver and an agent that hosts it. None without root: then a
/// line says which rows are left out.
pub(super) async fn start_with_driver(rows: &str) -> Result<Option<Site>, Fatal> {
    if !root::or_skip(rows) {
        return Ok(None);
    }
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_releases().await?;
    start_node(&mut site)?;
    site.healthy(PLUGIN).await;
    Ok(Some(site))
}

/// Makes a volume in the driver's backend.
pub(super) fn provision(backend: &Path, volume: &str) -> Result<(), Fatal> {
    let driver = site::beside("berth-csi-dev")?;
    let provision = ["provision", "--volume", volume, "--backend"];
    let made = Command::new(driver).args(provision).arg(backend).output()?;
    if made.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&made.stderr).into())
}

/// Starts the driver, and an agent that hosts it.
fn start_node(site: &mut Site) -> Result<(), Fatal> {
    let (backend, socket) = (site.path("backend"), site.path("csi.sock"));
    provision(&backend, VOLUME)?;
    let path = |path: &Path| path.as_os_str().to_owned();
    let args = [
        "serve".into(),
        "--endpoint".into(),
        format!("unix://{}", socket.display()).into(),
        "--node-id".into(),
        "external-n1".into(),
        "--backend".into(),
        path(&backend),
        "--log".into(),
        path(&site.path("calls")),
        "--faults".into(),
        path(&site.path("faults.json")),
    ];
    site.start_program("berth-csi-dev", DRIVER, args)?;
    let config = site::agent_config(&site.path("n1"), PLUGIN, &socket);
    site.service(&site::agent(PLUGIN)?, &config)
}

/// Delays every call that mounts or unmounts. The driver reads the file at each call, so it is
/// replaced as a whole.
pub(super) fn plant(site: &Site, delay_ms: u64) -> Result<(), Fatal> {
    let faults: Vec<Value> = MOUNT_CALLS
        .iter()
        .chain(&FREE_CALLS)
        .filter(|_| delay_ms > 0)
        .map(|rpc| json!({"rpc": rpc, "delay_ms": delay_ms}))
        .collect();
    let (fresh, file) = (site.path("faults.new"), site.path("faults.json"));
    std::fs::write(&fresh, json!(faults).to_string())?;
    Ok(std::fs::rename(fresh, file)?)
}

/// How long each mount and release took, and the plugin's calls in it.
#[derive(Default)]
struct Times {
    mounted: Vec<Duration>,
    freed: Vec<Duration>,
    mount_calls: Vec<f64>,
    free_calls: Vec<f64>,
    /// From the end of the plugin's last call to the claim's end.
    answered: Vec<Duration>,
}

async fn rounds(site: &Site, freed: &Freed, delay_ms: u64, many: usize) -> Result<Times, Fatal> {
    let namespace = Namespace::default();
    let log = site.path("calls");
    let mut times = Times::default();
    // The first round is not counted: it finds everything cold.
    for round in 0..=many {
        let alloc = format!("alloc-{delay_ms}-{round:04}");
        ask::register_alloc(&site.bus, &namespace, &alloc, VOLUME).await?;
        let deletion = freed.expect(&namespace, VOLUME, &alloc)?;
        let before = std::fs::metadata(&log)?.len();
        let began = Instant::now();
        mounted(&site.bus, &alloc, VOLUME).await?;
        let took_mounted = began.elapsed();
        let began = Instant::now();
        ask::stop_alloc(&site.bus, &namespace, &alloc).await?;
        deletion.gone().await?;
        let (took_freed, now) = (began.elapsed(), since_1970());
        if round > 0 {
            times.mounted.push(took_mounted);
            times.freed.push(took_freed);
            let calls = calls_since(&log, before)?;
            times.mount_calls.push(seconds_in(&calls, &MOUNT_CALLS));
            times.free_calls.push(seconds_in(&calls, &FREE_CALLS));
            let last = last_end(&calls).ok_or("the driver's log shows no call")?;
            times.answered.push(now.saturating_sub(last));
        }
    }
    Ok(times)
}

/// Mounts a volume; repeats a refused request. At first the claim service may not know yet that the
/// plugin is healthy; among many mounts the mount table may change each time the agent reads it.
pub(super) async fn mounted(bus: &Bus, alloc: &str, volume: &str) -> Result<(), Fatal> {
    let to = verb::NodeAndNamespace::any_of(NodeId::new(NODE)?);
    let namespace = Namespace::default();
    let mount = json!({"namespace": namespace.as_str(), "alloc": alloc, "volume": volume});
    let mut tries = 0;
    loop {
        match ask::ask(bus, &verb::AgentMount::subject(&to), &mount).await {
            Ok(_) => return Ok(()),
            Err(error) if tries > 50 => return Err(error.into()),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn calls_since(log: &Path, offset: u64) -> Result<Vec<Value>, Fatal> {
    let bytes = std::fs::read(log)?;
    let new = bytes.get(usize::try_from(offset)?..).unwrap_or_default();
    let lines = new.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(serde_json::from_slice).collect::<Result<_, _>>()?)
}

/// How long these calls worked in total, by the beginnings and ends in the driver's log.
fn seconds_in(calls: &[Value], which: &[&str]) -> f64 {
    seconds_of_each(calls, which).sum()
}

/// How long each of these calls worked.
fn seconds_of_each(calls: &[Value], which: &[&str]) -> impl Iterator<Item = f64> {
    let ends = calls.iter().filter(|call| {
        call["entry"] == "end" && call["rpc"].as_str().is_some_and(|rpc| which.contains(&rpc))
    });
    ends.map(|call| {
        let micros = |name: &str| call[name].as_u64().unwrap_or(0);
        Duration::from_micros(micros("end_us").saturating_sub(micros("begin_us"))).as_secs_f64()
    })
}

/// How long all calls that mount or unmount worked in total, after this offset of the log.
pub(super) fn seconds_of_all_since(log: &Path, offset: u64) -> Result<f64, Fatal> {
    let calls = calls_since(log, offset)?;
    Ok(seconds_in(&calls, &MOUNT_CALLS) + seconds_in(&calls, &FREE_CALLS))
}

/// How long each call of this RPC worked, after this offset of the log.
pub(super) fn seconds_of_each_since(log: &Path, from: u64, rpc: &str) -> Result<Vec<f64>, Fatal> {
    Ok(seconds_of_each(&calls_since(log, from)?, &[rpc]).collect())
}

/// When the last of the calls that free a volume ended, since 1970.
fn last_end(calls: &[Value]) -> Option<Duration> {
    let ends = calls.iter().filter(|call| {
        call["entry"] == "end" && call["rpc"].as_str().is_some_and(|rpc| FREE_CALLS.contains(&rpc))
    });
    ends.filter_map(|call| call["end_us"].as_u64()).max().map(Duration::from_micros)
}

impl Times {
    fn rows(self, delay_ms: u64) -> Result<[Row; 3], Fatal> {
        let suffix = match delay_ms {
            0 => String::new(),
            ms => format!(", {ms} ms a call"),
        };
        let row = |name: &str, times: Vec<Duration>, calls: Vec<f64>| {
            // One after another: the rate is that of the median time, as the limit's is.
            let sample = Sample::of_median(times).ok_or("nothing was mounted")?;
            let calls = median(calls).ok_or("the driver's log shows no call")?;
            let row = Row::new(Part::Mounts, format!("{name}{suffix}"), 1, 1).sample(&sample);
            Ok::<_, Fatal>(row.limit("the plugin's own calls", 1.0 / calls))
        };
        let answered = Sample::of_sequence(self.answered).ok_or("nothing was mounted")?;
        let name = format!("last plugin answer to free{suffix}");
        let quarter = 1.0 / FREED_WITHIN.as_secs_f64();
        let answered = Row::new(Part::Mounts, name, 1, 1).sample(&answered);
        Ok([
            row("claim to mounted", self.mounted, self.mount_calls)?,
            row("release to free", self.freed, self.free_calls)?,
            answered.limit(AIM, quarter),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugins_time_is_that_of_the_calls_that_count() {
        let call = |entry: &str, rpc: &str, begin: u64, end: u64| {
            let (begin, end) = (json!(begin), json!(end));
            json!({"entry": entry, "rpc": rpc, "begin_us": begin, "end_us": end})
        };
        let calls = [
            call("begin", "NodeStageVolume", 100, 0),
            call("end", "NodeStageVolume", 100, 1_100),
            call("end", "Probe", 0, 9_000_000),
            call("end", "NodePublishVolume", 2_000, 2_500),
            call("end", "NodeUnpublishVolume", 3_000, 3_700),
        ];
        assert!((seconds_in(&calls, &MOUNT_CALLS) - 0.0015).abs() < 1e-9);
        assert!((seconds_in(&calls, &FREE_CALLS) - 0.0007).abs() < 1e-9);
        assert_eq!(last_end(&calls), Some(Duration::from_micros(3_700)));
    }
}
