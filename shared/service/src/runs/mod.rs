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
//! The agent keeps a copy of each `<run>.json` in `<state_dir>/known-runs`. So a run is known as
//! long as one of the two directories is there, and the agent makes the other again
//! ([`Runs::heal`]).
//!
//! **Promises** that a run is visible from before its alloc is registered until its end was
//! reported. A run never looks over while its runner or a process with the inherited lock exists.
//! What cannot be looked at is no end: it is an error, or [`ObservedRun::unknown`].
//!
//! **Never** sees a process that closed the file that it inherited. A caller that must know that no
//! process is left also checks [`is_of`].

mod copies;
mod liveness;
mod record;

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::token;
use berth_domain::{AllocId, Namespace};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::process::chain;
use copies::RunCopies;
use liveness::{Liveness, is_locked};
use record::{JSON, found};

pub use record::{Ended, FileId, Run, RunGuard};

const DIR: &str = "runs";
const HELD: &str = "held";
/// The longest name of a run, in bytes. With its suffix the file's name must not exceed 255.
const NAME_BYTES_MAX: usize = 200;
/// Bytes of a longer name that are kept, for readers. A hash makes the name unique.
const NAME_KEPT_BYTES: usize = 120;
const NAME_HASH_BYTES: usize = 16;
/// Most times that a file is opened again because it was replaced between opening and locking it.
const REPLACED_MAX: usize = 8;

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

/// The directory of a node's runs. Clones share the lock files that are held open.
#[derive(Debug, Clone)]
pub struct Runs {
    dir: PathBuf,
    copies: RunCopies,
    liveness: Liveness,
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
    /// Whether its file is gone, so that the facts are from the agent's copy. Then only the
    /// processes of a command show whether it is over.
    pub is_lost: bool,
    /// Why it cannot be determined whether the run is over.
    pub unknown: Option<String>,
}

/// The result of [`Runs::set_guard`].
#[derive(Debug)]
pub enum GuardSet {
    /// The guard is the alloc's guard now, or was before.
    Done,
    /// The guard does not live, so it guards nothing.
    Absent,
    /// The alloc has another guard, or `berth run` runs it.
    Taken(Box<ObservedRun>),
}

impl ObservedRun {
    /// Whether the run is over, as far as locks tell. Its runner may be about to report the end.
    pub fn is_over(&self) -> bool {
        let lives = self.has_runner || self.is_held || self.unknown.is_some();
        self.run.ended.is_some() || !lives
    }
}

