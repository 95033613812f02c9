//! Parameters of this driver.
//!
//! Owns: keys and values of `parameters`. Promises: an unknown key is reported. Never: acts on one.
//!
//! Kubernetes' own keys (`csi.storage.k8s.io/`) are ignored.

use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::backing::{Backing, FsType};

const OF_KUBERNETES: &str = "csi.storage.k8s.io/";
/// A minute: more than a test waits.
const LONGEST_MS: u64 = 60_000;

/// The `parameters` of `CreateVolume`.
#[derive(Debug, Default)]
pub(super) struct VolumeParameters {
    pub backing: Option<Backing>,
    pub fs: Option<FsType>,
    pub context: BTreeMap<String, String>,
}

impl VolumeParameters {
    /// Faults are added to `faults`.
    pub fn read(given: &BTreeMap<String, String>, faults: &mut Vec<String>) -> Self {
        let mut read = Self::default();
        for (key, value) in given {
            let known = match key.as_str() {
                "backing" => {
                    read.backing = Backing::from_str(value, false).ok();
                    read.backing.is_some()
                }
                "fs-type" => {
                    read.fs = FsType::from_name(value);
                    read.fs.is_some()
                }
                key => match key.strip_prefix("context/") {
                    Some(key) => {
                        read.context.insert(key.to_owned(), value.clone());
                        !key.is_empty()
                    }
                    None => key.starts_with(OF_KUBERNETES),
                },
            };
            if !known {
                faults.push(format!(
                    "parameters[{key:?}]: known are backing (directory, image), fs-type (ext4, \
                     xfs) and context/<key>"
                ));
            }
        }
        read
    }
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
        let given = [("backing", "image"), ("fs-type", "xfs"), ("context/pool", "fast")];
        let read = VolumeParameters::read(&map(&given), &mut faults);
        assert_eq!((read.backing, read.fs), (Some(Backing::Image), Some(FsType::Xfs)));
        assert_eq!(read.context, map(&[("pool", "fast")]));
        let kubernetes = map(&[("csi.storage.k8s.io/pvc/name", "x")]);
        VolumeParameters::read(&kubernetes, &mut faults);
        assert_eq!(faults, [""; 0]);

        let given = map(&[("backing", "tape"), ("fs-type", "fat"), ("context/", ""), ("x", "y")]);
        VolumeParameters::read(&given, &mut faults);
        assert_eq!(faults.len(), 4, "{faults:?}");
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
