//! Claims on one volume that many may write: the ten-thousandth must not cost more than the
//! hundredth. The limit is a raw guarded write below a volume with as many keys, because the server
//! compares the guard with the newest of them.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::Bucket;
use berth_contract::key;
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use bytes::Bytes;
use tokio::time::Instant;

use super::Effort;
use crate::Fatal;
use crate::ask;
use crate::bare::{self, BUCKET, WriteRequest};
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::PLAIN;
use crate::stats::{Sample, median_each};

/// The claims that are measured: the [`WINDOW`] claims up to each of these.
const MARKS: [usize; 4] = [100, 1_000, 3_000, 10_000];
const WINDOW: usize = 100;

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_stand_in().await?;
    let value = site.start_bare().await?.into();
    let (mut claims, mut raw): ([Vec<Sample>; 4], [Vec<Sample>; 4]) = Default::default();
    let mut work: [Vec<BTreeMap<String, f64>>; 4] = Default::default();
    for round in 0..effort.shared_rounds {
        let shared = Shared::prepare(&site, &value, round).await?;
        let mut claims_made = 0;
        for (at, mark) in MARKS.into_iter().enumerate() {
            shared.fill(claims_made, mark - WINDOW).await?;
            let sample = |times| Sample::of_sequence(times).ok_or("nothing was made");
            raw[at].push(sample(shared.write(mark - WINDOW, mark).await?)?);
            let before = site.worked()?;
            claims[at].push(sample(shared.claim(mark - WINDOW, mark).await?)?);
            work[at].push(site.worked_each(&before, WINDOW)?);
            claims_made = mark;
        }
    }
    let median_of = |rounds: &[Sample]| Sample::median(rounds).ok_or("nothing was made");
    let figures = claims.iter().zip(&raw).zip(work);
    let rows = MARKS.into_iter().zip(figures).map(|(mark, ((claims, raw), work))| {
        let name = format!("{mark}th claim on one shared volume");
        let row = Row::new(Part::Shared, name, 1, 1).sample(&median_of(claims)?);
        let row = row.work(median_each(work));
        Ok(row.limit("a raw guarded write beside as many keys", median_of(raw)?.per_second))
    });
    rows.collect()
}

/// A volume with many claims, and the same keys in the bare service's bucket for raw writes.
struct Shared<'a> {
    site: &'a Site,
    bucket: Bucket,
    value: &'a Bytes,
    volume: VolumeKey,
}

impl<'a> Shared<'a> {
    async fn prepare(site: &'a Site, value: &'a Bytes, round: usize) -> Result<Self, Fatal> {
        let volume = format!("shared-{round}");
        let namespace = Namespace::default();
        let access = "multi-node-multi-writer";
        ask::register_volume(&site.bus, &namespace, &volume, PLAIN, access).await?;
        let (bus, alloc_namespace, id) = (site.bus.clone(), namespace.clone(), volume.clone());
        ask::fill(MARKS[MARKS.len() - 1], move |at| {
            let (bus, namespace, id) = (bus.clone(), alloc_namespace.clone(), id.clone());
            async move { ask::register_alloc(&bus, &namespace, &alloc(&id, at), &id).await }
        })
        .await?;
        let bucket = site.bus.bucket(&BUCKET, site.copies()).await?;
        let volume = VolumeKey::new(namespace, VolumeId::new(volume)?);
        Ok(Self { site, bucket, value, volume })
    }

    /// Makes the claims and raw writes between two windows, many at once.
    async fn fill(&self, from: usize, to: usize) -> Result<(), Fatal> {
        let (bus, volume) = (self.site.bus.clone(), self.volume.clone());
        ask::fill(to - from, move |at| {
            let (bus, volume) = (bus.clone(), volume.clone());
            async move { take(&bus, &volume, from + at).await }
        })
        .await?;
        let (bucket, value, volume) =
            (self.bucket.clone(), self.value.clone(), self.volume.clone());
        ask::fill(to - from, move |at| {
            let (bucket, value, volume) = (bucket.clone(), value.clone(), volume.clone());
            async move {
                let key = claim(&volume, from + at)?;
                let request = WriteRequest { filter: key.clone(), key, revision: 0 };
                bare::write(&bucket, &request, value, ask::trace()).await
            }
        })
        .await
        .map(drop)
    }

    /// How long each claim of a window takes, one after another.
    async fn claim(&self, from: usize, to: usize) -> Result<Vec<Duration>, Fatal> {
        let mut times = Vec::with_capacity(to - from);
        for at in from..to {
            let began = Instant::now();
            take(&self.site.bus, &self.volume, at).await?;
            times.push(began.elapsed());
        }
        Ok(times)
    }

    /// How long each raw write of a window takes, one after another, guarded as a claim's is.
    async fn write(&self, from: usize, to: usize) -> Result<Vec<Duration>, Fatal> {
        let filter = key::subtree(&self.volume);
        let mut revision = self.bucket.head(&filter).await?;
        let mut times = Vec::with_capacity(to - from);
        for at in from..to {
            let key = claim(&self.volume, at)?;
            let request = WriteRequest { key, filter: filter.clone(), revision };
            let (value, began) = (self.value.clone(), Instant::now());
            revision = bare::write(&self.bucket, &request, value, ask::trace()).await?;
            times.push(began.elapsed());
        }
        Ok(times)
    }
}

async fn take(bus: &berth_bus::Bus, volume: &VolumeKey, at: usize) -> Result<(), Fatal> {
    let id = volume.volume.as_str();
    ask::take(bus, &volume.namespace, &alloc(id, at), id).await.map(drop)
}

fn claim(volume: &VolumeKey, at: usize) -> Result<String, Fatal> {
    Ok(key::claim(volume, &AllocId::new(alloc(volume.volume.as_str(), at))?))
}

fn alloc(volume: &str, at: usize) -> String {
    format!("alloc-{volume}-{at:06}")
}
