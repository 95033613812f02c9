//! Many volumes: how long it takes to register them, their memory, the rate of claims among them,
//! and how long a service that starts over them takes until it serves.

use std::ops::Range;
use std::time::Duration;

use berth_bus::Bus;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use serde_json::json;
use tokio::time::Instant;

use super::{Effort, turns};
use crate::Fatal;
use crate::ask;
use crate::load::{self, Supply};
use crate::row::{Part, Row};
use crate::site::{PATIENCE, Site};
use crate::stand_in::PLAIN;
use crate::stats::{Sample, count};

/// Callers that claim at once.
const AT_ONCE: u32 = 16;
/// How many volumes the callers claim in a round.
const CLAIMS: usize = 4_000;
const PROCESSES: [&str; 5] = ["claim", "volumewatcher", "gc", "registry", "nats-server"];

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let many = effort.volumes;
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_releases().await?;
    site.start_stand_in().await?;
    let empty = memory(&site)?;
    let among_few = claimed(&site, "few", effort).await?;
    let few = memory(&site)?;
    let mut rows = vec![registered(&site, many).await?];
    let starts = [
        ("claim", verb::VolumeStatus::subject(&Namespace::default())),
        ("volumewatcher", "$SRV.INFO.berth-volumewatcher".to_owned()),
    ];
    let full = memory(&site)?;
    let among_many = claimed(&site, "late", effort).await?;
    let row = Row::new(Part::Size, format!("claims among {many} volumes"), AT_ONCE, 1);
    let limit = "when there were few";
    rows.push(row.sample(&among_many).limit(limit, among_few.per_second));
    let reader = tokio::spawn(read_lists(site.bus.clone()));
    let beside_lists = claimed(&site, "read", effort).await?;
    reader.abort();
    let name = format!("claims among {many} volumes, while a client reads list after list");
    let row = Row::new(Part::Size, name, AT_ONCE, 1).sample(&beside_lists);
    rows.push(row.limit("with no reader", among_many.per_second));
    for (name, subject) in starts {
        rows.push(started(&site, name, &subject, effort).await?);
    }
    let fresh = memory(&site)?;
    for (at, (name, before)) in empty.iter().enumerate() {
        let row = |what: &str, bytes: u64| Row {
            rss_bytes: Some(bytes),
            ..Row::new(Part::Size, format!("memory of {name}, {what}"), 0, 1)
        };
        rows.push(row("no volume", *before));
        rows.push(row(&format!("{many} volumes"), full[at].1));
        let per_volume = |bytes: u64| bytes.saturating_sub(few[at].1) / many as u64;
        if ["claim", "volumewatcher"].contains(&name.as_str()) {
            rows.push(row("a volume", per_volume(full[at].1)));
            rows.push(row("a volume, after a restart", per_volume(fresh[at].1)));
        }
        if fresh[at].1 != full[at].1 && ["claim", "volumewatcher"].contains(&name.as_str()) {
            rows.push(row(&format!("{many} volumes, after a restart"), fresh[at].1));
        }
    }
    Ok(rows)
}

/// Claims by [`AT_ONCE`] callers, each on a new volume of its own.
async fn claimed(site: &Site, prefix: &str, effort: &Effort) -> Result<Sample, Fatal> {
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        let prefix = format!("{prefix}{round}");
        let namespace = Namespace::default();
        let pairs = turns::register_pairs(site, &namespace, PLAIN, &prefix, CLAIMS).await?;
        let operation = turns::claim(site, Supply::new(pairs));
        let done = load::run(AT_ONCE as usize, effort.round, &operation).await?;
        rounds.extend(done.sample);
    }
    Sample::median(&rounds).ok_or_else(|| "nothing was claimed".into())
}

/// Reads the first page of all volumes, again and again.
async fn read_lists(bus: Bus) -> Result<(), Fatal> {
    loop {
        let page = json!({"limit": 100});
        ask::about::<verb::VolumeList>(&bus, &Namespace::default(), &page).await?;
    }
}

/// The resident memory of each service and of the server, in bytes.
fn memory(site: &Site) -> Result<Vec<(String, u64)>, Fatal> {
    PROCESSES.into_iter().map(|name| Ok((name.to_owned(), site.memory(name)?))).collect()
}

async fn registered(site: &Site, many: usize) -> Result<Row, Fatal> {
    let began = Instant::now();
    let times = register(&site.bus, 0..many, |_| Namespace::default()).await?;
    let sample = Sample::new(times, began.elapsed()).ok_or("no volume was registered")?;
    let row = Row::new(Part::Size, format!("{many} volumes registered"), 128, 1);
    Ok(Row { writes: Some(1.0), ..row.sample(&sample) })
}

/// Registers the volumes of these numbers; returns how long each took.
pub async fn register(
    bus: &Bus,
    numbers: Range<usize>,
    namespace_of: fn(usize) -> Namespace,
) -> Result<Vec<Duration>, Fatal> {
    let (bus, first) = (bus.clone(), numbers.start);
    ask::fill(numbers.len(), move |at| {
        let (bus, number) = (bus.clone(), first + at);
        async move {
            let (namespace, id) = (namespace_of(number), volume(number));
            let asked_at = Instant::now();
            let access = "single-node-writer";
            ask::register_volume(&bus, &namespace, &id, PLAIN, access).await?;
            Ok(asked_at.elapsed())
        }
    })
    .await
}

/// The id of the volume of this number.
pub fn volume(number: usize) -> String {
    format!("volume-{number:06}")
}

/// How long a service takes from its start to its first answer.
async fn started(site: &Site, name: &str, subject: &str, effort: &Effort) -> Result<Row, Fatal> {
    let last = json!({"id": volume(effort.volumes - 1)});
    let mut times = Vec::new();
    for _ in 0..effort.starts {
        times.push(site.restarted(name, subject, &last, PATIENCE).await?);
    }
    let sample = Sample::of_median(times).ok_or("nothing was started")?;
    let sample = Sample { per_second: sample.per_second * count(effort.volumes), ..sample };
    let what = format!("{name} starts over {} volumes", effort.volumes);
    Ok(Row::new(Part::Size, what, 1, 1).sample(&sample))
}
