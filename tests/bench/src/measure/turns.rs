//! Rows that take turns, so that a noisy minute hits all of them alike.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use berth_bus::Bucket;
use berth_contract::key;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use bytes::Bytes;
use futures_util::FutureExt as _;

use super::Effort;
use crate::Fatal;
use crate::ask;
use crate::bare::{self, Asked};
use crate::load::{self, Done, Operation, Round, Supply};
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stats::{Sample, count, median};

/// One row to be: what is measured, and the stream its writes are counted in.
pub struct Lane {
    pub name: &'static str,
    pub operation: Operation,
    pub stream: Bucket,
}

impl Lane {
    /// A lane whose writes go to a bucket.
    pub fn new(name: &'static str, operation: Operation, bucket: &Bucket) -> Self {
        Self { name, operation, stream: bucket.clone() }
    }
}

/// What became of it.
pub struct Turned {
    pub name: &'static str,
    pub sample: Sample,
    /// Durable writes per operation.
    pub writes: f64,
    /// What each process worked per operation, in microseconds of a processor.
    pub cpu_us: BTreeMap<String, f64>,
}

/// Starts what rates are measured with; answers the value that a claim writes.
pub async fn prepare(site: &mut Site) -> Result<Vec<u8>, Fatal> {
    site.start_claims().await?;
    site.start_stand_in().await?;
    let value = site.start_bare().await?;
    site.lead_from_the_first().await?;
    Ok(value)
}

/// What one lane brought, round by round.
#[derive(Default, Clone)]
struct Seen {
    samples: Vec<Sample>,
    writes: Vec<f64>,
    cpu_us: BTreeMap<String, Vec<f64>>,
}

/// All lanes, one after another, round after round; the median of each.
pub async fn take(
    site: &Site,
    lanes: &[Lane],
    at_once: u32,
    effort: &Effort,
) -> Result<Vec<Turned>, Fatal> {
    let mut seen = vec![Seen::default(); lanes.len()];
    for _ in 0..effort.rounds {
        for (lane, seen) in lanes.iter().zip(&mut seen) {
            let (before, worked) = (lane.stream.head(">").await?, site.worked()?);
            let done = once(lane, at_once, effort.round).await;
            let done = done.map_err(|error| format!("{}: {error}", lane.name))?;
            let operations = count(done.operations);
            for (process, us) in site.worked_each(&worked, done.operations)? {
                seen.cpu_us.entry(process).or_default().push(us);
            }
            let written = lane.stream.head(">").await?.saturating_sub(before);
            seen.samples.extend(done.sample);
            seen.writes.push(count(usize::try_from(written)?) / operations);
        }
    }
    let turned = lanes.iter().zip(seen).map(|(lane, seen)| {
        let nothing = || format!("{}: nothing was measured", lane.name);
        let cpu_us = seen.cpu_us.into_iter();
        Ok(Turned {
            name: lane.name,
            sample: Sample::median(&seen.samples).ok_or_else(nothing)?,
            writes: median(seen.writes).ok_or_else(nothing)?,
            cpu_us: cpu_us.filter_map(|(process, us)| Some((process, median(us)?))).collect(),
        })
    });
    turned.collect()
}

/// One round, longer where nothing ended in it: a machine may be that busy.
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

impl Turned {
    /// The row, but for its limit.
    pub fn row(&self, part: Part, at_once: u32, servers: u32) -> Row {
        Row {
            writes: Some(self.writes),
            // What hardly worked is not worth a word.
            cpu_us: self.cpu_us.iter().filter(|(_, us)| **us >= 1.0).map(owned).collect(),
            ..Row::new(part, self.name, at_once, servers).sample(&self.sample)
        }
    }
}

fn owned((process, us): (&String, &f64)) -> (String, f64) {
    (process.clone(), *us)
}

/// Volumes for so many operations a second are there, however slow a trial was.
const SLOWEST: f64 = 2_500.0;

