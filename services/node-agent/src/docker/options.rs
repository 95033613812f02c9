//! The options of `docker volume create -o KEY=VALUE`.
//!
//! **Promises** every fault at once, in words, and nothing done when there is one. An option nobody
//! knows is a fault: one that was ignored would be believed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use berth_domain::access::{AccessMode, Mode};
use berth_domain::{Namespace, VolumeId};

use super::record::Target;

/// What an option is called, and what it says.
pub(super) const KNOWN: [(&str, &str); 4] = [
    ("volume", "the volume's id in Berth, where it is not the name"),
    ("namespace", "its namespace, where that is not `default`"),
    ("mode", "`rw` or `ro`: whether containers may write"),
    ("access", "one of the volume's access modes, where it has several"),
];

/// What a name stands for that comes with these options; or everything that is wrong.
pub(super) fn read(name: &str, options: &BTreeMap<String, String>) -> Result<Target, String> {
    let mut faults = Vec::new();
    let mut options = options.clone();
    let volume = options.remove("volume").unwrap_or_else(|| name.to_owned());
    let volume = noted(&mut faults, "volume", &volume, VolumeId::from_str(&volume));
    let namespace = options.remove("namespace").map_or(Some(Namespace::default()), |namespace| {
        noted(&mut faults, "namespace", &namespace, Namespace::from_str(&namespace))
    });
    let mode = match options.remove("mode").as_deref() {
        None | Some("rw") => Mode::Write,
        Some("ro") => Mode::Read,
        Some(other) => {
            faults.push(format!("mode={}: must be rw or ro", other.escape_debug()));
            Mode::Read
        }
    };
    let access = options.remove("access").map(|access| {
        let quoted = serde_json::Value::String(access.clone());
        let read = serde_json::from_value::<AccessMode>(quoted);
        let modes = AccessMode::ALL.map(|mode| mode.to_string()).join(", ");
        noted(&mut faults, "access", &access, read.map_err(|_| format!("must be one of {modes}")))
    });
    for (unknown, value) in &options {
        let (option, value) = (unknown.escape_debug(), value.escape_debug());
        faults.push(format!("{option}={value}: {}", unheard_of(unknown)));
    }
    match (volume, namespace, faults.is_empty()) {
        (Some(volume), Some(namespace), true) => {
            Ok(Target { namespace, volume, mode, access: access.flatten() })
        }
        _ => Err(format!("options are not valid; nothing was created: {}", faults.join("; "))),
    }
}

fn noted<T, E: Display>(
    faults: &mut Vec<String>,
    option: &str,
    value: &str,
    read: Result<T, E>,
) -> Option<T> {
    match read {
        Ok(read) => Some(read),
        Err(fault) => {
            faults.push(format!("{option}={}: {fault}", value.escape_debug()));
            None
        }
    }
}

/// Why there is no such option.
fn unheard_of(option: &str) -> String {
    match option {
        "size" | "class" | "fs" | "fs_type" | "fstype" | "type" | "device" | "o" => {
            "is the volume's own, and said when it is registered with Berth".to_owned()
        }
        _ => {
            let known = KNOWN.map(|(known, _)| known).join(", ");
            format!("there is no such option; there are {known}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(options: &[(&str, &str)]) -> Result<Target, String> {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        read("data", &options.collect())
    }

    #[test]
    fn a_name_alone_is_a_volume_of_the_default_namespace() {
        let target = given(&[]).unwrap();
        assert_eq!(target.key().to_string(), "default/data");
        assert_eq!((target.mode, target.access), (Mode::Write, None));
    }

    #[test]
    fn every_option_is_read() {
        let target = given(&[
            ("volume", "a b/c[2]"),
            ("namespace", "prod"),
            ("mode", "ro"),
            ("access", "multi-node-reader-only"),
        ]);
        let target = target.unwrap();
        assert_eq!(target.key().to_string(), "prod/a b/c[2]");
        assert_eq!(
            (target.mode, target.access),
            (Mode::Read, Some(AccessMode::MultiNodeReaderOnly))
        );
        assert_eq!(given(&[("mode", "rw")]).unwrap().mode, Mode::Write);
    }

    #[test]
    fn every_fault_comes_at_once() {
        let said = given(&[
            ("volume", ""),
            ("namespace", "a\nb"),
            ("mode", "rx"),
            ("access", "all"),
            ("size", "10G"),
            ("colour", "red"),
        ]);
        let said = said.unwrap_err();
        for fault in [
            "volume=: is empty",
            "namespace=a",
            "mode=rx: must be rw or ro",
            "access=all: must be one of single-node-reader-only",
            "size=10G: is the volume's own",
            "colour=red: there is no such option; there are volume, namespace, mode, access",
        ] {
            assert!(said.contains(fault), "{fault} is not in: {said}");
        }
    }
}
