//! Rows that take turns, so that a noisy minute hits all of them alike.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use berth_bus::Bucket;
use berth_contract::key;
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use bytes::Bytes;
use futures_util::FutureExt as _;

use super::Effort;
use crate::Fatal;
use crate::ask;
use crate::bare::{self, WriteRequest};
use crate::load::{self, Done, Operation, Round, Supply};
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stats::{Sample, count, median, median_each};

/// A row to measure: its operation, and the stream in which its writes are counted.
pub struct Lane {
    pub name: &'static str,
    pub operation: Operation,
    pub stream: Bucket,
}

impl Lane {
    pub fn new(name: &'static str, operation: Operation, bucket: &Bucket) -> Self {
        Self { name, operation, stream: bucket.clone() }
    }
}

/// The result of a lane.
pub struct Turned {
    /// Without its limit.
    pub row: Row,
    pub sample: Sample,
}

/// Starts the services whose rates are measured; returns the value that a claim writes.
pub async fn prepare(site: &mut Site) -> Result<Vec<u8>, Fatal> {
    site.start_claims().await?;
    site.start_stand_in().await?;
    let value = site.start_bare().await?;
    site.lead_from_the_first().await?;
    Ok(value)
}

/// The figures of one lane, one of each round.
#[derive(Default, Clone)]
struct LaneRounds {
    samples: Vec<Sample>,
    writes: Vec<f64>,
    cpu_us: Vec<BTreeMap<String, f64>>,
}

/// Runs all lanes in turn, round after round; returns the median of each lane.
pub async fn take(
    site: &Site,
    part: Part,
    lanes: &[Lane],
    at_once: u32,
    effort: &Effort,
) -> Result<Vec<Turned>, Fatal> {
    let mut lane_rounds = vec![LaneRounds::default(); lanes.len()];
    for _ in 0..effort.rounds {
        for (lane, lane_rounds) in lanes.iter().zip(&mut lane_rounds) {
            let (before, worked) = (lane.stream.head(">").await?, site.worked()?);
            let done = once(lane, at_once, effort.round).await;
            let done = done.map_err(|error| format!("{}: {error}", lane.name))?;
            let operations = count(done.operations);
            lane_rounds.cpu_us.push(site.worked_each(&worked, done.operations)?);
            let written = lane.stream.head(">").await?.saturating_sub(before);
            lane_rounds.samples.extend(done.sample);
            lane_rounds.writes.push(count(usize::try_from(written)?) / operations);
        }
    }
    let turned = lanes.iter().zip(lane_rounds).map(|(lane, lane_rounds)| {
        let nothing = || format!("{}: nothing was measured", lane.name);
        let sample = Sample::median(&lane_rounds.samples).ok_or_else(nothing)?;
        let writes = Some(median(lane_rounds.writes).ok_or_else(nothing)?);
        let row = Row::new(part, lane.name, at_once, site.servers).sample(&sample);
        let row = Row { writes, ..row.work(median_each(lane_rounds.cpu_us)) };
        Ok(Turned { row, sample })
    });
    turned.collect()
}

/// Runs one round; repeats it longer if no operation ended in it, as on a very busy machine.
async fn once(lane: &Lane, at_once: u32, round: Round) -> Result<Done, Fatal> {
    let mut done = load::run(at_once as usize, round, &lane.operation).await?;
    for stretch in [4, 16] {
        if done.sample.is_some() {
            break;
        }
        let longer = Round { measured: round.measured * stretch, ..round };
        done = load::run(at_once as usize, longer, &lane.operation).await?;
    }
    Ok(done)
}

/// Least rate, in operations a second, for which [`enough`] provides volumes.
const MIN_RATE: f64 = 2_500.0;

/// How many volumes a lane uses up in all its rounds. No lane is faster than raw writes, so their
/// rate is measured briefly. A quarter is added, because that moment may have been slow.
pub async fn enough(
    bucket: &Bucket,
    value: &Bytes,
    at_once: u32,
    effort: &Effort,
) -> Result<usize, Fatal> {
    let round = Round { warm_up: effort.round.warm_up / 2, measured: effort.round.measured / 4 };
    let done = load::run(at_once as usize, round, &fresh(bucket, value)).await?;
    let seconds = (effort.round.warm_up + effort.round.measured).as_secs_f64();
    let rate = done.sample.map_or(0.0, |sample| sample.per_second).max(MIN_RATE);
    let many = rate * seconds * count(effort.rounds) * 1.25;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
    let many = many.clamp(1_000.0, 200_000.0) as usize;
    Ok(many)
}

/// A volume whose spec is in the bare service's bucket, at a known revision.
pub struct Prepared {
    id: String,
    revision: u64,
}

