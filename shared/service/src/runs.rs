//! The runs of a node: commands with volumes that `berth run` started there, and what schedulers
//! named as running their allocs. Tells whether a run is over, whichever processes were killed.
//!
//! **Owns** `<state_dir>/runs`. A run with a guard of its scheduler's has one file, which nobody
//! locks: it is over when the guard does not live. A command of `berth run` has two:
//! - `<run>.json` names the alloc. The runner holds its lock (flock).
//! - `<run>.<mark>.held` is empty. The command and its child processes inherit its lock. The mark
//!   is random: one host may have agents of several Berth systems, and each may have a run of the
//!   same name.
//!
//! The kernel releases a lock when the last process that has it is gone, even by kill -9 or a crash
//! of the host.
//!
//! **Promises** that a run is visible from before its alloc is registered until its end was
//! reported. A run never looks over while its runner or a process with the inherited lock exists.
//!
//! **Never** sees a process that closed the file that it inherited. A caller that must know that no
//! process is left also checks [`is_of`].

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::message::agent::Guard;
use berth_contract::token;
use berth_domain::alloc::AllocState;
use berth_domain::{AllocId, Namespace};
use berth_host::{ProcessHandle, cgroup};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

const DIR: &str = "runs";
const JSON: &str = "json";
const HELD: &str = "held";
/// The longest name of a run, in bytes. With what is appended the file's name must not exceed 255.
const NAME_BYTES_MAX: usize = 200;
/// Bytes of a longer name that are kept, for people. A hash makes the name unique.
const NAME_KEPT_BYTES: usize = 120;
const NAME_HASH_BYTES: usize = 16;
/// How often a file is opened again that was replaced between opening and locking it.
const REPLACED_MAX: usize = 8;

/// The alloc and the runner of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The alloc's namespace.
    pub namespace: Namespace,
    /// The alloc that claims the volumes.
    pub alloc: AllocId,
    /// The runner's process id, for people.
    pub pid: u32,
    /// The mark that tells this run's processes from those of every other run on the host; empty in
    /// a file of an older version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mark: String,
    /// How the run ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// What stands in for a runner, where a scheduler started the workload itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<RunGuard>,
}

/// What a scheduler named as running its alloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunGuard {
    /// A process, a cgroup or a lock.
    pub guard: Guard,
    /// The boot of the host in which it was named. Nothing of it lives in another boot.
    pub boot_id: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// What the alloc's state becomes.
    pub state: AllocState,
    /// Why, for people.
    pub note: String,
}

/// Why a run could not be announced.
#[derive(Debug, Error)]
pub enum AnnounceError {
    /// A run of that alloc exists already.
    #[error("a command of that alloc runs here, or its end was not reported yet")]
    Taken,
    /// The directory or a file in it cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The directory of a node's runs.
#[derive(Debug, Clone)]
pub struct Runs {
    dir: PathBuf,
}

/// A run as another process sees it.
#[derive(Debug, Clone)]
pub struct ObservedRun {
    /// The alloc and the runner.
    pub run: Run,
    /// The name of its files.
    pub name: String,
    /// The name of the file that its command inherited, without `.held`.
    pub held_name: String,
    /// Whether its runner exists.
    pub has_runner: bool,
    /// Whether a process holds the inherited lock.
    pub is_held: bool,
    /// The time since its file was last changed.
    pub age: Duration,
}

/// What [`Runs::set_guard`] found.
#[derive(Debug)]
pub enum GuardSet {
    /// The alloc is guarded by it now, or was before.
    Done,
    /// It does not live, so it guards nothing.
    Absent,
    /// The alloc has another guard, or `berth run` runs it.
    Taken(Box<ObservedRun>),
}

impl ObservedRun {
    /// Whether the run is over, as far as locks tell. Its runner may be about to report the end.
    pub fn is_over(&self) -> bool {
        self.run.ended.is_some() || !(self.has_runner || self.is_held)
    }
}

/// The name of a run whose files could not be read, and why.
pub type Unread = (String, io::Error);

/// The run of this process.
#[derive(Debug)]
pub struct Announced {
    runs: Runs,
    run: Run,
    name: String,
    /// Locked for as long as it is open.
    file: File,
    held: Option<File>,
}

impl Runs {
    /// The runs of the agent with this state directory.
    pub fn below(state_dir: &Path) -> Self {
        Self::in_dir(state_dir.join(DIR))
    }

