//! A job that writes to its volumes, and logs when.
//!
//! Its volumes are the directories in variables `BERTH_VOLUME_…`, as for `berth run`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two writes.
const EACH: Duration = Duration::from_millis(50);
/// The prefix of the names of volumes' variables.
const VOLUME: &str = "BERTH_VOLUME_";

/// One run of a job, with times in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRun {
    /// When the job began.
    pub begun: u64,
    /// When the job wrote last.
    pub wrote: u64,
    /// When the job ended; `None` if it did not reach its end.
    pub ended: Option<u64>,
}

/// The present time, in milliseconds since 1970.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Runs a job for `length`. Each run has its own log below the directory.
pub fn run(logs: &Path, id: &str, length: Duration) -> io::Result<()> {
    let name = format!("{id}.{}", std::process::id());
    let mut log = OpenOptions::new().create(true).append(true).open(logs.join(&name))?;
    let mut volumes = open_volumes(&name)?;
    say(&mut log, "begun")?;
    let begun = Instant::now();
    while begun.elapsed() < length {
        for volume in &mut volumes {
            volume.write_all(b"x")?;
        }
        say(&mut log, "wrote")?;
        sleep(EACH);
    }
    drop(volumes);
    say(&mut log, "ended")
}

fn open_volumes(name: &str) -> io::Result<Vec<File>> {
    let paths = std::env::vars_os()
        .filter(|(key, _)| key.to_str().is_some_and(|key| key.starts_with(VOLUME)));
    paths.map(|(_, path)| File::create(PathBuf::from(path).join(name))).collect()
}

fn say(log: &mut File, what: &str) -> io::Result<()> {
    writeln!(log, "{what} {}", now_ms())
}

/// All runs of a job, from their logs.
pub fn runs_of(logs: &Path, id: &str) -> io::Result<Vec<JobRun>> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(logs)? {
        let path = entry?.path();
        let is_of_it = path.file_stem().is_some_and(|name| name == id);
        if is_of_it && let Some(run) = parse(&fs::read_to_string(&path)?) {
            runs.push(run);
        }
    }
    runs.sort_by_key(|run| run.begun);
    Ok(runs)
}

fn parse(log: &str) -> Option<JobRun> {
    let at = |what: &str| {
        let mut lines = log.lines().rev().filter_map(|line| line.split_once(' '));
        lines.find(|(said, _)| *said == what).and_then(|(_, at)| at.parse().ok())
    };
    let begun = at("begun")?;
    Some(JobRun { begun, wrote: at("wrote").unwrap_or(begun), ended: at("ended") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_when_a_job_began_and_wrote_last() {
        assert_eq!(parse(""), None);
        let whole = parse("begun 5\nwrote 6\nwrote 9\nended 10\n");
        assert_eq!(whole, Some(JobRun { begun: 5, wrote: 9, ended: Some(10) }));
        let killed = parse("begun 5\nwrote 6\nwro");
        assert_eq!(killed, Some(JobRun { begun: 5, wrote: 6, ended: None }));
    }
}
