//! A thousand agents: what they cost while nothing happens, and while plugins flip all the time.
//!
//! What is looked at is the share of one core that the nats-server and the registry work, with
//! everything else running too. A flip is the costliest thing a fingerprint can do: two records
//! and an event.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_bus::{Fold, Mirror, MirrorOptions};
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::Timestamp;
use berth_domain::plugin::Half;
use berth_harness::wait;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Effort;
use crate::Fatal;
use crate::ask;
use crate::row::{Part, Row};
use crate::site::{PATIENCE, Site};
use crate::stats::Sample;

/// How many agents.
const AGENTS: u32 = 1_000;
/// The plugin that each has.
const PLUGIN: &str = "fleet.example";
/// Flips of plugins in a second, all together.
const FLIPS: u64 = 100;
/// The last agents change their health only while the benchmark watches them.
const WATCHED: u32 = 100;
/// How often it is looked whether a flip shows.
const LOOK: Duration = Duration::from_millis(2);
/// The longest that the whole fleet may take to come up, on a busy machine.
const COMING_UP: Duration = Duration::from_secs(300);

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_releases().await?;
    let args = [("--nats", site.url().into()), ("--agents", AGENTS.to_string().into())];
    let args = args.into_iter().chain([("--access", site.access().into_os_string())]);
    site.start_program(
        "berth-fleet",
        "fleet",
        args.flat_map(|(flag, value)| [flag.into(), value]),
    )?;
    come_up(&site).await;
    sleep(effort.settled).await;
    let row = |name: String| Row::new(Part::Fleet, name, AGENTS, 1);
    let idle = shares(&site, sleep(effort.idle)).await?.1;
    let mut rows = vec![Row { core_percent: idle, ..row(format!("{AGENTS} agents, idle")) }];
    let (waiting, busy) = churn(&site, effort).await?;
    let depth = Row { waiting: Some(waiting), core_percent: busy, ..row(churning("")) };
    rows.push(depth);
    let seen = watched(&site, effort).await?;
    rows.push(row(churning(", until plugin.status shows one")).sample(&seen));
    Ok(rows)
}

fn churning(what: &str) -> String {
    format!("{AGENTS} agents, {FLIPS} plugins flip a second{what}")
}

/// Waits until the registry counts every agent's plugin healthy.
async fn come_up(site: &Site) {
    wait::until("the fleet is up", COMING_UP, async || {
        let asked = json!({"id": PLUGIN, "limit": 1});
        let answer = ask::ask(&site.bus, &verb::PluginStatus::subject(&()), &asked).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let nodes = &answer["plugins"][0]["nodes"];
        if nodes["healthy"] == AGENTS { Ok(()) } else { Err(nodes.to_string()) }
    })
    .await;
}

/// What each process works meanwhile, in hundredths of one core.
async fn shares<T>(
    site: &Site,
    meanwhile: impl Future<Output = T>,
) -> Result<(T, BTreeMap<String, f64>), Fatal> {
    let (began, before) = (Instant::now(), site.worked()?);
    let ended = meanwhile.await;
    let (took, after) = (began.elapsed().as_secs_f64(), site.worked()?);
    let share = |(process, worked): (String, Duration)| {
        let before = before.get(&process).copied().unwrap_or_default();
        let share = worked.saturating_sub(before).as_secs_f64() / took * 100.0;
        (process, share)
    };
    Ok((ended, after.into_iter().map(share).collect()))
}

/// Flips plugins all the time; says how many changes waited at once to be stored, at most.
async fn churn(site: &Site, effort: &Effort) -> Result<(u64, BTreeMap<String, f64>), Fatal> {
    let arrivals = Arrivals::default();
    let plugins = site.bus.bucket(&bucket::PLUGINS, site.copies()).await?;
    let mirror = Mirror::start(&plugins, ">", arrivals.clone(), MirrorOptions::default()).await?;
    arrivals.take();
    let flips = flip(site, effort.flips);
    let (made, busy) = shares(site, flips).await?;
    let made = made?;
    wait::until("every flip is stored", PATIENCE, async || {
        let stored = arrivals.count();
        if stored >= made { Ok(()) } else { Err(format!("{stored} of {made}")) }
    })
    .await;
    drop(mirror);
    Ok((most_at_once(&arrivals.take()), busy))
}

