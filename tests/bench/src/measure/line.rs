//! A line for one volume: each of many waiters takes it in turn and releases it at once.
//!
//! The limit is the same claims and releases without a queue.

use std::time::Duration;

use berth_bus::Bus;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Effort;
use crate::Fatal;
use crate::ask::{self, NODE};
use crate::bare;
use crate::freed::Freed;
use crate::identity;
use crate::load;
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::PLAIN;
use crate::stats::Sample;

const VOLUME: &str = "line";
/// Claims that are taken and released without a queue.
const ALONE: usize = 50;
/// Waiters of one sender. The service takes a quarter of its places, 256, from one sender.
const OF_ONE_SENDER: usize = 200;
/// Pause of a waiter before it repeats its request.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a waiter repeats its request.
const PATIENCE: Duration = Duration::from_secs(300);

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_releases().await?;
    site.start_stand_in().await?;
    let namespace = Namespace::default();
    let waiters = effort.waiters;
    ask::register_volume(&site.bus, &namespace, VOLUME, PLAIN, "single-node-writer").await?;
    let all = site.bus.clone();
    ask::fill(waiters + ALONE, move |number| {
        let (bus, alloc) = (all.clone(), alloc(number));
        async move { ask::register_alloc(&bus, &Namespace::default(), &alloc, VOLUME).await }
    })
    .await?;
    let alone = alone(&site, waiters).await?;
    let mut senders = Vec::new();
    for number in 0..waiters.div_ceil(OF_ONE_SENDER) {
        let config = identity::config(&site.access(), site.url(), &format!("line-{number}"))?;
        senders.push(Bus::connect(bare::plain(config)).await?);
    }
    let began = Instant::now();
    let turns = load::callers(waiters, |number| {
        let sender = senders[number / OF_ONE_SENDER].clone();
        async move {
            hold(sender, number).await?;
            Ok(began.elapsed())
        }
    });
    let sample = Sample::new(turns.await?, began.elapsed()).ok_or("nobody had a turn")?;
    let name = format!("{waiters} in line for one volume");
    let row = Row::new(Part::Line, name, u32::try_from(waiters)?, 1).sample(&sample);
    Ok(vec![row.limit("claims and releases one after another, with nobody in line", alone)])
}

fn alloc(at: usize) -> String {
    format!("line-{at:04}")
}

/// How many claims a second are taken and free again, one after another, without a queue.
async fn alone(site: &Site, first: usize) -> Result<f64, Fatal> {
    let namespace = Namespace::default();
    let freed = Freed::watch(&site.volumes().await?, &namespace).await?;
    let mut times = Vec::with_capacity(ALONE);
    for number in first..first + ALONE {
        let deletion = freed.expect(&namespace, VOLUME, &alloc(number))?;
        let began = Instant::now();
        hold(site.bus.clone(), number).await?;
        deletion.gone().await?;
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
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = ask::ask(&bus, &subject, &take).await {
        if Instant::now() >= deadline {
            return Err(error.into());
        }
        // A request is held for less long than a long line takes.
        sleep(RETRY_PAUSE).await;
    }
    ask::stop_alloc(&bus, &namespace, &alloc).await
}
