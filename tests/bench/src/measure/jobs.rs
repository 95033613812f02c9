//! A scheduler's jobs, from their placement to free volumes, with a real agent, driver and mounts.
//!
//! A job does nothing: measured is all that surrounds it. The limit is the plugin's own call times,
//! as if the calls of parallel jobs never waited for each other.

use std::time::Duration;

use berth_client::scheduler::{Deadlines, Scheduler};
use berth_contract::message::alloc::{RegisterAlloc, WaitUntil};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{AllocId, Namespace, OwnerId, VolumeId};
use tokio::time::Instant;

use super::Effort;
use super::mounts::{self, PLUGIN};
use crate::row::{Part, Row};
use crate::stats::{Sample, count};
use crate::{Fatal, ask, load};

/// Parallel jobs.
const TOGETHER: u32 = 16;
/// The volume that all jobs share.
const SHARED: &str = "shared";
/// How long one job may take.
const JOB_WITHIN: Duration = Duration::from_secs(60);

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let Some(site) = mounts::start_with_driver("the rows of jobs").await? else {
        return Ok(Vec::new());
    };
    let namespace = Namespace::default();
    let register = async |volume: &str, access: &str| {
        mounts::provision(&site.path("backend"), volume)?;
        ask::register_volume(&site.bus, &namespace, volume, PLUGIN, access).await.map(drop)
    };
    register(SHARED, "multi-node-multi-writer").await?;
    for number in 0..TOGETHER as usize {
        register(&own(number), "single-node-writer").await?;
    }
    let owner = OwnerId::new("bench")?;
    let ttl = Duration::from_secs(15);
    let scheduler = Scheduler::on(site.bus.clone(), namespace, owner, ttl).await?;
    let mut rows = Vec::new();
    for (name, at_once, is_shared) in [
        ("job, own volume", 1, false),
        ("job, own volume", TOGETHER, false),
        ("job, shared volume", TOGETHER, true),
    ] {
        let jobs_each = effort.mounts;
        let volume = |number| if is_shared { SHARED.to_owned() } else { own(number) };
        // The first jobs find everything cold.
        crowd(&scheduler, "warm", at_once, 2, volume).await?;
        let log = site.path("calls");
        let (before, requests) = (std::fs::metadata(&log)?.len(), scheduler.requests());
        let began = Instant::now();
        let times = crowd(&scheduler, "job", at_once, jobs_each, volume).await?;
        let (took, jobs) = (began.elapsed(), count(times.len()));
        let requests = scheduler.requests() - requests;
        let calls = mounts::seconds_of_all_since(&log, before)? / jobs;
        let sample = Sample::new(times, took).ok_or("no job was run")?;
        let row = Row::new(Part::Jobs, name, at_once, 1).sample(&sample);
        let row = row.limit("the plugin's own calls", f64::from(at_once) / calls);
        rows.push(Row { requests: Some(count(usize::try_from(requests)?) / jobs), ..row });
    }
    scheduler.close().await?;
    Ok(rows)
}

fn own(number: usize) -> String {
    format!("own-{number}")
}

/// Each caller runs `each` jobs, one after another; returns the time of each job.
async fn crowd(
    scheduler: &Scheduler,
    name: &str,
    callers: u32,
    each: usize,
    volume: impl Fn(usize) -> String,
) -> Result<Vec<Duration>, Fatal> {
    let times = load::callers(callers as usize, |caller| {
        let (scheduler, volume) = (scheduler.clone(), volume(caller));
        let name = format!("{name}-{:08x}", rand::random::<u32>());
        async move {
            let volume = VolumeId::new(volume)?;
            let mut times = Vec::with_capacity(each);
            for job in 0..each {
                let began = Instant::now();
                run(&scheduler, format!("{name}-{job}"), &volume).await?;
                times.push(began.elapsed());
            }
            Ok(times)
        }
    });
    Ok(times.await?.concat())
}

/// One job, from its placement until its volume is free.
async fn run(scheduler: &Scheduler, id: String, volume: &VolumeId) -> Result<(), Fatal> {
    let volumes = [VolumeRequest::for_volume(volume.clone())];
    let nodes = scheduler.nodes_for(&volumes, None).await?;
    let candidate = nodes.now.first().or(nodes.later.first()).ok_or("no node takes the volume")?;
    let register = RegisterAlloc::new(AllocId::new(id)?, candidate.node.clone(), volumes.to_vec());
    let job = scheduler.register(register).await?;
    let deadlines = Deadlines { attempt: JOB_WITHIN, overall: JOB_WITHIN };
    job.mount(true, deadlines).await?;
    job.stop(AllocState::Complete, "done").await?;
    Ok(job.wait(WaitUntil::Free, JOB_WITHIN).await?)
}
