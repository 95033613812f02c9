//! From a thousand volumes to a million, then ten thousand agents, as far as the machine carries
//! them.
//!
//! One site grows from size to size. Each step has a deadline, and the whole part has one. What
//! kept a step from its figures stands in its row, and the next step follows.

use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bucket, Bus};
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::turns::{self, Lane, Pair};
use super::{Effort, fleet, releases, size};
use crate::ask::{self, NODE};
use crate::freed::Freed;
use crate::load::{Operation, Round, Supply};
use crate::numbers::whole;
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::{ATTACHING, PLAIN};
use crate::stats::Sample;
use crate::{Fatal, tell};

pub const REGISTER: &str = "register a volume";
pub const CLAIM: &str = "claim a volume";
pub const RELEASE: &str = "release a volume, until it is free";
pub const OF_NODE: &str = "page of claims of a node";
pub const LIST_OF_PLUGIN: &str = "page of volumes of a plugin that has none in the namespace";
pub const SWEEP: &str = "gc sweep that reads every page";
pub const CLAIM_STARTS: &str = "claim starts";
/// Names of the rows of memory begin so.
pub const MEMORY: &str = "memory of";

/// The namespaces of the volumes.
const NAMESPACES: usize = 10;
/// The processes of Berth and the bus.
const PROCESSES: [&str; 5] = ["nats-server", "registry", "claim", "volumewatcher", "gc"];
/// The services that have all volumes in memory, and a subject that each answers.
const MIRRORS: [&str; 2] = ["claim", "volumewatcher"];

/// The whole part.
const ALL_WITHIN: Duration = Duration::from_secs(3_600);
/// The registrations of one size.
const REGISTERED_WITHIN: Duration = Duration::from_secs(1_500);
/// After how many registrations that deadline is looked at.
const BATCH: usize = 5_000;
/// How many batches of one size may fail.
const FAILURES_MAX: usize = 10;
/// The claim service ends meanwhile what it was asked in a batch that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// The measurement of one operation.
const MEASURED_WITHIN: Duration = Duration::from_secs(120);
/// The start of one service.
const STARTED_WITHIN: Duration = Duration::from_secs(300);
/// The start of one fleet.
const UP_WITHIN: Duration = Duration::from_secs(840);
/// A round that ends when all volumes are claimed, or released.
const UNTIL_USED_UP: Round = Round { warm_up: Duration::ZERO, measured: MEASURED_WITHIN };

/// The share of one core that everything may use for an idle fleet of so many agents, in percent.
const AIMS: [(u32, f64); 2] = [(1_000, 5.0), (10_000, 20.0)];

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_releases().await?;
    site.start_stand_in().await?;
    site.answers(&verb::GcForce::subject(&())).await;
    let namespace = Namespace::default();
    let bucket = site.volumes().await?;
    let freed = Freed::watch(&bucket, &namespace).await?;
    let pairs = turns::register_pairs(&site, &namespace, PLAIN, "used", effort.claimed).await?;
    let end = Instant::now() + ALL_WITHIN;
    let mut growth =
        Growth { site, effort, bucket, freed, pairs, end, volumes: 0, rows: Vec::new() };
    for volumes in effort.sizes {
        let before = growth.volumes;
        growth.register(*volumes).await;
        if growth.volumes == before {
            break;
        }
        growth.measure_requests().await;
        growth.measure_processes().await;
        if growth.volumes < *volumes {
            break;
        }
    }
    let mut agents = 0;
    for fleet in effort.fleets {
        growth.measure_fleet(agents, *fleet).await;
        agents = *fleet;
    }
    Ok(growth.rows)
}

/// A site whose volumes become more.
struct Growth<'a> {
    site: Site,
    effort: &'a Effort,
    /// The bucket of volumes.
    bucket: Bucket,
    freed: Freed,
    /// The volumes that are claimed, each with its alloc. No other volume is ever claimed.
    pairs: Vec<Pair>,
    end: Instant,
    /// How many volumes are registered besides those.
    volumes: usize,
    rows: Vec<Row>,
}