    /// The runs in this directory.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Where they are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory.
    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)
    }

    fn path(&self, name: &str, what: &str) -> PathBuf {
        self.dir.join(format!("{name}.{what}"))
    }

    /// Announces that a command of this alloc is about to run, before the alloc is registered.
    pub fn announce(&self, run: Run) -> Result<Announced, AnnounceError> {
        let run = Run { mark: format!("{:016x}", rand::random::<u64>()), ..run };
        let name = name(&run.namespace, &run.alloc);
        let write = |path: &Path| {
            let path = path.to_owned();
            move |source| AnnounceError::Write { path, source }
        };
        let new = self.path(&name, &format!("{}.new", run.pid));
        let path = self.path(&name, JSON);
        let file = locked(&new, &run).map_err(write(&new))?;
        // A link never replaces a file, so no other run is overwritten. The file is complete and
        // locked when it appears.
        let linked = fs::hard_link(&new, &path);
        let _ = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(AnnounceError::Taken);
            }
            linked => linked.map_err(write(&path))?,
        }
        let held_path = self.path(&held_name(&name, &run), HELD);
        let held = OpenOptions::new().write(true).create(true).truncate(true).open(&held_path);
        let held = held.and_then(|held| Ok(held.try_lock().map(|()| held)?));
        let synced = held.and_then(|held| File::open(&self.dir)?.sync_all().map(|()| held));
        let held = Some(synced.map_err(write(&held_path))?);
        Ok(Announced { runs: self.clone(), run, name, file, held })
    }

    /// Records what runs an alloc. From then on the run exists while that lives.
    pub fn set_guard(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
        guard: RunGuard,
    ) -> io::Result<GuardSet> {
        if let Some(known) = self.find(namespace, alloc)? {
            return Ok(match &known.run.guard {
                Some(now) if *now == guard => GuardSet::Done,
                _ => GuardSet::Taken(Box::new(known)),
            });
        }
        if !self.lives(&guard)? {
            return Ok(GuardSet::Absent);
        }
        let (namespace, alloc) = (namespace.clone(), alloc.clone());
        let pid = guard.guard.pid.unwrap_or_default();
        let mark = format!("{:016x}", rand::random::<u64>());
        let name = name(&namespace, &alloc);
        let run = Run { namespace, alloc, pid, mark, ended: None, guard: Some(guard) };
        let new = self.path(&name, &format!("{}.new", run.mark));
        drop(locked(&new, &run)?);
        // A link never replaces a file, so no other run is overwritten.
        let linked = fs::hard_link(&new, self.path(&name, JSON));
        let _ = fs::remove_file(&new);
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Another request was faster.
                let found = self.read_run(&name)?;
                Ok(found.map_or(GuardSet::Absent, |found| GuardSet::Taken(Box::new(found))))
            }
            linked => {
                linked.and_then(|()| File::open(&self.dir)?.sync_all()).map(|()| GuardSet::Done)
            }
        }
    }

    /// Whether the guard lives.
    fn lives(&self, RunGuard { guard, boot_id }: &RunGuard) -> io::Result<bool> {
        if *boot_id != berth_host::read_boot_id()? {
            return Ok(false);
        }
        match guard {
            Guard { pid: Some(pid), start: Some(start), .. } => {
                Ok(ProcessHandle::open(*pid, *start)?.is_some())
            }
            Guard { cgroup: Some(dir), .. } => cgroup::has_process(Path::new(dir)),
            Guard { lock: Some(file), .. } => match found(open_lock(&self.dir.join(file)))? {
                Some(file) => is_locked(&file),
                None => Ok(false),
            },
            _ => Ok(false),
        }
    }

    /// The run of this alloc, if there is one.
    pub fn find(&self, namespace: &Namespace, alloc: &AllocId) -> io::Result<Option<ObservedRun>> {
        self.read_run(&name(namespace, alloc))
    }

    /// All runs. Runs that cannot be read are returned by name.
    pub fn list(&self) -> io::Result<(Vec<ObservedRun>, Vec<Unread>)> {
        let (mut seen, mut unread) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != JSON) {
                continue;
            }
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
            match self.read_run(name) {
                Ok(found) => seen.extend(found),
                Err(error) => unread.push((name.to_owned(), error)),
            }
        }
        Ok((seen, unread))
    }

    fn read_run(&self, name: &str) -> io::Result<Option<ObservedRun>> {
        let path = self.path(name, JSON);
        for _ in 0..REPLACED_MAX {
            let Some(file) = found(File::open(&path))? else { return Ok(None) };
            let is_announced = is_locked(&file)?;
            // Its runner may have replaced the file with another, locked one before it closed this
            // one.
            let Some(there) = found(fs::metadata(&path))? else { return Ok(None) };
            let opened = file.metadata()?;
            if (opened.dev(), opened.ino()) != (there.dev(), there.ino()) {
                continue;
            }
            let age = opened.modified()?.elapsed().unwrap_or_default();
            let run: Run = serde_json::from_reader(&file)?;
            let has_runner = match &run.guard {
                Some(guard) => self.lives(guard)?,
                None => is_announced,
            };
            let held_name = held_name(name, &run);
            let held = found(File::open(self.path(&held_name, HELD)))?;
            let is_held = held.map_or(Ok(false), |held| is_locked(&held))?;
            let name = name.to_owned();
            return Ok(Some(ObservedRun { run, name, held_name, has_runner, is_held, age }));
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the run's file was replaced while it was read, each time",
        ))
    }

    /// Removes the files of a run that is over and was reported.
    pub fn forget(&self, name: &str, held_name: &str) -> io::Result<()> {
        let run = found(File::open(self.path(name, JSON)))?;
        let run: Option<Run> = run.and_then(|file| serde_json::from_reader(file).ok());
        if let Some(lock) = run.and_then(|run| run.guard?.guard.lock) {
            found(fs::remove_file(self.dir.join(lock)))?;
        }
        // The file that makes it a run is removed last.
        found(fs::remove_file(self.path(held_name, HELD)))?;
        found(fs::remove_file(self.path(name, JSON))).map(drop)
    }
}