/// The name of a run whose files could not be read, with the error.
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
        let dir = dir.into();
        let (copies, liveness) = (RunCopies::beside(&dir), Liveness::default());
        Self { dir, copies, liveness }
    }

    /// The directory of the runs.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory, and each file that is missing here or among the copies.
    ///
    /// For the agent only. A directory that is made again has the guards' files when it appears, so
    /// no guard is missed meanwhile. Files of commands are not made again, because their locks are
    /// lost with them.
    pub fn heal(&self) -> io::Result<()> {
        let copies = self.copies.list()?;
        let guards = || copies.iter().filter(|(_, run)| run.guard.is_some());
        if let Err(error) = self.check_dir() {
            if error.kind() != ErrorKind::NotFound {
                return Err(error);
            }
            let temporary = self.dir.with_extension("new");
            DirBuilder::new().recursive(true).mode(0o700).create(&temporary)?;
            for (name, run) in guards() {
                drop(locked(&temporary.join(format!("{name}.{JSON}")), run)?);
            }
            fs::rename(&temporary, &self.dir)?;
            tracing::warn!(dir = %self.dir.display(), "the directory of runs was gone: made again");
        }
        for (name, run) in guards() {
            let path = self.path(name, JSON);
            if found(fs::symlink_metadata(&path))?.is_none() {
                self.link_run(name, run)?;
                tracing::warn!(path = %path.display(), "the file of a guard was gone: made again");
            }
        }
        for name in self.names()? {
            if copies.iter().any(|(copied_name, _)| *copied_name == name) {
                continue;
            }
            let Some(run) = self.read_json(&name)? else { continue };
            if run.ended.is_none() {
                self.copies.write(&name, &self.with_file(run)?)?;
            }
        }
        Ok(())
    }

    /// The files of a run, for an operator who has to remove them.
    pub fn files_of(&self, name: &str) -> [PathBuf; 2] {
        [self.path(name, JSON), self.copies.path(name)]
    }

    /// Fails unless the directory exists. If the copies are lost, too, the guarded allocs are not
    /// known, and only an operator can confirm that there are none.
    fn check_dir(&self) -> io::Result<()> {
        let Some(dir) = found(fs::metadata(&self.dir))? else {
            return Err(if self.copies.is_lost()? {
                io::Error::other(
                    "both records of what runs here are gone, so nothing is unmounted before a \
                     person makes the directory again: once no workload uses a volume here",
                )
            } else {
                ErrorKind::NotFound.into()
            });
        };
        let is_dir = dir.is_dir();
        if is_dir { Ok(()) } else { Err(ErrorKind::NotADirectory.into()) }
    }

    /// The names of all runs with a file.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == JSON) {
                names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
            }
        }
        Ok(names)
    }

    fn read_json(&self, name: &str) -> io::Result<Option<Run>> {
        let Some(file) = found(File::open(self.path(name, JSON)))? else { return Ok(None) };
        Ok(Some(serde_json::from_reader(file)?))
    }

    /// The run with the id of the file that its guard has locked, if that file exists.
    fn with_file(&self, mut run: Run) -> io::Result<Run> {
        if let Some(guard) = run.guard.as_mut().filter(|guard| guard.file.is_none())
            && let Some(lock) = &guard.guard.lock
        {
            guard.file = self.liveness.hold(&self.dir.join(lock))?;
        }
        Ok(run)
    }

    /// The run with the file id of its copy. An earlier version wrote a run without.
    fn with_known_file(&self, name: &str, mut run: Run) -> io::Result<Run> {
        if let Some(guard) = run.guard.as_mut().filter(|guard| guard.file.is_none())
            && guard.guard.lock.is_some()
        {
            guard.file = self.copies.read(name)?.and_then(|(copied, _)| copied.guard?.file);
        }
        Ok(run)
    }

    /// Makes a run's file, which is complete when it appears. Fails if there is one.
    fn link_run(&self, name: &str, run: &Run) -> io::Result<()> {
        let temporary = self.path(name, &format!("{}.new", run.mark));
        drop(locked(&temporary, run)?);
        // A link never replaces a file, so no other run is overwritten.
        let linked = fs::hard_link(&temporary, self.path(name, JSON));
        let _ = fs::remove_file(&temporary);
        linked.and_then(|()| File::open(&self.dir)?.sync_all())
    }

    fn path(&self, name: &str, suffix: &str) -> PathBuf {
        self.dir.join(format!("{name}.{suffix}"))
    }

    /// Announces that a command of this alloc is about to run, before the alloc is registered.
    pub fn announce(&self, run: Run) -> Result<Announced, AnnounceError> {
        let run = Run { mark: format!("{:016x}", rand::random::<u64>()), ..run };
        let name = file_name(&run.namespace, &run.alloc);
        let write = |path: &Path| {
            let path = path.to_owned();
            move |source| AnnounceError::Write { path, source }
        };
        let temporary = self.path(&name, &format!("{}.new", run.pid));
        let path = self.path(&name, JSON);
        let file = locked(&temporary, &run).map_err(write(&temporary))?;
        // A link never replaces a file, so no other run is overwritten. The file is complete and
        // locked when it appears.
        let linked = fs::hard_link(&temporary, &path);
        let _ = fs::remove_file(&temporary);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
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

    /// Sets the guard of an alloc. From then on the run exists while the guard lives.
    pub fn set_guard(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
        guard: RunGuard,
    ) -> io::Result<GuardSet> {
        self.heal()?;
        if let Some(existing) = self.find(namespace, alloc)? {
            return set_before(&guard, existing);
        }
        if !self.liveness.lives(&self.dir, &guard)? {
            return Ok(GuardSet::Absent);
        }
        let (namespace, alloc) = (namespace.clone(), alloc.clone());
        let pid = guard.guard.pid.unwrap_or_default();
        let mark = format!("{:016x}", rand::random::<u64>());
        let name = file_name(&namespace, &alloc);
        let run = Run { namespace, alloc, pid, mark, ended: None, guard: Some(guard.clone()) };
        let run = self.with_file(run)?;
        match self.link_run(&name, &run) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // Another request set a guard first.
                let existing = self.observe(&name)?;
                existing.map_or(Ok(GuardSet::Absent), |existing| set_before(&guard, existing))
            }
            // Written last, so that a copy is only of an accepted guard.
            linked => linked.and_then(|()| self.copies.write(&name, &run)).map(|()| GuardSet::Done),
        }
    }

    /// The run of this alloc, if there is one. Fails if that cannot be determined.
    pub fn find(&self, namespace: &Namespace, alloc: &AllocId) -> io::Result<Option<ObservedRun>> {
        self.observe(&file_name(namespace, alloc))
    }

    /// All runs. Runs that cannot be read are returned by name.
    pub fn list(&self) -> io::Result<(Vec<ObservedRun>, Vec<Unread>)> {
        let (mut seen, mut unread) = (Vec::new(), Vec::new());
        let mut names: BTreeSet<String> = self.copies.names()?.into_iter().collect();
        match self.check_dir().and_then(|()| self.names()) {
            Ok(listed) => names.extend(listed),
            Err(error) => unread.push((self.dir.display().to_string(), error)),
        }
        for name in names {
            match self.observe(&name) {
                Ok(observed) => seen.extend(observed),
                Err(error) => unread.push((name, error)),
            }
        }
        Ok((seen, unread))
    }

    /// The run by its own files, or else by the agent's copy. An absence is certain only while the
    /// directory exists.
    fn observe(&self, name: &str) -> io::Result<Option<ObservedRun>> {
        let failed = match self.read_run(name) {
            Ok(Some(seen)) => return Ok(Some(seen)),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if let Some((run, age)) = self.copies.read(name)? {
            let unknown = failed.filter(|_| run.guard.is_none()).map(|error| chain(&error));
            let lost = ObservedRun {
                name: name.to_owned(),
                held_name: held_name(name, &run),
                has_runner: false,
                is_held: false,
                age,
                is_lost: true,
                unknown,
                run,
            };
            return Ok(Some(self.with_guard(lost)));
        }
        match failed {
            Some(error) => Err(error),
            None => self.check_dir().map(|()| None),
        }
    }

    fn read_run(&self, name: &str) -> io::Result<Option<ObservedRun>> {
        let path = self.path(name, JSON);
        for _ in 0..REPLACED_MAX {
            let Some(file) = found(File::open(&path))? else { return Ok(None) };
            let is_announced = is_locked(&file)?;
            // The runner may have replaced the file by another locked one before it closed this
            // one.
            let Some(there) = found(fs::metadata(&path))? else { return Ok(None) };
            let opened = file.metadata()?;
            if (opened.dev(), opened.ino()) != (there.dev(), there.ino()) {
                continue;
            }
            let age = opened.modified()?.elapsed().unwrap_or_default();
            let run: Run = serde_json::from_reader(&file)?;
            let run = self.with_known_file(name, run)?;
            let held_name = held_name(name, &run);
            let held = found(File::open(self.path(&held_name, HELD)))?;
            return Ok(Some(self.with_guard(ObservedRun {
                name: name.to_owned(),
                held_name,
                has_runner: is_announced && run.guard.is_none(),
                is_held: held.map_or(Ok(false), |held| is_locked(&held))?,
                age,
                is_lost: false,
                unknown: None,
                run,
            })));
        }
        Err(io::Error::new(
            ErrorKind::ResourceBusy,
            "the run's file was replaced while it was read, each time",
        ))
    }

    /// The run, with whether its guard lives.
    fn with_guard(&self, mut seen: ObservedRun) -> ObservedRun {
        if let Some(guard) = &seen.run.guard {
            match self.liveness.lives(&self.dir, guard) {
                Ok(lives) => seen.has_runner = lives,
                Err(error) => seen.unknown = Some(chain(&error)),
            }
        }
        seen
    }

    /// Removes the files of a run that is over and was reported.
    pub fn forget(&self, name: &str, held_name: &str) -> io::Result<()> {
        let run = self.read_json(name).ok().flatten();
        let run = run.or_else(|| Some(self.copies.read(name).ok()??.0));
        // Removed first, so that no copy is left from which the run would be made again.
        self.copies.remove(name)?;
        if let Some(guard) = run.and_then(|run| run.guard)
            && let Some(lock) = &guard.guard.lock
        {
            found(fs::remove_file(self.dir.join(lock)))?;
            self.liveness.let_go(&guard);
        }
        // The file that makes it a run is removed last.
        found(fs::remove_file(self.path(held_name, HELD)))?;
        found(fs::remove_file(self.path(name, JSON))).map(drop)
    }
}