/// How many volumes a lane uses up in all its rounds. No lane is faster than raw writes are, so
/// those are tried for a moment; generously, since the moment may be a bad one.
pub async fn enough(
    bucket: &Bucket,
    value: &Bytes,
    at_once: u32,
    effort: &Effort,
) -> Result<usize, Fatal> {
    let round = Round { warm_up: effort.round.warm_up / 2, measured: effort.round.measured / 4 };
    let done = load::run(at_once as usize, round, &fresh(bucket, value)).await?;
    let seconds = (effort.round.warm_up + effort.round.measured).as_secs_f64();
    let rate = done.sample.map_or(0.0, |sample| sample.per_second).max(SLOWEST);
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
    let prepared = Arc::new(std::sync::Mutex::new(Vec::with_capacity(many)));
    let (out, bucket, value, prefix) =
        (Arc::clone(&prepared), bucket.clone(), value.clone(), prefix.to_owned());
    ask::fill(many, move |at| {
        let (out, bucket, value) = (Arc::clone(&out), bucket.clone(), value.clone());
        let id = format!("{prefix}-{at:06}");
        async move {
            let volume = volume(&id)?;
            let asked =
                Asked { key: key::spec(&volume), filter: key::subtree(&volume), revision: 0 };
            let revision = bare::write(&bucket, &asked, value, ask::trace()).await?;
            let mut out = out.lock().map_err(|_| "a filler failed")?;
            out.push(Prepared { id, revision });
            Ok(())
        }
    })
    .await?;
    let mut prepared = prepared.lock().map_err(|_| "a filler failed")?;
    Ok(Supply::new(std::mem::take(&mut *prepared)))
}

fn volume(id: &str) -> Result<VolumeKey, Fatal> {
    Ok(VolumeKey::new(Namespace::default(), VolumeId::new(id)?))
}

fn asked(prepared: &Prepared) -> Result<Asked, Fatal> {
    let volume = volume(&prepared.id)?;
    Ok(Asked {
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
            bare::write(&bucket, &asked(prepared)?, value, ask::trace()).await?;
            Ok(true)
        }
        .boxed()
    })
}

/// Guarded writes of new keys: a short look at the speed of the bus.
fn fresh(bucket: &Bucket, value: &Bytes) -> Operation {
    let (run, next) = (rand::random::<u32>(), Arc::new(AtomicUsize::new(0)));
    let (bucket, value) = (bucket.clone(), value.clone());
    Arc::new(move |_| {
        let (bucket, value) = (bucket.clone(), value.clone());
        let id = format!("fresh{run:08x}-{:06}", next.fetch_add(1, Ordering::Relaxed));
        async move {
            bare::write(&bucket, &asked(&Prepared { id, revision: 0 })?, value, ask::trace())
                .await?;
            Ok(true)
        }
        .boxed()
    })
}

/// The guarded write, made by the bare service, which has a subject for each of its buckets.
pub fn bare(site: &Site, subject: &'static str, supply: Arc<Supply<Prepared>>) -> Operation {
    let bus = site.bus.clone();
    Arc::new(move |_| {
        let (bus, supply) = (bus.clone(), Arc::clone(&supply));
        async move {
            let Some(prepared) = supply.take() else { return Ok(false) };
            let body = serde_json::to_value(asked(prepared)?)?;
            ask::ask(&bus, subject, &body).await?;
            Ok(true)
        }
        .boxed()
    })
}

/// A volume and the alloc that asks for it.
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
    let pair = |prefix: &str, at: usize| Pair {
        volume: format!("{prefix}-{at:06}"),
        alloc: format!("alloc-{prefix}-{at:06}"),
    };
    let (bus, namespace, own) = (site.bus.clone(), namespace.clone(), prefix.to_owned());
    ask::fill(many, move |at| {
        let (bus, namespace, Pair { volume, alloc }) =
            (bus.clone(), namespace.clone(), pair(&own, at));
        async move {
            let access = "single-node-writer";
            ask::register_volume(&bus, &namespace, &volume, plugin, access).await?;
            ask::register_alloc(&bus, &namespace, &alloc, &volume).await
        }
    })
    .await?;
    Ok((0..many).map(|at| pair(prefix, at)).collect())
}

/// A claim through the claim service.
pub fn claim(site: &Site, supply: Arc<Supply<Pair>>) -> Operation {
    let bus = site.bus.clone();
    let subject: Arc<str> = verb::ClaimTake::subject(&Site::namespace()).into();
    Arc::new(move |_| {
        let (bus, supply, subject) = (bus.clone(), Arc::clone(&supply), Arc::clone(&subject));
        async move {
            let Some(Pair { volume, alloc }) = supply.take() else { return Ok(false) };
            let body = serde_json::json!({
                "alloc": alloc, "volume": volume, "node": ask::NODE, "mode": "write",
            });
            ask::ask(&bus, &subject, &body).await?;
            Ok(true)
        }
        .boxed()
    })
}
