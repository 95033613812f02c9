//! One result, as it is written to `bench.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Fatal;
use crate::stats::Sample;

/// The limit of a row that is compared with an aim, not with a measured limit.
pub const AIM: &str = "the aim";

/// What kind of measurement a row belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Claims on volumes of their own, beside raw writes and a bare service.
    #[default]
    Claims,
    /// Claims taken and released again, with everything running.
    Releases,
    /// Claims on one shared volume.
    Shared,
    /// Many callers in line for one volume.
    Line,
    /// Claim to mounted and release to free, with a driver.
    Mounts,
    /// A scheduler's jobs, from placement to free, with a driver.
    Jobs,
    /// Many volumes of one node released at once.
    ManyReleases,
    /// Volumes created, deleted and cut at their storage, with a driver.
    Storage,
    /// Many agents: what they cost while little happens.
    Fleet,
    /// Many volumes: memory, start-up, registering.
    Size,
    /// Requests among many volumes while the services compare their mirrors; 25 minutes.
    Comparisons,
    /// What everything costs among up to a million volumes and ten thousand agents; up to an hour.
    Scale,
}

impl Part {
    pub fn title(self) -> &'static str {
        match self {
            Self::Claims => "claims, each on its own volume",
            Self::Releases => "claims and releases, until free, each on its own volume",
            Self::Shared => "claims on one shared volume, one after another",
            Self::Line => "a line for one volume",
            Self::Mounts => "with agent, driver and mounts, one after another",
            Self::Jobs => "a scheduler's jobs, from placement to free",
            Self::ManyReleases => "many volumes of one node released at once",
            Self::Storage => "volumes at their storage, with agent and driver",
            Self::Fleet => "a fleet of agents with one plugin each",
            Self::Size => "many volumes",
            Self::Comparisons => "many volumes, while mirrors are compared with their buckets",
            Self::Scale => "from a thousand volumes to a million, and ten thousand agents",
        }
    }
}

/// One row. Rates are in operations per second, times in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub part: Part,
    /// What was measured.
    pub name: String,
    /// How many callers, each with one operation under way.
    pub at_once: u32,
    /// The number of nats-servers.
    pub servers: u32,
    /// How many volumes are registered, of a row that is measured at several sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u64>,
    /// Why the row has no figures, or fewer than it should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// Operations per second.
    pub per_second: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// The best possible rate, measured in the same minutes.
    pub limit_per_second: Option<f64>,
    /// `per_second` divided by `limit_per_second`.
    pub ratio: Option<f64>,
    /// The limit's p99, times the writes of an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_p99_us: Option<f64>,
    /// `p99_us` divided by `limit_p99_us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<f64>,
    /// What the limit is.
    pub limit: Option<String>,
    /// Durable writes per operation, counted in the stream.
    pub writes: Option<f64>,
    /// Requests that the caller sent per operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<f64>,
    /// Resident memory of a process, or the space that the stores take on the disk, in bytes.
    pub rss_bytes: Option<u64>,
    /// Processor time of each process per operation, in microseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_us: BTreeMap<String, f64>,
    /// Each process's share of one core, in percent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub core_percent: BTreeMap<String, f64>,
    /// The most changes that waited at once to be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
}

impl Row {
    /// A row without figures.
    pub fn new(part: Part, name: impl Into<String>, at_once: u32, servers: u32) -> Self {
        Self { part, name: name.into(), at_once, servers, ..Self::default() }
    }

    /// Whether this row measures the same as another.
    pub fn measures_same(&self, other: &Self) -> bool {
        let identity = |row: &Self| (row.part, row.at_once, row.servers, row.volumes);
        identity(self) == identity(other) && self.name == other.name
    }

    /// The name with the size at which it was measured.
    pub fn title(&self) -> String {
        match self.volumes {
            Some(volumes) => format!("{}, {volumes} volumes", self.name),
            None => self.name.clone(),
        }
    }

    /// The resident memory, in bytes.
    pub fn rss(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
        self.rss_bytes.map(|bytes| bytes as f64)
    }

    /// With a sample's figures.
    #[must_use]
    pub fn sample(self, sample: &Sample) -> Self {
        Self {
            per_second: Some(sample.per_second),
            p50_us: Some(sample.p50.as_secs_f64() * 1e6),
            p99_us: Some(sample.p99.as_secs_f64() * 1e6),
            ..self
        }
    }

