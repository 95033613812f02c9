//! The options of `docker volume create -o KEY=VALUE`.
//!
//! **Promises** every fault at once, in words, and nothing done when there is one. An unknown
//! option is a fault: a user would believe that an ignored option holds.
//!
//! **Never** says how a volume is to be made: Docker makes none. `size` and `fs` are asked of the
//! registered volume.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use berth_contract::text::fs_type_fault;
use berth_domain::access::{AccessMode, Mode};
use berth_domain::{Namespace, VolumeId};

use super::record::VolumeTarget;

/// Every option; `docs/docker.md` says what each of them means.
const OPTIONS: [&str; 6] = ["volume", "namespace", "mode", "access", "fs", "size"];

/// The volume and the access that these options of a name ask for, or all their faults.
pub fn parse(name: &str, options: &BTreeMap<String, String>) -> Result<VolumeTarget, String> {
    let mut faults = Vec::new();
    let mut options = options.clone();
    let volume = options.remove("volume").unwrap_or_else(|| name.to_owned());
    let volume = check(&mut faults, "volume", &volume, VolumeId::from_str(&volume));
    let namespace = options.remove("namespace").map_or(Some(Namespace::default()), |namespace| {
        check(&mut faults, "namespace", &namespace, Namespace::from_str(&namespace))
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
        check(&mut faults, "access", &access, read.map_err(|_| format!("must be one of {modes}")))
    });
    let fs =
        options.remove("fs").and_then(|fs| check(&mut faults, "fs", &fs, parse_file_system(&fs)));
    let size = options.remove("size");
    let size = size.and_then(|size| check(&mut faults, "size", &size, parse_size(&size)));
    for (unknown, value) in &options {
        let (option, value) = (unknown.escape_debug(), value.escape_debug());
        let why = why_refused(unknown);
        // The refusal is logged, and flags may hold secrets.
        let said = if unknown == "o" { "o".to_owned() } else { format!("{option}={value}") };
        faults.push(format!("{said}: {why}"));
    }
    match (volume, namespace, faults.is_empty()) {
        (Some(volume), Some(namespace), true) => {
            Ok(VolumeTarget { namespace, volume, mode, access: access.flatten(), fs, size })
        }
        _ => Err(format!("options are not valid; nothing was created: {}", faults.join("; "))),
    }
}

fn check<T, E: Display>(
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

fn parse_file_system(name: &str) -> Result<String, String> {
    fs_type_fault(name).map_or_else(|| Ok(name.to_owned()), Err)
}

/// A size as in Docker's own options: bytes, or a number with a unit, each a power of 1024.
fn parse_size(text: &str) -> Result<u64, &'static str> {
    const UNITS: &str = "bkmgtp";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let power = match unit.as_str() {
        "" => Some(0),
        unit => UNITS.find(|known| {
            let rest = unit.strip_prefix(known);
            rest.is_some_and(|rest| {
                rest.is_empty() || (known != 'b' && ["b", "ib"].contains(&rest))
            })
        }),
    };
    let size = number.parse::<u64>().ok().zip(power).and_then(|(number, power)| {
        number.checked_mul(1024_u64.checked_pow(u32::try_from(power).ok()?)?)
    });
    size.filter(|size| *size > 0).ok_or("must be a number of bytes, or one such as 512M or 10G")
}

fn why_refused(option: &str) -> String {
    let why = match option {
        "class" => {
            "a class says how volumes are made, and Docker makes none here; they are \
                    registered with Berth"
        }
        "fs_type" | "fstype" | "type" => "the file system is called `fs` here",
        "o" => {
            "mount flags may hold secrets, which Docker would keep and show; they are said \
                when the volume is registered with Berth"
        }
        "device" => {
            "where its content is, its plugin knows; it is said when the volume is \
                     registered with Berth (`external_id`)"
        }
        _ => {
            let known = OPTIONS.join(", ");
            return format!("there is no such option; there are {known}");
        }
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_pairs(options: &[(&str, &str)]) -> Result<VolumeTarget, String> {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        parse("data", &options.collect())
    }

    #[test]
    fn a_name_alone_is_a_volume_of_the_default_namespace() {
        let target = parse_pairs(&[]).unwrap();
        assert_eq!(target.key().to_string(), "default/data");
        assert_eq!(
            target,
            VolumeTarget::without_options(Namespace::default(), VolumeId::new("data").unwrap())
        );
    }

    #[test]
    fn every_option_is_read() {
        let target = parse_pairs(&[
            ("volume", "a b/c[2]"),
            ("namespace", "prod"),
            ("mode", "ro"),
            ("access", "multi-node-reader-only"),
            ("fs", "ext4"),
            ("size", "10G"),
        ]);
        let target = target.unwrap();
        assert_eq!((target.fs.as_deref(), target.size), (Some("ext4"), Some(10 << 30)));
        assert_eq!(target.key().to_string(), "prod/a b/c[2]");
        assert_eq!(
            (target.mode, target.access),
            (Mode::Read, Some(AccessMode::MultiNodeReaderOnly))
        );
        assert_eq!(parse_pairs(&[("mode", "rw")]).unwrap().mode, Mode::Write);
    }

    #[test]
    fn every_fault_comes_at_once() {
        let said = parse_pairs(&[
            ("volume", ""),
            ("namespace", "a\nb"),
            ("mode", "rx"),
            ("access", "all"),
            ("size", "10 apples"),
            ("fs", "ext4 -o x"),
            ("class", "fast"),
            ("o", "password=hunter2"),
            ("fs_type", "xfs"),
            ("colour", "red"),
        ]);
        let said = said.unwrap_err();
        for fault in [
            "volume=: is empty",
            "namespace=a",
            "mode=rx: must be rw or ro",
            "access=all: must be one of single-node-reader-only",
            "size=10 apples: must be a number of bytes",
            "fs=ext4 -o x: must be the name of a file system",
            "class=fast: a class says how volumes are made",
            "fs_type=xfs: the file system is called `fs` here",
            "o: mount flags may hold secrets",
            "colour=red: there is no such option; there are volume, namespace, mode, access, fs, \
             size",
        ] {
            assert!(said.contains(fault), "{fault} is not in: {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn sizes_are_what_docker_takes_for_them() {
        for (text, expected) in [
            ("1", Some(1)),
            ("512b", Some(512)),
            ("1k", Some(1 << 10)),
            ("64MB", Some(64 << 20)),
            ("10GiB", Some(10 << 30)),
            ("2T", Some(2 << 40)),
            ("15P", Some(15 << 50)),
            ("0", None),
            ("", None),
            ("G", None),
            ("-1", None),
            ("1.5G", None),
            ("1bb", None),
            ("1ib", None),
            ("1G ", None),
            ("1E", None),
            ("20000000P", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_size(text).ok(), expected, "{text}");
        }
    }
}
