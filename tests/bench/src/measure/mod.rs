//! The measurements, one module each.

mod claims;
mod comparisons;
mod fleet;
mod jobs;
mod line;
mod many_releases;
mod mounts;
mod plugin_back;
mod releases;
pub mod scale;
mod shared_volume;
mod size;
mod storage;
mod turns;

use std::time::{Duration, Instant};

use clap::ValueEnum as _;

use crate::load::Round;
use crate::row::{Part, Row};
use crate::{Fatal, numbers, site, tell};

/// A guarded write by the load generator itself.
pub const RAW: &str = "raw guarded write";
/// The same write by a service that does nothing else.
pub const BARE: &str = "bare service";
/// The bare service, with as many followers of its writes as a release has.
pub const BARE_FOLLOWED: &str = "bare service, followed by three";
/// A claim on a volume that needs no controller.
pub const CLAIM: &str = "claim";
/// A claim on a volume whose controller answers at once.
pub const CLAIM_ATTACHED: &str = "claim, no-op controller";
/// Callers at once.
pub const LEVELS: [u32; 3] = [1, 16, 128];
/// Servers.
pub const SERVERS: [u32; 2] = [1, 3];
/// The parts that are measured on each of [`SERVERS`], one after the other on the same site.
const ON_BOTH: [Part; 2] = [Part::Claims, Part::Releases];

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The only number of callers; each of [`LEVELS`] if none.
    pub at_once: Option<u32>,
    /// One round of one row.
    pub round: Round,
    /// How many rounds each row has.
    pub rounds: usize,
    /// How often the shared volume is filled.
    pub shared_rounds: usize,
    /// How many wait in line for one volume.
    pub waiters: usize,
    /// How often a volume is mounted and freed, and how many are created alone.
    pub mounts: usize,
    /// How often a plugin is killed as a workload stops.
    pub returns: usize,
    /// How often many volumes are released at once.
    pub crowds: usize,
    /// How many volumes are created and deleted by parallel callers.
    pub created: usize,
    /// Pause before a fleet is measured. The first agents were told the size of a small fleet:
    /// within a minute they learn the real size, and their longer lease begins with the next
    /// renewal.
    pub settled: Duration,
    /// How long an idle fleet is measured. Its reports are spread over five minutes, so any two
    /// minutes have their share.
    pub idle: Duration,
    /// How long plugins flip in a fleet, each time; whole seconds.
    pub flips: Duration,
    /// How many volumes `size` registers.
    pub volumes: usize,
    /// How often each service starts over that many volumes.
    pub starts: usize,
    /// How often mirrors are compared while requests are measured.
    pub comparisons: usize,
    /// How many volumes there are, one size after the other.
    pub sizes: &'static [usize],
    /// How many of the volumes are claimed and released at each size.
    pub claimed: usize,
    /// How many agents there are, one fleet after the other.
    pub fleets: &'static [u32],
    /// How long the services are measured at rest, at each size and in each fleet.
    pub rest: Duration,
}

impl Effort {
    /// Takes up to 15 minutes.
    pub fn full() -> Self {
        let ms = Duration::from_millis;
        Self {
            at_once: None,
            round: Round { warm_up: ms(200), measured: ms(1_200) },
            rounds: 3,
            shared_rounds: 3,
            waiters: 500,
            mounts: 100,
            returns: 10,
            crowds: 3,
            created: 500,
            settled: Duration::from_secs(100),
            idle: Duration::from_secs(120),
            flips: Duration::from_secs(60),
            volumes: 100_000,
            starts: 3,
            comparisons: 3,
            sizes: &[1_000, 100_000, 1_000_000],
            claimed: 500,
            fleets: &[1_000, 10_000],
            rest: Duration::from_secs(60),
        }
    }

    /// Takes up to two and a half minutes.
    pub fn quick() -> Self {
        let ms = Duration::from_millis;
        Self {
            at_once: None,
            round: Round { warm_up: ms(50), measured: ms(300) },
            rounds: 1,
            shared_rounds: 1,
            waiters: 100,
            mounts: 10,
            returns: 2,
            crowds: 1,
            created: 100,
            settled: Duration::from_secs(25),
            idle: Duration::from_secs(10),
            flips: Duration::from_secs(10),
            volumes: 10_000,
            starts: 1,
            comparisons: 1,
            sizes: &[1_000, 10_000],
            claimed: 100,
            fleets: &[200],
            rest: Duration::from_secs(5),
        }
    }

    /// The numbers of callers that are measured.
    pub fn levels(&self) -> impl Iterator<Item = u32> {
        let only = self.at_once;
        LEVELS.into_iter().filter(move |level| only.is_none_or(|only| only == *level))
    }
}

/// Measures everything, or only some parts and numbers of servers. The parts that take longer than
/// all the others together are measured only if they are named.
pub async fn all(effort: &Effort, parts: &[Part], servers: Option<u32>) -> Result<Vec<Row>, Fatal> {
    let began = Instant::now();
    let is_wanted = |part: Part| match parts {
        [] => !matches!(part, Part::Comparisons | Part::Scale),
        parts => parts.contains(&part),
    };
    let tell_of = |part: Part| tell(&format!("{:?}: {}", began.elapsed(), part.title()));
    let mut rows = Vec::new();
    for count in SERVERS.into_iter().filter(|count| servers.is_none_or(|only| only == *count)) {
        if !ON_BOTH.into_iter().any(is_wanted) {
            break;
        }
        tell(&format!("{:?}: {}", began.elapsed(), numbers::servers(count)));
        let mut site = site::Site::start(count).await?;
        let value = turns::prepare(&mut site).await?;
        if is_wanted(Part::Claims) {
            tell_of(Part::Claims);
            rows.extend(claims::measure(&site, &value, effort).await?);
        }
        if is_wanted(Part::Releases) {
            tell_of(Part::Releases);
            rows.extend(releases::measure(&mut site, &value, effort).await?);
        }
    }
    let others = Part::value_variants().iter().filter(|part| !ON_BOTH.contains(part));
    for part in others.copied().filter(|part| is_wanted(*part)) {
        tell_of(part);
        rows.extend(match part {
            Part::Claims | Part::Releases => Vec::new(),
            Part::Shared => shared_volume::measure(effort).await?,
            Part::Line => line::measure(effort).await?,
            Part::Mounts => mounts::measure(effort).await?,
            Part::Jobs => jobs::measure(effort).await?,
            Part::ManyReleases => many_releases::measure(effort).await?,
            Part::Storage => storage::measure(effort).await?,
            Part::Fleet => fleet::measure(effort).await?,
            Part::Size => size::measure(effort).await?,
            Part::Comparisons => vec![comparisons::measure(effort).await?],
            Part::Scale => scale::measure(effort).await?,
        });
    }
    tell(&format!("{:?}: done", began.elapsed()));
    Ok(rows)
}
