//! The processes that use a mount: they work in it, run a program of it, or have a file of it open.
//!
//! **Promises** that the walk of `/proc` ends after [`WALK_MAX`], off the async threads, and that
//! it touches no mount: where a link leads is read, and the link is not followed.
//!
//! **Never** fails: what is not seen in time is not named.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use berth_host::process::list_pids;
use berth_host::{HolderProcess, name_process};

use crate::host_pool::with_processes;

/// Longest walk of `/proc`. The answer to the unmount is delayed by it.
const WALK_MAX: Duration = Duration::from_secs(2);

/// Finds the processes that use the mount at this path, in any mount namespace; at most `max`.
pub(crate) async fn find_users(point: &Path, max: usize) -> Vec<HolderProcess> {
    let owned = point.to_owned();
    let walk = move || Ok(list_users(&owned, max, |_| true));
    with_processes("look which processes use a mount", point, walk).await.unwrap_or_else(|error| {
        tracing::info!(point = %point.display(), %error, "it is not seen which processes use it");
        Vec::new()
    })
}

/// Lists the processes that use the mount at this path, of those that are meant; at most `max`.
pub(crate) fn list_users(
    point: &Path,
    max: usize,
    is_meant: impl Fn(u32) -> bool,
) -> Vec<HolderProcess> {
    let began = Instant::now();
    let pids = list_pids().unwrap_or_default().into_iter();
    let in_time = pids.take_while(|_| began.elapsed() < WALK_MAX);
    in_time.filter(|pid| is_meant(*pid) && uses(*pid, point)).take(max).map(name_process).collect()
}

fn uses(pid: u32, point: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut links = ["cwd", "root", "exe"]
        .map(|name| process.join(name))
        .into_iter()
        .chain(files.map(|file| file.path()));
    links.any(|link| fs::read_link(link).is_ok_and(|file| file.starts_with(point)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Whether these are found. A child that another test is just starting may be found as well.
    async fn found(dir: &Path, pids: [u32; 2]) -> [bool; 2] {
        let found = find_users(dir, 64).await;
        pids.map(|pid| found.iter().any(|one| one.pid == pid))
    }

    #[tokio::test]
    async fn a_working_directory_and_an_open_file_are_uses() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mut shell = Command::new("sleep").arg("1000").current_dir(&dir).spawn().unwrap();
        let pids = [shell.id(), std::process::id()];
        assert_eq!(found(&dir, pids).await, [true, false]);
        // A name that only begins like it is another place.
        let other = dir.join("file.other");
        let (file, _other) = (fs::File::create(dir.join("file")), fs::File::create(other));
        assert_eq!(found(&dir, pids).await, [true, true]);
        assert_eq!(find_users(&dir, 1).await.len(), 1);
        assert_eq!(found(&dir.join("file"), pids).await, [false, true]);
        drop(file);
        assert_eq!(found(&dir.join("file"), pids).await, [false, false]);
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