/// Writes specs into the bare service's bucket, as registering volumes does.
pub async fn prepare_bare(
    bucket: &Bucket,
    value: &Bytes,
    prefix: &str,
    many: usize,
) -> Result<Arc<Supply<Prepared>>, Fatal> {
    let (bucket, value, prefix) = (bucket.clone(), value.clone(), prefix.to_owned());
    let prepared = ask::fill(many, move |at| {
        let (bucket, value) = (bucket.clone(), value.clone());
        let id = format!("{prefix}-{at:06}");
        async move {
            let volume = volume(&id)?;
            let (key, filter) = (key::spec(&volume), key::subtree(&volume));
            let request = WriteRequest { key, filter, revision: 0 };
            let revision = bare::write(&bucket, &request, value, ask::trace()).await?;
            Ok(Prepared { id, revision })
        }
    });
    Ok(Supply::new(prepared.await?))
}

fn volume(id: &str) -> Result<VolumeKey, Fatal> {
    Ok(VolumeKey::new(Namespace::default(), VolumeId::new(id)?))
}

fn claim_write(prepared: &Prepared) -> Result<WriteRequest, Fatal> {
    let volume = volume(&prepared.id)?;
    Ok(WriteRequest {
        key: key::claim(&volume, &AllocId::new(format!("alloc-{}", prepared.id))?),
        filter: key::subtree(&volume),
        revision: prepared.revision,
    })
}

/// The guarded write, made by the load generator itself.
pub fn raw(bucket: &Bucket, value: &Bytes, supply: Arc<Supply<Prepared>>) -> Operation {
    let (bucket, value) = (bucket.clone(), value.clone());
    Arc::new(move |_| {
        let (bucket, value, supply) = (bucket.clone(), value.clone(), Arc::clone(&supply));
        async move {
            let Some(prepared) = supply.take() else { return Ok(false) };
            bare::write(&bucket, &claim_write(prepared)?, value, ask::trace()).await?;
            Ok(true)
        }
        .boxed()
    })
}

/// Guarded writes of new keys, to measure the speed of the bus briefly.
fn fresh(bucket: &Bucket, value: &Bytes) -> Operation {
    let (run, next) = (rand::random::<u32>(), Arc::new(AtomicUsize::new(0)));
    let (bucket, value) = (bucket.clone(), value.clone());
    Arc::new(move |_| {
        let (bucket, value) = (bucket.clone(), value.clone());
        let id = format!("fresh{run:08x}-{:06}", next.fetch_add(1, Ordering::Relaxed));
        async move {
            bare::write(&bucket, &claim_write(&Prepared { id, revision: 0 })?, value, ask::trace())
                .await?;
            Ok(true)
        }
        .boxed()
    })
}

/// The guarded write, made by the bare service. `subject` selects the bucket.
pub fn bare(site: &Site, subject: &'static str, supply: Arc<Supply<Prepared>>) -> Operation {
    let bus = site.bus.clone();
    Arc::new(move |_| {
        let (bus, supply) = (bus.clone(), Arc::clone(&supply));
        async move {
            let Some(prepared) = supply.take() else { return Ok(false) };
            let body = serde_json::to_value(claim_write(prepared)?)?;
            ask::ask(&bus, subject, &body).await?;
            Ok(true)
        }
        .boxed()
    })
}

/// A volume and the alloc that asks for it.
#[derive(Debug, Clone)]
pub struct Pair {
    pub volume: String,
    pub alloc: String,
}

/// Registers volumes of a plugin, each with an alloc of its own.
pub async fn register_pairs(
    site: &Site,
    namespace: &Namespace,
    plugin: &'static str,
    prefix: &str,
    many: usize,
) -> Result<Vec<Pair>, Fatal> {
    let (bus, namespace, prefix) = (site.bus.clone(), namespace.clone(), prefix.to_owned());
    let pairs = ask::fill(many, move |at| {
        let (bus, namespace) = (bus.clone(), namespace.clone());
        let volume = format!("{prefix}-{at:06}");
        async move {
            let (access, alloc) = ("single-node-writer", format!("alloc-{volume}"));
            ask::register_volume(&bus, &namespace, &volume, plugin, access).await?;
            ask::register_alloc(&bus, &namespace, &alloc, &volume).await?;
            Ok(Pair { volume, alloc })
        }
    });
    pairs.await
}

/// A claim through the claim service.
pub fn claim(site: &Site, supply: Arc<Supply<Pair>>) -> Operation {
    let bus = site.bus.clone();
    Arc::new(move |_| {
        let (bus, supply) = (bus.clone(), Arc::clone(&supply));
        async move {
            let Some(Pair { volume, alloc }) = supply.take() else { return Ok(false) };
            ask::take(&bus, &Namespace::default(), alloc, volume).await?;
            Ok(true)
        }
        .boxed()
    })
}
