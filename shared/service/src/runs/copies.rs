//! The agent's copies of the runs, in a directory of their own.
//!
//! **Promises** that a copy is on the disk before its guard is acknowledged, and that the loss of
//! the directory is noticed: a marker file beside it shows that it was made.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::record::{JSON, Run, found};

const DIR: &str = "known-runs";
/// The marker file of a directory that was made. An earlier version wrote none.
const MARKER_FILE: &str = "known-runs-made";

/// The directory of the copies.
#[derive(Debug, Clone)]
pub(super) struct RunCopies {
    dir: PathBuf,
    made: PathBuf,
}

impl RunCopies {
    /// The copies of the runs in the directory `runs`.
    pub(super) fn beside(runs: &Path) -> Self {
        Self { dir: runs.with_file_name(DIR), made: runs.with_file_name(MARKER_FILE) }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.{JSON}"))
    }

    /// Whether the directory was made, and is gone.
    pub(super) fn is_lost(&self) -> io::Result<bool> {
        Ok(fs::exists(&self.made)? && !fs::exists(&self.dir)?)
    }

    /// Writes a copy completely, and syncs it.
    pub(super) fn write(&self, name: &str, run: &Run) -> io::Result<()> {
        if !fs::exists(&self.made)? {
            File::create(&self.made)?.sync_all()?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let temporary = self.dir.join(format!("{name}.new"));
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(run)?)?;
        file.sync_all()?;
        fs::rename(temporary, self.path(name))?;
        File::open(&self.dir)?.sync_all()
    }

    /// The copy, and the time since it was made.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<(Run, Duration)>> {
        let path = self.path(name);
        let Some(file) = found(File::open(&path))? else { return Ok(None) };
        let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
        let run = serde_json::from_reader(file);
        let run = run.map_err(|error| io::Error::other(format!("{}: {error}", path.display())));
        Ok(Some((run?, age)))
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        found(fs::remove_file(self.path(name))).map(drop)
    }

    /// The names of all copies. None if the directory is gone: it is made again from the runs.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in found(fs::read_dir(&self.dir))?.into_iter().flatten() {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == JSON) {
                names.extend(path.file_stem().and_then(|name| name.to_str()).map(str::to_owned));
            }
        }
        Ok(names)
    }

    /// All copies, with their names.
    pub(super) fn list(&self) -> io::Result<Vec<(String, Run)>> {
        let mut copies = Vec::new();
        for name in self.names()? {
            copies.extend(self.read(&name)?.map(|(run, _)| (name, run)));
        }
        Ok(copies)
    }
}