/// Flips plugins for so long; answers how many flips that were.
async fn flip(site: &Site, over: Duration) -> Result<u64, Fatal> {
    let asked = json!({
        "agents": AGENTS - WATCHED, "per_second": FLIPS, "seconds": over.as_secs(),
    });
    let call = berth_bus::Call::within(ask::trace(), over + PATIENCE);
    let answer: Value = site.bus.request("bench.fleet.churn", &asked, &call).await?;
    Ok(answer["changes"].as_u64().ok_or("the fleet does not say how many flips it made")?)
}

/// While plugins flip all the time: how long until `plugin.status` shows that one did.
async fn watched(site: &Site, effort: &Effort) -> Result<Sample, Fatal> {
    let began = Instant::now();
    let looking = async {
        let mut times = Vec::new();
        while began.elapsed() < effort.flips {
            let agent = AGENTS - WATCHED + u32::try_from(times.len())? % WATCHED;
            times.push(shows(site, agent, times.len()).await?);
        }
        Sample::of_sequence(times).ok_or_else(|| "nothing flipped".into())
    };
    let (flips, seen) = tokio::join!(flip(site, effort.flips), looking);
    flips.and(seen)
}

async fn shows(site: &Site, agent: u32, number: usize) -> Result<Duration, Fatal> {
    let (node, says) = (format!("fleet-{agent:04}"), format!("watched {number}"));
    let began = Instant::now();
    let order = json!({"agent": agent, "description": says});
    ask::ask(&site.bus, "bench.fleet.change", &order).await?;
    while began.elapsed() < PATIENCE {
        let asked = json!({"id": PLUGIN, "node": node});
        let shown = ask::ask(&site.bus, &verb::PluginStatus::subject(&()), &asked).await?;
        if shown["plugins"][0]["instances"][0]["description"] == says {
            return Ok(began.elapsed());
        }
        sleep(LOOK).await;
    }
    Err(format!("a change of {node} did not show").into())
}

/// As much of an instance's record as says when it changed.
#[derive(Deserialize)]
struct Since {
    since: Timestamp,
}

/// When each instance's record changed, and when that was stored: both in milliseconds since 1970.
#[derive(Clone, Default)]
struct Arrivals(Arc<Mutex<Vec<(u64, u64)>>>);

impl Arrivals {
    fn take(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

impl Fold for Arrivals {
    fn put(&mut self, key: &str, _revision: u64, value: &[u8]) {
        // An agent that has the plugin's controller, too, tells of two halves at once.
        let Some((_, _, Half::Node)) = key::parse_instance(key) else { return };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        if let Ok(Since { since }) = serde_json::from_slice(value) {
            let arrived = (since.unix_ms(), now);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(arrived);
        }
    }

    fn delete(&mut self, _key: &str, _revision: u64) {}
}

/// How many of these were under way at the same time, at most.
fn most_at_once(spans: &[(u64, u64)]) -> u64 {
    let mut steps: Vec<(u64, i64)> =
        spans.iter().flat_map(|(begin, end)| [(*begin, 1), (*end, -1)]).collect();
    // Of one moment the ends first.
    steps.sort_unstable();
    let running = steps.iter().scan(0, |under_way: &mut i64, (_, step)| {
        *under_way += step;
        Some(*under_way)
    });
    running.max().and_then(|most| u64::try_from(most).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_at_once_is_counted_where_it_overlaps() {
        assert_eq!(most_at_once(&[]), 0);
        assert_eq!(most_at_once(&[(1, 5), (2, 4), (4, 9), (10, 12)]), 2);
        assert_eq!(most_at_once(&[(1, 9), (2, 9), (3, 9), (9, 10)]), 3);
    }
}
