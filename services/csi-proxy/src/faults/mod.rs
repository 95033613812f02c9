//! Faults planted by a test.
//!
//! Owns: the fault file, and how often each fault was used. Promises: the file is checked at every
//! call, so a test can change it while the driver runs. A file that cannot be parsed fails every
//! call, so that a typing error is noticed. The same faults and calls give the same result. Never:
//! delays or fails a call itself; `sabotage` does.
//!
//! The file is a JSON array; a missing file means no faults. Replace the file atomically
//! ([`write()`]).
//!
//! ```json
//! [{"rpc": "NodeStageVolume", "volume": "v1", "when": "after",
//!   "delay_ms": 500, "code": "UNAVAILABLE", "times": 2, "probability": 0.5, "seed": 7}]
//! ```
//!
//! Each instance has its own counts, and resets them when the file is replaced.
//!
//! ```text
//! fault    one fault: which calls it hits, and what it does to them
//! replace  answers of which fields are replaced
//! wrong    answers that are wrong in small ways
//! ```

mod fault;
mod replace;
mod wrong;

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use berth_csi::Rpc;
use thiserror::Error;

pub use fault::{CallFaults, Fault, FaultMark, FaultSide, WrongAnswer};
pub use replace::AnswerFields;
pub(crate) use wrong::{chatter, distort};

/// The faults of one instance.
#[derive(Debug)]
pub struct Faults {
    file: Option<PathBuf>,
    loaded: Mutex<LoadedFile>,
}

/// Why faults could not be used.
#[derive(Debug, Error)]
pub enum FaultError {
    #[error("cannot read or write the fault file {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the faults in {} cannot be understood: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
}

/// The fault file as it was read last.
#[derive(Default, Debug)]
struct LoadedFile {
    version: Option<FileVersion>,
    faults: Vec<CountedFault>,
}

/// Differs after each replacement of the file: inode, size, and modification time in s and ns.
type FileVersion = (u64, u64, i64, i64);

#[derive(Debug)]
struct CountedFault {
    fault: Fault,
    /// Calls that it matched, hit or not.
    matched: u64,
    /// Calls that it hit.
    hits: u32,
}

impl Faults {
    /// Faults from `file`, which may be missing.
    pub fn from_file(file: Option<PathBuf>) -> Self {
        Self { file, loaded: Mutex::default() }
    }

    /// Takes the faults for the next call of `rpc`; to be called once per call. `about` has every
    /// id and name by which a fault may select the call.
    pub fn take(&self, rpc: Rpc, about: &[&str]) -> Result<CallFaults, FaultError> {
        let mut loaded = self.reload()?;
        let mut take =
            |side| loaded.faults.iter_mut().find_map(|counted| counted.take(side, rpc, about));
        Ok(CallFaults { before: take(FaultSide::Before), after: take(FaultSide::After) })
    }

    /// Whether this fault is still in the file. An unreadable file has none.
    pub fn contains(&self, fault: &Fault) -> bool {
        self.reload()
            .is_ok_and(|loaded| loaded.faults.iter().any(|counted| counted.fault == *fault))
    }

    /// Reads the file again if it was replaced.
    fn reload(&self) -> Result<MutexGuard<'_, LoadedFile>, FaultError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &self.file else { return Ok(loaded) };
        let failed = |source| FaultError::Io { path: path.clone(), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *loaded = LoadedFile::default();
                return Ok(loaded);
            }
            Err(source) => return Err(failed(source)),
        };
        let version = Some(file_version(&file.metadata().map_err(failed)?));
        if loaded.version != version {
            let text = io::read_to_string(file).map_err(failed)?;
            let wrong = |problem| FaultError::Content { path: path.clone(), problem };
            let faults = parse(&text).map_err(wrong)?;
            let counted = |fault| CountedFault { fault, matched: 0, hits: 0 };
            *loaded = LoadedFile { version, faults: faults.into_iter().map(counted).collect() };
        }
        Ok(loaded)
    }
}

impl CountedFault {
    fn take(&mut self, side: FaultSide, rpc: Rpc, about: &[&str]) -> Option<Fault> {
        let fault = &self.fault;
        if fault.times.is_some_and(|times| self.hits >= times) || !fault.hits(side, rpc, about) {
            return None;
        }
        let count = self.matched;
        self.matched += 1;
        if fault.probability.is_some_and(|share| draw(fault.seed, count) >= share) {
            return None;
        }
        self.hits += 1;
        Some(fault.clone())
    }
}

