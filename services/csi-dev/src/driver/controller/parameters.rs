//! Parameters of this driver.
//!
//! Owns: keys and values of `parameters` and `mutable_parameters`. Promises: an unknown key and a
//! bad value are reported. Never: acts on one.
//!
//! Kubernetes' own keys (`csi.storage.k8s.io/`) are ignored.

use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::backing::{Backing, FsType};

const OF_KUBERNETES: &str = "csi.storage.k8s.io/";
/// Longest delay, in milliseconds: more than a test waits.
const LONGEST_MS: u64 = 60_000;

/// The highest `iops`.
const HIGHEST_IOPS: u32 = 1_000_000;
const TIERS: [&str; 3] = ["bronze", "silver", "gold"];

/// The `parameters` of `CreateVolume`.
#[derive(Debug, Default)]
pub(super) struct VolumeParameters {
    pub backing: Option<Backing>,
    pub fs: Option<FsType>,
    pub context: BTreeMap<String, String>,
    /// The mutable ones among them.
    pub mutable: BTreeMap<String, String>,
}

impl VolumeParameters {
    /// Faults are added to `faults`.
    pub fn read(given: &BTreeMap<String, String>, faults: &mut Vec<String>) -> Self {
        let mut read = Self::default();
        for (key, value) in given {
            let is_known = match key.as_str() {
                "backing" => {
                    read.backing = Backing::from_str(value, false).ok();
                    read.backing.is_some()
                }
                "fs-type" => {
                    read.fs = FsType::from_name(value);
                    read.fs.is_some()
                }
                key if is_mutable(key, value) => {
                    read.mutable.insert(key.to_owned(), value.clone());
                    true
                }
                key => match key.strip_prefix("context/") {
                    Some(key) => {
                        read.context.insert(key.to_owned(), value.clone());
                        !key.is_empty()
                    }
                    None => key.starts_with(OF_KUBERNETES),
                },
            };
            if !is_known {
                faults.push(format!(
                    "parameters[{key:?}]: known are backing (directory, image), fs-type (ext4, \
                     xfs), context/<key>, {}",
                    known_mutable()
                ));
            }
        }
        read
    }
}

/// The faults of these `mutable_parameters`, one line each.
pub(super) fn mutable_faults(given: &BTreeMap<String, String>) -> Vec<String> {
    let wrong = given.iter().filter(|(key, value)| !is_mutable(key, value));
    let fault =
        |key: &String| format!("mutable_parameters[{key:?}]: known are {}", known_mutable());
    wrong.map(|(key, _)| fault(key)).collect()
}

/// Whether `ControllerModifyVolume` accepts this parameter.
fn is_mutable(key: &str, value: &str) -> bool {
    match key {
        "iops" => value.parse().is_ok_and(|iops: u32| (1..=HIGHEST_IOPS).contains(&iops)),
        "tier" => TIERS.contains(&value),
        _ => false,
    }
}

fn known_mutable() -> String {
    format!("iops (1 to {HIGHEST_IOPS}) and tier ({})", TIERS.join(", "))
}

/// The only parameter of `CreateSnapshot`: how long it takes to become ready, in milliseconds.
pub(crate) fn ready_after_ms(given: &BTreeMap<String, String>, faults: &mut Vec<String>) -> u64 {
    let mut ready_after_ms = 0;
    for (key, value) in given.iter().filter(|(key, _)| !key.starts_with(OF_KUBERNETES)) {
        match value.parse() {
            Ok(after) if key == "ready-after-ms" && after <= LONGEST_MS => ready_after_ms = after,
            _ => faults
                .push(format!("parameters[{key:?}]: known is ready-after-ms (0 to {LONGEST_MS})")),
        }
    }
    ready_after_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_not_known_is_named() {
        let mut faults = Vec::new();
        let accepted = [("backing", "image"), ("fs-type", "xfs"), ("context/pool", "fast")];
        let read = VolumeParameters::read(&map(&accepted), &mut faults);
        assert_eq!((read.backing, read.fs), (Some(Backing::Image), Some(FsType::Xfs)));
        assert_eq!(read.context, map(&[("pool", "fast")]));
        let kubernetes = map(&[("csi.storage.k8s.io/pvc/name", "x")]);
        VolumeParameters::read(&kubernetes, &mut faults);
        assert_eq!(faults, [""; 0]);

        let refused = map(&[("backing", "tape"), ("fs-type", "fat"), ("context/", ""), ("x", "y")]);
        VolumeParameters::read(&refused, &mut faults);
        assert_eq!(faults.len(), 4, "{faults:?}");
    }

    #[test]
    fn what_can_be_modified_is_known_in_both_maps() {
        let good = map(&[("iops", "1000000"), ("tier", "gold")]);
        let mut faults = Vec::new();
        assert_eq!(VolumeParameters::read(&good, &mut faults).mutable, good);
        assert_eq!((faults.len(), mutable_faults(&good).len()), (0, 0));
        let bad = [("iops", "0"), ("iops", "1000001"), ("tier", "tin"), ("backing", "image")];
        for (key, value) in bad {
            let faults = mutable_faults(&map(&[(key, value)]));
            assert!(faults.len() == 1 && faults[0].contains(key), "{key}={value}: {faults:?}");
        }
    }

    #[test]
    fn a_snapshot_takes_a_minute_at_most() {
        let mut faults = Vec::new();
        assert_eq!(ready_after_ms(&map(&[("ready-after-ms", "70")]), &mut faults), 70);
        assert_eq!(faults, [""; 0]);
        ready_after_ms(&map(&[("ready-after-ms", "70000"), ("x", "1")]), &mut faults);
        assert_eq!(faults.len(), 2, "{faults:?}");
    }
}
