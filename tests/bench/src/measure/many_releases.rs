//! Many volumes of one plugin on one node, mounted and then released all at once.
//!
//! With a real agent, a real driver and real mounts; every service in its default configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::Namespace;
use tokio::time::Instant;

use super::Effort;
use super::mounts::{PLUGIN, mounted, plant, provision, start_with_driver};
use crate::Fatal;
use crate::ask;
use crate::freed::Freed;
use crate::row::{AIM, Part, Row};
use crate::site::Site;
use crate::stats::{Sample, count, median_each};

/// How many volumes.
const MANY: usize = 500;
/// The delay of each call that unmounts.
const DELAY_MS: u64 = 50;
/// The time within which all volumes shall be free.
const AIM_ALL_FREE: Duration = Duration::from_secs(2);

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let Some(site) = start_with_driver("the row of many releases").await? else {
        return Ok(Vec::new());
    };
    let freed = Freed::watch(&site.volumes().await?, &Namespace::default()).await?;
    register(&site).await?;
    let mut samples = Vec::new();
    let mut worked = Vec::new();
    for round in 0..effort.crowds {
        let (sample, cpu_us) = once(&site, &freed, round).await?;
        samples.push(sample);
        worked.push(cpu_us);
    }
    let sample = Sample::median(&samples).ok_or("nothing was mounted")?;
    let name = format!("{MANY} released at once, {DELAY_MS} ms a call");
    let row = Row::new(Part::ManyReleases, name, u32::try_from(MANY)?, 1).sample(&sample);
    Ok(vec![row.work(median_each(worked)).limit(AIM, count(MANY) / AIM_ALL_FREE.as_secs_f64())])
}

fn volume(at: usize) -> String {
    format!("many-{at:03}")
}

fn alloc(round: usize, at: usize) -> String {
    format!("many-{round}-{at:03}")
}

async fn register(site: &Site) -> Result<(), Fatal> {
    for at in 0..MANY {
        provision(&site.path("backend"), &volume(at))?;
    }
    let bus = site.bus.clone();
    ask::fill(MANY, move |at| {
        let bus = bus.clone();
        async move {
            let namespace = Namespace::default();
            let access = "single-node-writer";
            ask::register_volume(&bus, &namespace, &volume(at), PLUGIN, access).await
        }
    })
    .await
    .map(drop)
}

/// Mounts all volumes, then ends their allocs all at once. The rate counts until the last volume is
/// free.
async fn once(
    site: &Site,
    freed: &Freed,
    round: usize,
) -> Result<(Sample, BTreeMap<String, f64>), Fatal> {
    let namespace = Namespace::default();
    plant(site, 0)?;
    mount_all(site, round).await?;
    plant(site, DELAY_MS)?;
    let deletions: Vec<_> = (0..MANY)
        .map(|at| freed.expect(&namespace, &volume(at), &alloc(round, at)))
        .collect::<Result<_, _>>()?;
    let (began, before) = (Instant::now(), site.worked()?);
    let times = tokio::spawn(async move {
        let each = deletions.into_iter().map(|deletion| async move {
            deletion.gone().await?;
            Ok::<_, Fatal>(began.elapsed())
        });
        futures_util::future::try_join_all(each).await
    });
    let bus = site.bus.clone();
    ask::fill(MANY, move |at| {
        let bus = bus.clone();
        async move { ask::stop_alloc(&bus, &Namespace::default(), &alloc(round, at)).await }
    })
    .await?;
    let times = times.await??;
    let cpu_us = site.worked_each(&before, MANY)?;
    let took = times.iter().max().copied().ok_or("nothing was mounted")?;
    Ok((Sample::new(times, took).ok_or("nothing was mounted")?, cpu_us))
}

async fn mount_all(site: &Site, round: usize) -> Result<(), Fatal> {
    let bus = site.bus.clone();
    ask::fill(MANY, move |at| {
        let (bus, volume, alloc) = (bus.clone(), volume(at), alloc(round, at));
        async move {
            ask::register_alloc(&bus, &Namespace::default(), &alloc, &volume).await?;
            mounted(&bus, &alloc, &volume).await
        }
    })
    .await
    .map(drop)
}