    /// With the processor time of each process per operation, in microseconds. Shares below one are
    /// left out.
    #[must_use]
    pub fn work(self, cpu_us: BTreeMap<String, f64>) -> Self {
        Self { cpu_us: cpu_us.into_iter().filter(|(_, us)| *us >= 1.0).collect(), ..self }
    }

    /// With a limit.
    #[must_use]
    pub fn limit(self, limit: impl Into<String>, per_second: f64) -> Self {
        let ratio = self.per_second.map(|reached| reached / per_second);
        Self { limit: Some(limit.into()), limit_per_second: Some(per_second), ratio, ..self }
    }

    /// With the bare service as the limit, at as many writes as the operation makes.
    #[must_use]
    pub fn beside_bare(self, bare: &Sample) -> Self {
        let writes = self.writes.unwrap_or(1.0);
        self.beside("bare service / writes", bare, writes)
    }

    /// With a limit of the rate and of the p99. The limit's operation is made this many times.
    #[must_use]
    pub fn beside(self, limit: &str, sample: &Sample, times: f64) -> Self {
        let p99 = sample.p99.as_secs_f64() * 1e6 * times;
        let p99_ratio = self.p99_us.map(|reached| reached / p99);
        let row = self.limit(limit, sample.per_second / times);
        Self { limit_p99_us: Some(p99), p99_ratio, ..row }
    }
}

/// All rows as one JSON array, one row per line.
pub fn to_json(rows: &[Row]) -> Result<String, Fatal> {
    let lines = rows.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]", lines.join(",\n")))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::time::Duration;

    /// Two levels of claims, as a run has them.
    pub fn rows() -> Vec<Row> {
        let row = |name: &str, at_once, per_second, ms| {
            let (p50, p99) = (Duration::from_millis(ms), Duration::from_millis(3 * ms));
            let sample = Sample { per_second, p50, p99 };
            Row { writes: Some(1.0), ..Row::new(Part::Claims, name, at_once, 1).sample(&sample) }
        };
        vec![
            row(crate::measure::RAW, 1, 3000.0, 1),
            row(crate::measure::BARE, 1, 2000.0, 2).limit("raw", 3000.0),
            row(crate::measure::CLAIM, 1, 1800.0, 3).limit("bare", 2000.0),
            row(crate::measure::RAW, 16, 6000.0, 2),
            row(crate::measure::BARE, 16, 5000.0, 4).limit("raw", 6000.0),
            row(crate::measure::CLAIM, 16, 4000.0, 5).limit("bare", 5000.0),
        ]
    }

    #[test]
    fn every_row_is_one_object_with_the_same_fields() {
        let written = to_json(&rows()).unwrap();
        let objects: Vec<serde_json::Map<String, serde_json::Value>> =
            serde_json::from_str(&written).unwrap();
        assert_eq!(objects.len(), rows().len());
        let required = [
            "name",
            "at_once",
            "servers",
            "per_second",
            "p50_us",
            "p99_us",
            "limit_per_second",
            "ratio",
        ];
        for row in &objects {
            assert!(required.iter().all(|field| row.contains_key(*field)), "{row:?}");
        }
        assert_eq!(objects[2]["name"], "claim");
        assert_eq!(objects[2]["ratio"], 0.9);
        assert_eq!(objects[0]["ratio"], serde_json::Value::Null);
        assert_eq!(objects[2]["p99_us"], 9000.0);
        assert_eq!(serde_json::from_str::<Vec<Row>>(&written).unwrap(), rows());
    }

    #[test]
    fn a_release_is_measured_by_as_many_bare_writes_as_it_makes() {
        let sample = |per_second, ms| {
            let p99 = Duration::from_millis(ms);
            Sample { per_second, p50: p99, p99 }
        };
        let row = Row::new(Part::Releases, "claim + release", 1, 1).sample(&sample(300.0, 12));
        let row = Row { writes: Some(4.0), ..row }.beside_bare(&sample(2000.0, 2));
        assert_eq!((row.limit_per_second, row.ratio), (Some(500.0), Some(0.6)));
        assert_eq!((row.limit_p99_us, row.p99_ratio), (Some(8000.0), Some(1.5)));
    }
}
