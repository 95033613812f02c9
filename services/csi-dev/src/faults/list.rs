//! Faults that stand.
//!
//! Owns: the file's faults and the socket's, how often each was used, and chance. Promises: counts
//! start again with each writing; chance depends on seed and count alone. Never: keeps a fault that
//! was taken away.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use berth_csi::Rpc;
use serde::Serialize;

use super::{Fault, FaultError, When, parse};

/// A fault that stands.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Listed {
    /// How many calls it hit.
    pub used: u32,
    /// How many calls it fitted, hit or not.
    pub fitted: u64,
    /// The fault.
    #[serde(flatten)]
    pub fault: Fault,
}

/// All that stand: the file's come first.
#[derive(Default, Debug)]
pub(super) struct Lists {
    writing: Option<Writing>,
    file: Vec<Listed>,
    socket: Vec<Listed>,
}

/// Tells one writing of the file from another: inode, size, and time of change.
type Writing = (u64, u64, i64, i64);

impl Lists {
    pub fn set(&mut self, faults: Vec<Fault>) {
        self.socket = fresh(faults);
    }

    pub fn contains(&self, fault: &Fault) -> bool {
        self.file.iter().chain(&self.socket).any(|listed| listed.fault == *fault)
    }

    pub fn show(&self) -> Vec<Listed> {
        self.file.iter().chain(&self.socket).cloned().collect()
    }

    /// The fault that hits this call on this side of its work.
    pub fn take(&mut self, when: When, rpc: Rpc, volume: Option<&str>) -> Option<Fault> {
        let mut all = self.file.iter_mut().chain(&mut self.socket);
        all.find_map(|listed| listed.take(when, rpc, volume))
    }

    /// Reads the file anew where it was written anew.
    pub fn look(&mut self, path: &Path) -> Result<(), FaultError> {
        let failed = |source| FaultError::Io { path: path.to_owned(), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.writing, self.file) = (None, Vec::new());
                return Ok(());
            }
            Err(source) => return Err(failed(source)),
        };
        let writing = writing(&file.metadata().map_err(failed)?);
        if self.writing == Some(writing) {
            return Ok(());
        }
        let text = io::read_to_string(file).map_err(failed)?;
        let wrong = |faults| FaultError::Content { path: path.to_owned(), faults };
        self.file = fresh(parse(&text).map_err(wrong)?);
        self.writing = Some(writing);
        Ok(())
    }
}

impl Listed {
    fn take(&mut self, when: When, rpc: Rpc, volume: Option<&str>) -> Option<Fault> {
        let fault = &self.fault;
        let left = fault.times.is_none_or(|times| self.used < times);
        if !left || !fault.fits(when, rpc, volume) {
            return None;
        }
        let count = self.fitted;
        self.fitted += 1;
        if fault.probability.is_some_and(|share| chance(fault.seed, count) >= share) {
            return None;
        }
        self.used += 1;
        Some(fault.clone())
    }
}

fn fresh(faults: Vec<Fault>) -> Vec<Listed> {
    faults.into_iter().map(|fault| Listed { used: 0, fitted: 0, fault }).collect()
}

fn writing(meta: &fs::Metadata) -> Writing {
    (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec())
}

/// A number from 0 to just below 1, by `SplitMix64`: the same for the same seed and count.
fn chance(seed: u64, count: u64) -> f64 {
    let mut bits = seed.wrapping_add((count + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    // 32 bits are chance enough, and a float holds them exactly.
    f64::from((bits >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_even_and_can_be_repeated() {
        let draw = |seed| (0..10_000).map(|count| chance(seed, count)).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let below = draw(7).iter().filter(|share| **share < 0.25).count();
        assert!((2_300..2_700).contains(&below), "{below} of 10000 below 0.25");
        assert!(draw(7).iter().all(|share| (0.0..1.0).contains(share)));
    }
}