fn file_version(file: &Metadata) -> FileVersion {
    (file.ino(), file.size(), file.mtime(), file.mtime_nsec())
}

fn parse(text: &str) -> Result<Vec<Fault>, String> {
    let faults: Vec<Fault> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for (index, fault) in faults.iter().enumerate() {
        if let Some(problem) = fault.contradiction() {
            return Err(format!("entry {}: {problem}", index + 1));
        }
    }
    Ok(faults)
}

/// A number from 0 to just below 1, by `SplitMix64`: equal for equal seed and count.
fn draw(seed: u64, count: u64) -> f64 {
    let mut bits = seed.wrapping_add((count + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    // A float holds 32 bits exactly.
    f64::from((bits >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
}

/// Replaces the fault file atomically.
pub fn write(path: &Path, faults: &[Fault]) -> Result<(), FaultError> {
    let failed = |source| FaultError::Io { path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(faults).map_err(|error| failed(error.into()))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use berth_csi::Code;

    use super::*;

    fn take_for_stage(faults: &Faults) -> CallFaults {
        faults.take(Rpc::NodeStageVolume, &["v"]).unwrap()
    }

    #[test]
    fn the_first_fault_that_matches_and_is_not_used_up_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("faults.json");
        let faults = Faults::from_file(Some(path.clone()));
        assert_eq!(take_for_stage(&faults), CallFaults::default(), "no file, no faults");

        let once = Fault {
            rpc: Some(Rpc::NodeStageVolume),
            code: Some(Code::Aborted),
            times: Some(1),
            ..Fault::default()
        };
        let other_volume = Fault { volume: Some("w".into()), ..once.clone() };
        let always = Fault { when: FaultSide::After, delay_ms: 5, ..Fault::default() };
        write(&path, &[other_volume, once.clone(), always.clone()]).unwrap();
        let once_and_always =
            CallFaults { before: Some(once.clone()), after: Some(always.clone()) };
        let after_only = CallFaults { before: None, after: Some(always) };
        assert_eq!(faults.take(Rpc::Probe, &[]).unwrap(), after_only);
        assert_eq!(take_for_stage(&faults), once_and_always);
        assert_eq!(take_for_stage(&faults), after_only, "used up");
        // Another instance has its own counts.
        assert_eq!(take_for_stage(&Faults::from_file(Some(path.clone()))), once_and_always);
        // A replaced file resets all counts.
        let same = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!faults.contains(&once));
        fs::write(dir.path().join("keeps the inode taken"), "").unwrap();
        fs::write(&path, same).unwrap();
        assert!(faults.contains(&once));
        assert_eq!(take_for_stage(&faults), once_and_always);
    }

    #[test]
    fn a_wrong_file_fails_every_call_until_it_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("faults.json");
        let faults = Faults::from_file(Some(path.clone()));
        for (text, problem) in [
            (r#"[{"delay": 5}]"#, "unknown field `delay`"),
            (r#"[{"rpc": "NodeStage"}]"#, "unknown variant `NodeStage`"),
            (r#"[{}, {"crash": true, "hang": true}]"#, "entry 2: code, hang, crash"),
            (r#"[{"code": "OK"}]"#, "entry 1: code OK is no fault"),
            (r#"[{"probability": 2}]"#, "entry 1: probability is a number from 0 to 1"),
            ("{}", "expected a sequence"),
        ] {
            fs::write(&path, text).unwrap();
            for _ in 0..2 {
                let error = faults.take(Rpc::Probe, &[]).unwrap_err().to_string();
                assert!(error.contains(problem), "{problem} in {error}");
            }
        }
        write(&path, &[]).unwrap();
        assert_eq!(faults.take(Rpc::Probe, &[]).unwrap(), CallFaults::default());
    }

    #[test]
    fn a_share_of_the_calls_is_hit_and_only_hits_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("faults.json");
        let fault = Fault {
            code: Some(Code::Aborted),
            probability: Some(0.5),
            seed: 3,
            times: Some(10),
            ..Fault::default()
        };
        write(&path, &[fault]).unwrap();
        let hits = || -> Vec<_> {
            let faults = Faults::from_file(Some(path.clone()));
            (0..40).map(|_| take_for_stage(&faults).before.is_some()).collect()
        };
        assert_eq!(hits(), hits(), "the same again");
        assert_eq!(hits().iter().filter(|hit| **hit).count(), 10);
        let below = (0..10_000).filter(|count| draw(7, *count) < 0.25).count();
        assert!((2_300..2_700).contains(&below), "{below} of 10000 below 0.25");
    }
}
