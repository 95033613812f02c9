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
mod shared_volume;
mod size;
mod storage;
mod turns;

use std::time::{Duration, Instant};

use crate::load::Round;
use crate::row::{Part, Row};
use crate::{Fatal, site, tell};

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
        }
    }

    /// The numbers of callers that are measured.
    pub fn levels(&self) -> impl Iterator<Item = u32> {
        let only = self.at_once;
        LEVELS.into_iter().filter(move |level| only.is_none_or(|only| only == *level))
    }
}

/// Measures everything, or only some parts and numbers of servers.
pub async fn all(effort: &Effort, parts: &[Part], servers: Option<u32>) -> Result<Vec<Row>, Fatal> {
    let began = Instant::now();
    let wanted = |part| parts.is_empty() || parts.contains(&part);
    let mut rows = Vec::new();
    for count in SERVERS.into_iter().filter(|count| servers.is_none_or(|only| only == *count)) {
        if wanted(Part::Claims) || wanted(Part::Releases) {
            let mut site = site::Site::start(count).await?;
            let value = turns::prepare(&mut site).await?;
            if wanted(Part::Claims) {
                tell(&format!("{:?}: claims, {count} server(s)", began.elapsed()));
                rows.extend(claims::measure(&site, &value, effort).await?);
            }
            if wanted(Part::Releases) {
                tell(&format!("{:?}: releases, {count} server(s)", began.elapsed()));
                rows.extend(releases::measure(&mut site, &value, effort).await?);
            }
        }
    }
    if wanted(Part::Shared) {
        tell(&format!("{:?}: one shared volume", began.elapsed()));
        rows.extend(shared_volume::measure(effort).await?);
    }
    if wanted(Part::Line) {
        tell(&format!("{:?}: a line for one volume", began.elapsed()));
        rows.extend(line::measure(effort).await?);
    }
    if wanted(Part::Mounts) {
        tell(&format!("{:?}: mounts", began.elapsed()));
        rows.extend(mounts::measure(effort).await?);
    }
    if wanted(Part::Jobs) {
        tell(&format!("{:?}: jobs", began.elapsed()));
        rows.extend(jobs::measure(effort).await?);
    }
    if wanted(Part::ManyReleases) {
        tell(&format!("{:?}: many releases", began.elapsed()));
        rows.extend(many_releases::measure(effort).await?);
    }
    if wanted(Part::Storage) {
        tell(&format!("{:?}: storage operations", began.elapsed()));
        rows.extend(storage::measure(effort).await?);
    }
    if wanted(Part::Fleet) {
        tell(&format!("{:?}: a fleet", began.elapsed()));
        rows.extend(fleet::measure(effort).await?);
    }
    if wanted(Part::Size) {
        tell(&format!("{:?}: many volumes", began.elapsed()));
        rows.extend(size::measure(effort).await?);
    }
    // Longer than all the others together.
    if parts.contains(&Part::Comparisons) {
        tell(&format!("{:?}: comparisons of mirrors", began.elapsed()));
        rows.push(comparisons::measure(effort).await?);
    }
    tell(&format!("{:?}: done", began.elapsed()));
    Ok(rows)
}
