//! Faults planted by a test.
//!
//! Owns: the fault file and how often each of its entries was used. Promises: the file is read
//! again at every call, so it can change while the driver runs; a file that cannot be understood
//! fails every call, so a mistyped fault is noticed. Never: waits or fails by itself.
//!
//! The file is a JSON array; no file means no faults. Write it in one step ([`write()`]).
//!
//! ```json
//! [{"rpc": "NodeStageVolume", "volume": "v1", "when": "after",
//!   "delay_ms": 500, "code": "UNAVAILABLE", "times": 2}]
//! ```
//!
//! Each instance counts `times` for itself, and starts again whenever the file is written anew.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use berth_csi::{Code, Rpc};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One entry of the fault file. Of those that fit a call, the first that is not used up is taken,
/// one for before and one for after.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which calls; `None` means all.
    #[serde(default)]
    pub rpc: Option<Rpc>,
    /// About which volume; `None` means any, and calls about none.
    #[serde(default)]
    pub volume: Option<String>,
    /// Before or after the call has done its work.
    #[serde(default)]
    pub when: When,
    /// How long the call stands still, in milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// What it then answers; `None` means that it goes on as if nothing had been.
    #[serde(default)]
    pub code: Option<Code>,
    /// How many calls it hits, per instance; `None` means all.
    #[serde(default)]
    pub times: Option<u32>,
}

/// On which side of the work a fault lies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Nothing is done yet, and with a code nothing will be.
    #[default]
    Before,
    /// All is done, and with a code the caller is told otherwise.
    After,
}

/// What befalls one call.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Fate {
    /// Before its work.
    pub before: Option<Fault>,
    /// After its work.
    pub after: Option<Fault>,
}

/// The faults of one instance.
#[derive(Debug)]
pub struct Faults {
    file: Option<PathBuf>,
    used: Mutex<Used>,
}

/// How often the entries of one writing of the file were used, by their place in it.
#[derive(Debug, Default)]
struct Used {
    writing: Writing,
    count: HashMap<usize, u32>,
}

/// Tells one writing of the file from another: inode, size, and time of change.
type Writing = (u64, u64, i64, i64);

/// Why the fault file could not be used.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The file system said no.
    #[error("cannot read or write the fault file {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no array of faults.
    #[error("the fault file {} cannot be understood", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
}

impl Faults {
    /// Faults from `file`, which need not exist; none ever without one.
    pub fn from_file(file: Option<PathBuf>) -> Self {
        Self { file, used: Mutex::default() }
    }

    /// What befalls the next call of `rpc` about `volume`. Asked once per call.
    pub fn fate(&self, rpc: Rpc, volume: Option<&str>) -> Result<Fate, FaultError> {
        let Some(path) = &self.file else { return Ok(Fate::default()) };
        let Some((writing, faults)) = read(path)? else { return Ok(Fate::default()) };

        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.writing != writing {
            *used = Used { writing, count: HashMap::new() };
        }
        let mut take = |when: When| {
            for (place, fault) in faults.iter().enumerate() {
                let count = used.count.entry(place).or_default();
                if fault.fits(when, rpc, volume) && fault.times.is_none_or(|times| *count < times) {
                    *count += 1;
                    return Some(fault.clone());
                }
            }
            None
        };
        Ok(Fate { before: take(When::Before), after: take(When::After) })
    }
}

impl Fault {
    fn fits(&self, when: When, rpc: Rpc, volume: Option<&str>) -> bool {
        self.when == when
            && self.rpc.is_none_or(|wanted| wanted == rpc)
            && self.volume.as_deref().is_none_or(|wanted| Some(wanted) == volume)
    }
}

/// Writes a fault file in one step, over an earlier one.
pub fn write(path: &Path, faults: &[Fault]) -> Result<(), FaultError> {
    let failed = |source| FaultError::Io { path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(faults).map_err(|error| failed(error.into()))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path)).map_err(failed)
}

fn read(path: &Path) -> Result<Option<(Writing, Vec<Fault>)>, FaultError> {
    let failed = |source| FaultError::Io { path: path.to_owned(), source };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let meta = file.metadata().map_err(failed)?;
    let writing = (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
    let text = io::read_to_string(file).map_err(failed)?;
    let wrong = |source| FaultError::Content { path: path.to_owned(), source };
    Ok(Some((writing, serde_json::from_str(&text).map_err(wrong)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_fits_and_is_not_used_up_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("faults.json");
        let faults = Faults::from_file(Some(path.clone()));
        let stage = |faults: &Faults| faults.fate(Rpc::NodeStageVolume, Some("v")).unwrap();
        assert_eq!(stage(&faults), Fate::default(), "no file, no faults");

        let once = Fault {
            rpc: Some(Rpc::NodeStageVolume),
            code: Some(Code::Aborted),
            times: Some(1),
            ..Fault::default()
        };
        let other = Fault { volume: Some("w".into()), ..once.clone() };
        let always = Fault { when: When::After, delay_ms: 5, ..Fault::default() };
        write(&path, &[other, once.clone(), always.clone()]).unwrap();
        let both = Fate { before: Some(once), after: Some(always.clone()) };
        let after_only = Fate { before: None, after: Some(always) };
        assert_eq!(faults.fate(Rpc::Probe, None).unwrap(), after_only);
        assert_eq!(stage(&faults), both);
        assert_eq!(stage(&faults), after_only, "used up");
        // Another instance counts for itself.
        assert_eq!(stage(&Faults::from_file(Some(path.clone()))), both);
        // Written anew, all entries count again.
        let same = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(stage(&faults), Fate::default());
        fs::write(dir.path().join("keeps the inode taken"), "").unwrap();
        fs::write(&path, same).unwrap();
        assert_eq!(stage(&faults), both);
    }

    #[test]
    fn a_mistyped_entry_is_an_error_that_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("faults.json");
        for text in [r#"[{"rpc":"NodeStage"}]"#, r#"[{"delay":5}]"#, r#"[{"code":"BUSY"}]"#, "{"] {
            fs::write(&path, text).unwrap();
            let error = Faults::from_file(Some(path.clone())).fate(Rpc::Probe, None).unwrap_err();
            let FaultError::Content { source, .. } = error else { panic!("{error}") };
            assert!(source.to_string().contains("line 1"), "{source}");
        }
    }
}