impl Announced {
    /// The open file that the command must inherit, and its path.
    pub fn held(&self) -> Option<(&File, PathBuf)> {
        let held_name = held_name(&self.name, &self.run);
        Some((self.held.as_ref()?, self.runs.path(&held_name, HELD)))
    }

    /// Records how the run ended. Only after the command and all its child processes are gone.
    pub fn ended(&mut self, ended: Ended) -> io::Result<()> {
        self.run.ended = Some(ended);
        let new = self.runs.path(&self.name, &format!("{}.new", self.run.pid));
        let file = locked(&new, &self.run)?;
        fs::rename(&new, self.runs.path(&self.name, JSON))?;
        self.file = file;
        self.held = None;
        Ok(())
    }

    /// Removes the run's files after its end was reported.
    pub fn forget_ended(self) -> io::Result<()> {
        self.runs.forget(&self.name, &held_name(&self.name, &self.run))
    }
}

/// Whether the process has this run's mark: a mount of the inherited file, in a mount namespace
/// that the runner made, or in one that was made from that.
pub fn is_of(held_name: &str, mountinfo: &[u8]) -> bool {
    let file = format!("/{held_name}.{HELD}");
    // The fourth field is the part of the file system that is mounted (proc(5)). The name needs no
    // escapes.
    mountinfo.split(|byte| *byte == b'\n').any(|line| {
        let root = line.split(|byte| *byte == b' ').nth(3);
        root.is_some_and(|root| root.ends_with(file.as_bytes()))
    })
}

/// Whether a process's open file with this path is the file that this run's command inherited.
pub fn is_inherited(held_name: &str, path: &Path) -> bool {
    path.file_name().is_some_and(|file| file == format!("{held_name}.{HELD}").as_str())
}

fn held_name(name: &str, run: &Run) -> String {
    if run.mark.is_empty() { name.to_owned() } else { format!("{name}.{}", run.mark) }
}

/// The name of an alloc's run: its key, without slashes.
fn name(namespace: &Namespace, alloc: &AllocId) -> String {
    let name = format!("{}.{}", token::encode(namespace), token::encode(alloc));
    // A token never holds these three characters, so they can stand for a slash.
    let mut name = name.replace('/', "=2F");
    if name.len() > NAME_BYTES_MAX {
        let hash = Sha256::digest(name.as_bytes());
        // Tokens are ASCII.
        name.truncate(NAME_KEPT_BYTES);
        name.push('-');
        name.push_str(&HEXLOWER.encode(&hash[..NAME_HASH_BYTES]));
    }
    name
}

/// Creates a file with this content, locked and synced.
fn locked(path: &Path, run: &Run) -> io::Result<File> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.try_lock()?;
    file.write_all(&serde_json::to_vec(run)?)?;
    file.sync_all()?;
    Ok(file)
}

