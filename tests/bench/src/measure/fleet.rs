//! A thousand agents: their cost while nothing happens, and while plugins flip all the time.
//!
//! Measured is the share of one core that the nats-server and the registry work, with everything
//! else running too. A flip is the costliest change that an agent reports: two records and an
//! event.

use std::collections::BTreeMap;
use std::ops::Range;
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
use crate::machine::ms_since_1970;
use crate::row::{Part, Row};
use crate::site::{PATIENCE, Site};
use crate::stats::Sample;

const AGENTS: u32 = 1_000;
/// The plugin of each agent.
const PLUGIN: &str = "fleet.example";
/// Flips per second, of all agents together.
const FLIPS: u64 = 100;
/// How many agents, the last ones, flip only on the order of [`watched`].
const WATCHED: u32 = 100;
/// How often `plugin.status` is read until it shows a flip.
const READ_INTERVAL: Duration = Duration::from_millis(2);
/// How long the whole fleet may take to come up, on a busy machine.
const FLEET_UP_TIMEOUT: Duration = Duration::from_secs(900);

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_releases().await?;
    start(&mut site, 0..AGENTS, false)?;
    come_up(&site, AGENTS).await;
    sleep(effort.settled).await;
    let row = |name: String| Row::new(Part::Fleet, name, AGENTS, 1);
    let idle = site.shares(sleep(effort.idle)).await?.1;
    let mut rows = vec![Row { core_percent: idle, ..row(format!("{AGENTS} agents, idle")) }];
    let (waiting, busy) = churn(&site, effort).await?;
    let depth = Row { waiting: Some(waiting), core_percent: busy, ..row(churning("")) };
    rows.push(depth);
    let shown = watched(&site, effort).await?;
    rows.push(row(churning(", until plugin.status shows one")).sample(&shown));
    Ok(rows)
}

fn churning(what: &str) -> String {
    format!("{AGENTS} agents, {FLIPS} plugins flip a second{what}")
}

/// Starts a process with the agents of these numbers.
pub fn start(site: &mut Site, numbers: Range<u32>, asks_for_claims: bool) -> Result<(), Fatal> {
    let options = [
        ("--nats", site.url().into()),
        ("--access", site.access().into_os_string()),
        ("--first", numbers.start.to_string().into()),
        ("--agents", numbers.len().to_string().into()),
    ];
    let options = options.into_iter().flat_map(|(flag, value)| [flag.into(), value]);
    let asks = asks_for_claims.then(|| "--asks-for-claims".into());
    let name = format!("fleet-{}", numbers.start);
    site.start_program("berth-fleet", &name, options.chain(asks))
}

/// Waits until the registry counts every agent's plugin healthy.
pub async fn come_up(site: &Site, agents: u32) {
    wait::until("the fleet is up", FLEET_UP_TIMEOUT, async || {
        let query = json!({"id": PLUGIN, "limit": 1});
        let answer = ask::ask(&site.bus, &verb::PluginStatus::subject(&()), &query).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let nodes = &answer["plugins"][0]["nodes"];
        if nodes["healthy"] == agents { Ok(()) } else { Err(nodes.to_string()) }
    })
    .await;
}

/// Flips plugins all the time; returns the most changes that waited at once to be stored, and each
/// process's share of one core.
async fn churn(site: &Site, effort: &Effort) -> Result<(u64, BTreeMap<String, f64>), Fatal> {
    let arrivals = Arrivals::default();
    let plugins = site.bus.bucket(&bucket::PLUGINS, site.copies()).await?;
    let mirror = Mirror::start(&plugins, ">", arrivals.clone(), MirrorOptions::default()).await?;
    arrivals.take();
    let flips = flip(site, effort.flips);
    let (flipped, busy) = site.shares(flips).await?;
    let flipped = flipped?;
    wait::until("every flip is stored", PATIENCE, async || {
        let stored = arrivals.count();
        if stored >= flipped { Ok(()) } else { Err(format!("{stored} of {flipped}")) }
    })
    .await;
    drop(mirror);
    Ok((most_at_once(&arrivals.take()), busy))
}

/// Flips plugins for a time; returns how many flips that were.
async fn flip(site: &Site, duration: Duration) -> Result<u64, Fatal> {
    let order = json!({
        "agents": AGENTS - WATCHED, "per_second": FLIPS, "seconds": duration.as_secs(),
    });
    let call = berth_bus::Call::within(ask::trace(), duration + PATIENCE);
    let answer: Value = site.bus.request("bench.fleet.churn", &order, &call).await?;
    Ok(answer["changes"].as_u64().ok_or("the fleet does not say how many flips it made")?)
}

/// How long until `plugin.status` shows a flip, while other plugins flip all the time.
async fn watched(site: &Site, effort: &Effort) -> Result<Sample, Fatal> {
    let began = Instant::now();
    let watching = async {
        let mut times = Vec::new();
        while began.elapsed() < effort.flips {
            let agent = AGENTS - WATCHED + u32::try_from(times.len())? % WATCHED;
            times.push(shows(site, agent, times.len()).await?);
        }
        Sample::of_sequence(times).ok_or_else(|| "nothing flipped".into())
    };
    let (flips, shown) = tokio::join!(flip(site, effort.flips), watching);
    flips.and(shown)
}

/// Flips one agent's plugin; returns the time until `plugin.status` shows that.
async fn shows(site: &Site, agent: u32, number: usize) -> Result<Duration, Fatal> {
    let (node, description) = (format!("fleet-{agent:04}"), format!("watched {number}"));
    let began = Instant::now();
    let order = json!({"agent": agent, "description": description});
    ask::ask(&site.bus, "bench.fleet.change", &order).await?;
    while began.elapsed() < PATIENCE {
        let query = json!({"id": PLUGIN, "node": node});
        let shown = ask::ask(&site.bus, &verb::PluginStatus::subject(&()), &query).await?;
        if shown["plugins"][0]["instances"][0]["description"] == description {
            return Ok(began.elapsed());
        }
        sleep(READ_INTERVAL).await;
    }
    Err(format!("a change of {node} did not show").into())
}

/// The field of an instance's record that says when it changed.
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
        // An agent with the plugin's controller reports two halves at once: one is counted.
        let Some((_, _, Half::Node)) = key::parse_instance(key) else { return };
        if let Ok(Since { since }) = serde_json::from_slice(value) {
            let arrived = (since.unix_ms(), ms_since_1970());
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(arrived);
        }
    }

    fn delete(&mut self, _key: &str, _revision: u64) {}
}

/// The most of these spans that overlap.
fn most_at_once(spans: &[(u64, u64)]) -> u64 {
    let mut steps: Vec<(u64, i64)> =
        spans.iter().flat_map(|(begin, end)| [(*begin, 1), (*end, -1)]).collect();
    // Of steps at one moment, the ends sort first.
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
