//! The processes that use a mount: they work in it, run a program of it, or have a file of it open
//! or mapped.
//!
//! **Promises** that a walk of `/proc` ends after [`WALK_MAX`], off the async threads, and that
//! it touches no mount: where a link leads is read, and the link is not followed.
//!
//! **Never** fails: what is not seen in time is not named.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_host::process::list_pids;
use berth_host::{HolderProcess, name_process};

use crate::host::pool::with_processes;

/// Longest walk of `/proc`. The answer to the unmount is delayed by it.
const WALK_MAX: Duration = Duration::from_secs(2);

/// Finds the processes that use the mount at this path, in any mount namespace; at most `max`.
///
/// Mapped files are looked at last, and in a walk of their own: the kernel may keep a reader of
/// `maps` waiting for a process that hangs in its storage.
pub(crate) async fn find_users(point: &Path, max: usize) -> Vec<HolderProcess> {
    let owned = point.to_owned();
    let linked = move || list_users(&owned, max, |_| true);
    let found = walk("look which processes use a mount", point, linked).await;
    if !found.is_empty() {
        return found;
    }
    let owned = point.to_owned();
    let mapped = move || list_processes(max, |pid| maps_file(pid, &owned));
    walk("look which processes have a file of a mount mapped", point, mapped).await
}

async fn walk(
    what: &'static str,
    point: &Path,
    list: impl FnOnce() -> Vec<HolderProcess> + Send + 'static,
) -> Vec<HolderProcess> {
    with_processes(what, point, || Ok(list())).await.unwrap_or_else(|error| {
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
    list_processes(max, |pid| is_meant(pid) && uses(pid, point))
}

fn list_processes(max: usize, is_found: impl Fn(u32) -> bool) -> Vec<HolderProcess> {
    let began = Instant::now();
    let pids = list_pids().unwrap_or_default().into_iter();
    let in_time = pids.take_while(|_| began.elapsed() < WALK_MAX);
    in_time.filter(|pid| is_found(*pid)).take(max).map(name_process).collect()
}

/// Whether the process has a file below the path mapped: a line of `maps` ends in the file's path,
/// and has no other slash (`proc_pid_maps(5)`).
fn maps_file(pid: u32, point: &Path) -> bool {
    let Ok(maps) = fs::File::open(format!("/proc/{pid}/maps")) else { return false };
    let lines = BufReader::new(maps).split(b'\n').map_while(Result::ok);
    let mut files = lines.filter_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        Some(PathBuf::from(OsString::from_vec(line[start..].to_vec())))
    });
    files.any(|file| file.starts_with(point))
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

    /// A copy of a program that runs keeps its file as `exe`; one that it has loaded, or read by
    /// `mmap`, only in `maps`. The loader maps the program that it is given.
    #[tokio::test]
    async fn a_mapped_file_that_is_not_open_is_a_use() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let loader = maps.lines().find_map(|line| {
            let path = line.split_whitespace().last()?;
            path.contains("/ld-").then(|| path.to_owned())
        });
        // A test that is linked statically has no loader to show it with.
        let Some(loader) = loader else { return };
        let program = dir.join("sleep");
        fs::copy("/usr/bin/sleep", &program).unwrap();
        let mut shell = Command::new(loader).arg(&program).arg("1000").spawn().unwrap();
        let pid = shell.id();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !maps_file(pid, &dir) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!uses(pid, &dir), "no link of it leads there");
        assert_eq!(found(&dir, [pid, std::process::id()]).await, [true, false]);
        let beside = dir.with_extension("other");
        assert_eq!(found(&beside, [pid, std::process::id()]).await, [false, false]);
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
