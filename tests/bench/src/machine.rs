//! The machine that a run was made on.

use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use berth_harness::nats;
use serde::{Deserialize, Serialize};

use crate::Fatal;
use crate::stats::quantile;

/// What a reader needs to know before comparing numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    pub cores: usize,
    /// Memory, in GiB.
    pub memory_gib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system that the stores are on.
    pub file_system: String,
    /// The median time to sync 4 KiB to the file system, in microseconds.
    pub sync_p50_us: u128,
    /// The p99 of the same.
    pub sync_p99_us: u128,
    /// nats-server's version.
    pub nats_server: String,
    /// The commit that was measured.
    pub berth: String,
    /// The day of the run.
    pub day: String,
}

/// Where the harness puts stores.
const STORES: &str = "/tmp";
const SYNCS: usize = 200;

impl Machine {
    /// The machine that this process runs on.
    pub fn look() -> Result<Self, Fatal> {
        let memory_kib = field("/proc/meminfo", "MemTotal")
            .split_whitespace()
            .next()
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0);
        let (p50, p99) = sync_times(Path::new(STORES))?;
        Ok(Self {
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism()?.get(),
            memory_gib: memory_kib.div_ceil(1 << 20),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            file_system: file_system_of(Path::new(STORES)),
            sync_p50_us: p50.as_micros(),
            sync_p99_us: p99.as_micros(),
            nats_server: output_line(Command::new(nats::program()).arg("--version"))
                .replace("nats-server: v", ""),
            berth: output_line(Command::new("git").args(["describe", "--always", "--dirty"])),
            day: output_line(Command::new("date").arg("+%Y-%m-%d")),
        })
    }

    /// Why rates, times and memory of these two machines cannot be compared; empty if they can.
    /// Kernel and nats-server may differ: they are part of what is measured.
    pub fn differences(&self, kept: &Self) -> Vec<String> {
        let facts = |machine: &Self| {
            let Self { processor, cores, memory_gib, file_system, .. } = machine;
            [format!("{cores} × {processor}"), format!("{memory_gib} GiB"), file_system.clone()]
        };
        let pairs = facts(self).into_iter().zip(facts(kept)).filter(|(ours, kept)| ours != kept);
        let mut differences: Vec<String> =
            pairs.map(|(ours, kept)| format!("{ours}, kept {kept}")).collect();
        let (ours, kept) = (self.sync_p50_us, kept.sync_p50_us);
        // By more than a quarter.
        if ours.max(kept) * 4 > ours.min(kept) * 5 {
            differences.push(format!("syncing takes {ours} µs, kept {kept} µs"));
        }
        differences
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} × {}, {} GiB, Linux {}, stores on {} (syncing 4 KiB: {} µs, p99 {} µs), \
             nats-server {} with `sync_interval: always`; Berth {}, {}",
            self.cores,
            self.processor,
            self.memory_gib,
            self.kernel,
            self.file_system,
            self.sync_p50_us,
            self.sync_p99_us,
            self.nats_server,
            self.berth,
            self.day
        )
    }
}

/// Median and p99 of syncing 4 KiB: the least that a guarded write waits for.
fn sync_times(dir: &Path) -> Result<(Duration, Duration), Fatal> {
    let path = dir.join(format!("berth-bench-sync-{}", std::process::id()));
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let began = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        times.push(began.elapsed());
    }
    fs::remove_file(&path)?;
    times.sort_unstable();
    let time_at = |share| quantile(&times, share).ok_or("nothing was synced");
    Ok((time_at(0.5)?, time_at(0.99)?))
}

fn file_system_of(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount_above = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (mount_point, kind) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        dir.starts_with(&mount_point).then_some((mount_point.len(), kind))
    };
    // The deepest mount above `dir`; of several at one path, the last.
    let deepest = mounts.lines().filter_map(mount_above).max_by_key(|(depth, _)| *depth);
    deepest.map_or_else(|| "an unknown file system".to_owned(), |(_, kind)| kind)
}

/// The first `name: value` of a file under /proc.
fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
    value.unwrap_or("unknown").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a program prints, in one line.
fn output_line(command: &mut Command) -> String {
    let output = command.current_dir(berth_harness::repository()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// The time since 1970.
pub fn since_1970() -> Duration {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// The same in whole milliseconds.
pub fn ms_since_1970() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// The resident memory of a process, in bytes.
pub fn resident(pid: u32) -> Result<u64, Fatal> {
    let value = field(&format!("/proc/{pid}/status"), "VmRSS");
    let kib = value.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
    Ok(kib.ok_or_else(|| format!("process {pid} shows no memory"))? * 1024)
}

/// The space that a directory's files take on the disk, in bytes.
pub fn disk_used(dir: &Path) -> Result<u64, Fatal> {
    let mut used = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        used += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_used(&entry.path())?,
            // `st_blocks` counts blocks of 512 bytes.
            Ok(metadata) => metadata.blocks() * 512,
            // A server replaces its files while it runs.
            Err(_) => 0,
        };
    }
    Ok(used)
}

/// The processor time of a process, over all its threads.
pub fn busy(pid: u32) -> Result<Duration, Fatal> {
    let mut busy = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // The first number: nanoseconds on a processor. A thread may end meanwhile.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
        busy += Duration::from_nanos(nanoseconds.unwrap_or(0));
    }
    Ok(busy)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn machine() -> Machine {
        Machine {
            processor: "a processor".to_owned(),
            cores: 2,
            memory_gib: 24,
            kernel: "6.18".to_owned(),
            file_system: "ext4".to_owned(),
            sync_p50_us: 200,
            sync_p99_us: 300,
            nats_server: "2.15.1".to_owned(),
            berth: "v1".to_owned(),
            day: "2026-11-30".to_owned(),
        }
    }

    #[test]
    fn machines_are_alike_whose_disks_differ_by_a_quarter_at_most() {
        let syncing = |sync_p50_us| Machine { sync_p50_us, ..machine() };
        assert!(syncing(160).differences(&machine()).is_empty());
        assert!(syncing(250).differences(&machine()).is_empty());
        let slower = syncing(251).differences(&machine());
        assert_eq!(slower, ["syncing takes 251 µs, kept 200 µs"]);
        assert_eq!(machine().differences(&syncing(251)).len(), 1);
    }

    #[test]
    fn each_difference_is_named_except_of_software() {
        let software = Machine { kernel: "7".to_owned(), nats_server: "3".to_owned(), ..machine() };
        assert!(software.differences(&machine()).is_empty());
        let other = Machine { cores: 4, file_system: "xfs".to_owned(), ..machine() };
        let named = ["4 × a processor, kept 2 × a processor", "xfs, kept ext4"];
        assert_eq!(other.differences(&machine()), named);
        let larger = Machine { memory_gib: 32, ..machine() };
        assert_eq!(larger.differences(&machine()), ["32 GiB, kept 24 GiB"]);
    }
}