/// Whether another process has it locked. Processes that only check do not see each other.
fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The file of a guard. The directory is the agent's own, and holds nothing but plain files.
fn open_lock(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a lock must be a plain file"))
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn run(alloc: &str) -> Run {
        let (namespace, alloc) = (Namespace::default(), AllocId::new(alloc).unwrap());
        Run {
            namespace,
            alloc,
            pid: std::process::id(),
            mark: String::new(),
            ended: None,
            guard: None,
        }
    }

    fn seen(runs: &Runs, alloc: &str) -> Option<ObservedRun> {
        runs.find(&Namespace::default(), &AllocId::new(alloc).unwrap()).unwrap()
    }

    /// The run once it looks like this. A process that a parallel test starts has every open file
    /// of this test between its fork and its exec, and so its locks.
    fn seen_once(runs: &Runs, alloc: &str, is_so: impl Fn(&ObservedRun) -> bool) -> ObservedRun {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let seen = seen(runs, alloc).unwrap();
            if is_so(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{seen:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_longest_ids_have_files_and_each_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::below(dir.path());
        let ids = ["x".repeat(256), format!("{}y", "x".repeat(255)), "ü/".repeat(85)];
        let names: Vec<String> = ids
            .iter()
            .map(|id| name(&Namespace::default(), &AllocId::new(id.as_str()).unwrap()))
            .collect();
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX), "{names:?}");
        assert!(names[0] != names[1] && names[1] != names[2], "{names:?}");
        assert!(ids.iter().all(|id| seen(&runs, id).is_none()), "they can be looked for");
        runs.make().unwrap();
        let announced = ids.map(|id| runs.announce(run(&id)).unwrap());
        assert_eq!(runs.list().unwrap().0.len(), announced.len());
    }

    #[test]
    fn a_run_is_over_when_runner_and_command_are_gone_or_when_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::below(dir.path());
        runs.make().unwrap();
        assert!(seen(&runs, "a/b").is_none());
        let announced = runs.announce(run("a/b")).unwrap();
        assert!(!seen(&runs, "a/b").unwrap().is_over());
        assert!(matches!(runs.announce(run("a/b")), Err(AnnounceError::Taken)));
        assert!(!seen(&runs, "a/b").unwrap().is_over(), "who came too late changed nothing");

        // The runner is gone, and a process of the command's is not.
        let held = announced.held().unwrap().0.try_clone().unwrap();
        let mut command = Command::new("cat").stdin(Stdio::piped()).stdout(held).spawn().unwrap();
        drop(announced);
        let left = seen_once(&runs, "a/b", |seen| !seen.has_runner);
        assert!(left.is_held && !left.is_over(), "{left:?}");
        drop(command.stdin.take());
        command.wait().unwrap();
        let over = seen_once(&runs, "a/b", |seen| !seen.is_held);
        assert!(over.is_over(), "{over:?}");
        assert_eq!(runs.list().unwrap().0.len(), 1);
        runs.forget(&over.name, &over.held_name).unwrap();
        assert_eq!(fs::read_dir(runs.dir()).unwrap().count(), 0);

        let mut announced = runs.announce(run("a/b")).unwrap();
        let ended = Ended { state: AllocState::Complete, note: "exit code 0".to_owned() };
        announced.ended(ended.clone()).unwrap();
        let over = seen(&runs, "a/b").unwrap();
        assert!(over.is_over() && over.has_runner, "{over:?}");
        assert_eq!(over.run.ended, Some(ended));
        announced.forget_ended().unwrap();
        assert_eq!(fs::read_dir(runs.dir()).unwrap().count(), 0);
    }

    /// Agents of two systems on one host: neither takes the other's command for its own.
    #[test]
    fn runs_of_one_name_in_two_directories_have_marks_of_their_own() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = dirs.each_ref().map(|dir| {
            let runs = Runs::below(dir.path());
            runs.make().unwrap();
            let announced = runs.announce(run("a")).unwrap();
            let (_, path) = announced.held().unwrap();
            (seen(&runs, "a").unwrap(), path, announced)
        });
        assert_eq!(one.0.name, other.0.name);
        assert!(is_inherited(&one.0.held_name, &one.1));
        assert!(!is_inherited(&one.0.held_name, &other.1));
        // The file of an older version has no mark.
        assert!(is_inherited(&held_name("default.a", &run("a")), Path::new("/r/default.a.held")));
    }

    #[test]
    fn what_cannot_be_watched_is_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let runs = Runs::below(dir.path());
        assert!(matches!(runs.announce(run("a")), Err(AnnounceError::Write { .. })));
        runs.make().unwrap();
        fs::write(runs.dir().join("x.json"), "{").unwrap();
        let (seen, unread) = runs.list().unwrap();
        assert!(seen.is_empty() && unread.len() == 1, "{seen:?} {unread:?}");
    }

    #[test]
    fn a_process_is_known_by_its_mounts() {
        // Another mount's path is no text, and keeps nothing from being seen.
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 8:1 /\xff /mnt/\xff\xfe rw - ext4 /dev/sda1 rw\n\
            41 22 8:1 /var/lib/berth/runs/default.a=2Fb.held /x rw - ext4 /dev/sda1 rw\n";
        assert!(is_of("default.a=2Fb", mounts));
        assert!(!is_of("default.b", mounts) && !is_of("b", mounts));
        assert!(is_inherited("default.b", Path::new("/r/default.b.held")));
        assert!(!is_inherited("b", Path::new("/r/default.b.held")));
    }
}