impl Growth<'_> {
    /// A row of the present size.
    fn row(&self, name: impl Into<String>, at_once: u32) -> Row {
        let row = Row::new(Part::Scale, name, at_once, self.site.servers);
        Row { volumes: Some(self.volumes as u64), ..row }
    }

    /// The row that a step returns, or why it returned none.
    async fn bounded(
        &self,
        row: Row,
        within: Duration,
        step: impl Future<Output = Result<Row, Fatal>>,
    ) -> Row {
        tell(&format!("  {}", row.title()));
        let left = self.end.saturating_duration_since(Instant::now());
        let within = within.min(left);
        let missed = match timeout(within, step).await {
            Ok(Ok(row)) => return row,
            Ok(Err(error)) => error.to_string(),
            Err(_) if left.is_zero() => "no time was left".to_owned(),
            Err(_) => format!("not within {} s", within.as_secs()),
        };
        tell(&format!("  {}: {missed}", row.title()));
        Row { missed: Some(missed), ..row }
    }

    /// Registers volumes until there are so many.
    async fn register(&mut self, volumes: usize) {
        let blank = Row { volumes: Some(volumes as u64), ..self.row(REGISTER, 128) };
        tell(&format!("  {}", blank.title()));
        let (began, first) = (Instant::now(), self.volumes);
        let within = REGISTERED_WITHIN.min(self.end.saturating_duration_since(began));
        let (mut times, mut failures, mut missed) = (Vec::new(), 0, None);
        let worked = self.site.worked().unwrap_or_default();
        while self.volumes < volumes && failures < FAILURES_MAX && began.elapsed() < within {
            let next = volumes.min(self.volumes + BATCH);
            match size::register(&self.site.bus, self.volumes..next, namespace_of).await {
                Ok(batch_times) => {
                    times.extend(batch_times);
                    self.volumes = next;
                }
                // The batch is registered once more: what is there already stays as it is.
                Err(error) => {
                    failures += 1;
                    tell(&format!("  {error}"));
                    missed = Some(format!("{failures} batches failed, the last: {error}"));
                    sleep(AFTER_FAILURE).await;
                }
            }
        }
        if self.volumes < volumes {
            let (reached, seconds) = (whole(self.volumes as u64), began.elapsed().as_secs());
            let why = missed.map_or(String::new(), |why| format!("; {why}"));
            missed = Some(format!("{reached} volumes after {seconds} s{why}"));
        }
        let mut row = Row { missed, ..blank };
        if let Some(sample) = Sample::new(times, began.elapsed()) {
            let each = self.site.worked_each(&worked, self.volumes - first);
            row = row.work(each.unwrap_or_default()).sample(&sample);
        }
        self.rows.push(row);
    }

    /// What requests cost, by one caller.
    async fn measure_requests(&mut self) {
        let (bus, freed) = (self.site.bus.clone(), self.freed.clone());
        let supply = || Supply::new(self.pairs.clone());
        let (claims, releases) = (supply(), supply());
        let (all, first) = (Namespace::wildcard(), namespace_of(0));
        let page = |filter: &str, of: &str| json!({filter: of, "limit": 100});
        let request = |subject, body| request(&bus, subject, body);
        let node_claims = request(verb::ClaimStatus::subject(&all), page("node", NODE));
        let node_volumes = request(verb::VolumeList::subject(&all), page("node", NODE));
        let plugin_volumes = request(verb::VolumeList::subject(&first), page("plugin", ATTACHING));
        let sweep = request(verb::GcForce::subject(&()), json!({}));
        let until_used_up = Effort { rounds: 1, round: UNTIL_USED_UP, ..*self.effort };
        let operations = [
            (CLAIM, turns::claim(&self.site, claims), &until_used_up),
            (OF_NODE, node_claims, self.effort),
            ("page of volumes of a node", node_volumes, self.effort),
            (LIST_OF_PLUGIN, plugin_volumes, self.effort),
            (SWEEP, sweep, self.effort),
            (RELEASE, release(&bus, &freed, releases), &until_used_up),
        ];
        for (name, operation, effort) in operations {
            let (row, lanes) = (self.row(name, 1), [Lane::new(name, operation, &self.bucket)]);
            let measured = async {
                let turned = turns::take(&self.site, Part::Scale, &lanes, 1, effort).await?;
                let turned = turned.into_iter().next().ok_or("nothing was measured")?;
                Ok(Row { volumes: row.volumes, ..turned.row })
            };
            let row = self.bounded(row.clone(), MEASURED_WITHIN, measured).await;
            self.rows.push(row);
        }
    }

    /// What processes cost at rest, their memory, and how long those that mirror all volumes take
    /// to start.
    async fn measure_processes(&mut self) {
        self.measure_rest(self.row("at rest, without agents", 0)).await;
        for name in PROCESSES {
            self.measure_size(&format!("{MEMORY} {name}"), self.site.memory(name));
        }
        self.measure_size("disk of nats-server", self.site.disk_used());
        for name in MIRRORS {
            let row = self.row(format!("{name} starts"), 1);
            let (subject, body) = match name {
                "claim" => self.last_volume(),
                _ => (format!("$SRV.INFO.berth-{name}"), json!({})),
            };
            let started = async {
                let restarted = self.site.restarted(name, &subject, &body, STARTED_WITHIN);
                let sample = Sample::of_sequence(vec![restarted.await?]);
                Ok(row.clone().sample(&sample.ok_or("nothing was started")?))
            };
            let row = self.bounded(row.clone(), STARTED_WITHIN, started).await;
            self.rows.push(row);
            self.measure_size(&format!("{MEMORY} {name}, restarted"), self.site.memory(name));
        }
    }

    /// The question about the volume that was registered last.
    fn last_volume(&self) -> (String, Value) {
        let last = self.volumes.saturating_sub(1);
        let subject = verb::VolumeStatus::subject(&namespace_of(last));
        (subject, json!({"id": size::volume(last)}))
    }

    fn measure_size(&mut self, name: &str, bytes: Result<u64, Fatal>) {
        let row = self.row(name, 0);
        self.rows.push(match bytes {
            Ok(bytes) => Row { rss_bytes: Some(bytes), ..row },
            Err(error) => Row { missed: Some(error.to_string()), ..row },
        });
    }

    /// What the processes work while nothing is requested.
    async fn measure_rest(&mut self, row: Row) {
        let rest = self.effort.rest;
        let measured = async {
            let ((), mut core_percent) = self.site.shares(sleep(rest)).await?;
            core_percent.retain(|name, _| PROCESSES.contains(&name.as_str()));
            Ok(Row { core_percent, ..row.clone() })
        };
        let row = self.bounded(row.clone(), rest + MEASURED_WITHIN, measured).await;
        self.rows.push(row);
    }

    /// Starts the agents that are still missing, and measures all of them at rest.
    async fn measure_fleet(&mut self, running: u32, agents: u32) {
        let aim = AIMS.into_iter().find(|(of, _)| *of == agents);
        let aim = aim.map_or(String::new(), |(_, percent)| format!(" (aim: {percent} %)"));
        let row = self.row(format!("{agents} agents at rest{aim}"), agents);
        let started = fleet::start(&mut self.site, running..agents, true);
        let up = async {
            started?;
            fleet::come_up(&self.site, agents).await;
            sleep(self.effort.settled).await;
            Ok(row.clone())
        };
        let row = self.bounded(row.clone(), UP_WITHIN, up).await;
        if row.missed.is_some() {
            self.rows.push(row);
        } else {
            self.measure_rest(row).await;
        }
    }
}

/// The namespace of the volume of this number.
fn namespace_of(number: usize) -> Namespace {
    let name = format!("tenant-{}", number % NAMESPACES);
    Namespace::new(&name).unwrap_or_default()
}

fn request(bus: &Bus, subject: String, body: Value) -> Operation {
    let bus = bus.clone();
    Arc::new(move |_| {
        let (bus, subject, body) = (bus.clone(), subject.clone(), body.clone());
        async move {
            ask::ask(&bus, &subject, &body).await?;
            Ok(true)
        }
        .boxed()
    })
}

fn release(bus: &Bus, freed: &Freed, supply: Arc<Supply<Pair>>) -> Operation {
    let (bus, freed) = (bus.clone(), freed.clone());
    Arc::new(move |_| {
        let (bus, freed, supply) = (bus.clone(), freed.clone(), Arc::clone(&supply));
        async move {
            let Some(pair) = supply.take() else { return Ok(false) };
            releases::release(&bus, &Namespace::default(), &freed, pair).await?;
            Ok(true)
        }
        .boxed()
    })
}
