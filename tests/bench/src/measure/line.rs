//! A line for one volume: each of many waiters takes it in turn and gives it back at once.
//!
//! Beside it: the same claims and releases without a queue. The queue may cost no more than that.

use std::time::Duration;

use berth_bus::Bus;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Effort;
use crate::Fatal;
use crate::ask::{self, NODE};
use crate::freed::Freed;
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::PLAIN;
use crate::stats::Sample;

const VOLUME: &str = "line";
/// Claims that are taken and released without a queue.
const ALONE: usize = 50;
/// Pause of a waiter before it asks again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// How long a waiter asks again.
const PATIENCE: Duration = Duration::from_secs(300);

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_releases().await?;
    site.start_stand_in().await?;
    let namespace = Namespace::default();
    let (bus, waiters) = (site.bus.clone(), effort.waiters);
    ask::register_volume(&bus, &namespace, VOLUME, PLAIN, "single-node-writer").await?;
    let all = bus.clone();
    ask::fill(waiters + ALONE, move |at| {
        let bus = all.clone();
        async move { ask::register_alloc(&bus, &Namespace::default(), &alloc(at), VOLUME).await }
    })
    .await?;
    let alone = alone(&site, waiters).await?;
    let (began, mut line) = (Instant::now(), JoinSet::new());
    for at in 0..waiters {
        line.spawn(hold(bus.clone(), at));
    }
    let mut times = Vec::new();
    while let Some(held) = line.join_next().await {
        held??;
        times.push(began.elapsed());
    }
    let took = began.elapsed();
    let sample = Sample::new(times, took).ok_or("nobody had a turn")?;
    let name = format!("{waiters} in line for one volume");
    let row = Row::new(Part::Line, name, u32::try_from(waiters)?, 1).sample(&sample);
    Ok(vec![row.limit("claims and releases one after another, with nobody in line", alone)])
}

fn alloc(at: usize) -> String {
    format!("line-{at:04}")
}

/// How many claims a second are taken and free again, one after another.
async fn alone(site: &Site, first: usize) -> Result<f64, Fatal> {
    let namespace = Namespace::default();
    let freed = Freed::watch(&site.volumes().await?, &namespace).await?;
    let mut times = Vec::with_capacity(ALONE);
    for at in first..first + ALONE {
        let gone = freed.expect(&namespace, VOLUME, &alloc(at))?;
        let began = Instant::now();
        hold(site.bus.clone(), at).await?;
        gone.gone().await?;
        times.push(began.elapsed());
    }
    Ok(Sample::of_sequence(times).ok_or("nothing was taken")?.per_second)
}

/// Waits for the volume and gives it back.
async fn hold(bus: Bus, at: usize) -> Result<(), Fatal> {
    let (namespace, alloc) = (Namespace::default(), alloc(at));
    let take = json!({"alloc": alloc, "volume": VOLUME, "node": NODE, "mode": "write",
        "wait": true});
    let subject = verb::ClaimTake::subject(&namespace);
    let until = Instant::now() + PATIENCE;
    while let Err(error) = ask::ask(&bus, &subject, &take).await {
        if Instant::now() >= until {
            return Err(error.into());
        }
        // One sender has a share of the service's places, so some of a long line are told to ask
        // again.
        sleep(AGAIN_AFTER).await;
    }
    let stop = json!({"id": alloc, "state": "complete"});
    ask::about::<verb::AllocStop>(&bus, &namespace, &stop).await.map(drop)
}