/// The result of a request to guard an alloc that has a run already.
fn set_before(guard: &RunGuard, existing: ObservedRun) -> io::Result<GuardSet> {
    match (&existing.run.guard, &existing.unknown) {
        (Some(present), Some(why)) if present.is_same(guard) => Err(io::Error::other(why.clone())),
        // The guard may have ended, without a report of the alloc's end yet.
        (Some(present), None) if present.is_same(guard) && existing.has_runner => {
            Ok(GuardSet::Done)
        }
        (Some(present), None) if present.is_same(guard) => Ok(GuardSet::Absent),
        _ => Ok(GuardSet::Taken(Box::new(existing))),
    }
}

impl Announced {
    /// The open file that the command must inherit, and its path.
    pub fn held(&self) -> Option<(&File, PathBuf)> {
        let held_name = held_name(&self.name, &self.run);
        Some((self.held.as_ref()?, self.runs.path(&held_name, HELD)))
    }

    /// Records how the run ended. Call it only after the command and all its child processes are
    /// gone.
    pub fn ended(&mut self, ended: Ended) -> io::Result<()> {
        self.run.ended = Some(ended);
        let temporary = self.runs.path(&self.name, &format!("{}.new", self.run.pid));
        let file = locked(&temporary, &self.run)?;
        fs::rename(&temporary, self.runs.path(&self.name, JSON))?;
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
/// that the runner made, or in one derived from it.
pub fn is_of(held_name: &str, mountinfo: &[u8]) -> bool {
    let file = format!("/{held_name}.{HELD}");
    let deleted = format!("{file}//deleted");
    // The fourth field is the part of the file system that is mounted (proc(5)). The name needs no
    // escapes.
    mountinfo.split(|byte| *byte == b'\n').any(|line| {
        let root = line.split(|byte| *byte == b' ').nth(3);
        root.is_some_and(|root| {
            root.ends_with(file.as_bytes()) || root.ends_with(deleted.as_bytes())
        })
    })
}

/// Whether a process's open file with this path is the file that this run's command inherited.
pub fn is_inherited(held_name: &str, path: &Path) -> bool {
    let Some(file) = path.file_name().and_then(|file| file.to_str()) else { return false };
    // The kernel's suffix for a file that was removed since (proc(5)).
    let file = file.strip_suffix(" (deleted)").unwrap_or(file);
    file == format!("{held_name}.{HELD}")
}

fn held_name(name: &str, run: &Run) -> String {
    if run.mark.is_empty() { name.to_owned() } else { format!("{name}.{}", run.mark) }
}

/// The name of an alloc's run, and of other files about the alloc: its key, without slashes.
pub fn file_name(namespace: &Namespace, alloc: &AllocId) -> String {
    let name = format!("{}.{}", token::encode(namespace), token::encode(alloc));
    // A token never contains these three characters, so they can replace a slash.
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

#[cfg(test)]
mod tests;
