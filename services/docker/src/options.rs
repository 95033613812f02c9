//! The options of `docker volume create -o KEY=VALUE`.
//!
//! **Promises** that all faults are reported at once, in words, and that nothing is done if there
//! is one. An unknown option is a fault: if it were ignored, the user would believe that it holds.
//!
//! With `class` or `plugin` the volume is created at its storage. Without them the name is given to
//! a registered volume, and `size` is compared with it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use berth_contract::message::storage::CopyFrom;
use berth_contract::text::fs_type_fault;
use berth_domain::access::{AccessMode, Bound, Mode};
use berth_domain::size::Size;
use berth_domain::volume::storage::Reclaim;
use berth_domain::{Namespace, SnapshotId, VolumeId};

use super::creation::StorageOptions;
use super::target::VolumeTarget;

/// Every option; `docs/docker.md` says what each of them means.
const OPTIONS: [&str; 14] = [
    "volume",
    "namespace",
    "mode",
    "access",
    "fs",
    "size",
    "class",
    "plugin",
    "limit",
    "reclaim",
    "from-volume",
    "from-snapshot",
    "param.KEY",
    "mutable.KEY",
];
/// Options that say how a volume is created, and need `class` or `plugin`.
const STORAGE_OPTIONS: [&str; 4] = ["limit", "reclaim", "from-volume", "from-snapshot"];
/// Prefixes of the options that are parameters of the plugin.
const PARAMETER: &str = "param.";
const MUTABLE_PARAMETER: &str = "mutable.";

/// What `docker volume create` requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameOptions {
    pub target: VolumeTarget,
    /// How the volume is created. `None` for a registered volume.
    pub storage: Option<StorageOptions>,
}

/// The volume and the access that these options of a name ask for, or all their faults.
pub fn parse(name: &str, options: &BTreeMap<String, String>) -> Result<NameOptions, String> {
    let mut reader = OptionReader { options: options.clone(), faults: Vec::new() };
    let target = reader.read_target(name);
    let storage = reader.read_storage();
    reader.check_storage(options, &storage);
    if let Some(target) = &target {
        reader.check_limit(target, &storage);
        reader.check_access(target, options);
    }
    reader.refuse_unknown();
    let creates = storage.class.is_some() || storage.plugin.is_some();
    match (target, reader.faults.as_slice()) {
        (Some(target), []) => Ok(NameOptions { target, storage: creates.then_some(storage) }),
        (_, faults) => {
            Err(format!("options are not valid; nothing was created: {}", faults.join("; ")))
        }
    }
}

/// The options that were not read yet, and the faults of those that were.
struct OptionReader {
    options: BTreeMap<String, String>,
    faults: Vec<String>,
}

impl OptionReader {
    fn read_target(&mut self, name: &str) -> Option<VolumeTarget> {
        let volume = self.options.remove("volume").unwrap_or_else(|| name.to_owned());
        let volume = self.check("volume", &volume, VolumeId::from_str(&volume));
        let namespace = match self.options.remove("namespace") {
            Some(namespace) => self.check("namespace", &namespace, Namespace::from_str(&namespace)),
            None => Some(Namespace::default()),
        };
        let mode = self.read("mode", parse_mode).unwrap_or(Mode::Write);
        let access = self.read("access", parse_access);
        let fs = self.read("fs", parse_file_system);
        let size = self.read("size", Size::from_str).map(Size::bytes);
        Some(VolumeTarget { namespace: namespace?, volume: volume?, mode, access, fs, size })
    }

    fn read_storage(&mut self) -> StorageOptions {
        let from_volume = self.read("from-volume", |volume| {
            VolumeId::from_str(volume).map(|volume| CopyFrom {
                volume,
                snapshot: None,
                with_secrets: false,
            })
        });
        let from_snapshot = self.read("from-snapshot", parse_snapshot);
        StorageOptions {
            class: self.read("class", FromStr::from_str),
            plugin: self.read("plugin", FromStr::from_str),
            limit: self.read("limit", Size::from_str),
            reclaim: self.read("reclaim", parse_reclaim),
            origin: from_volume.or(from_snapshot),
            parameters: self.read_parameters(PARAMETER),
            mutable_parameters: self.read_parameters(MUTABLE_PARAMETER),
        }
    }

    fn read<T, E: Display>(
        &mut self,
        option: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.options.remove(option)?;
        self.check(option, &value, parse(&value))
    }

    fn read_parameters(&mut self, prefix: &str) -> BTreeMap<String, String> {
        let options = std::mem::take(&mut self.options).into_iter();
        let (matching, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            options.partition(|(option, _)| option.starts_with(prefix));
        self.options = others;
        let mut parameters = BTreeMap::new();
        for (option, value) in matching {
            let key = &option[prefix.len()..];
            if key.is_empty() || key.contains(char::is_control) {
                // Parameters may hold secrets, so the value is not repeated.
                let option = option.escape_debug();
                self.faults.push(format!("{option}: name the parameter, as in {prefix}KEY=VALUE"));
            }
            parameters.insert(key.to_owned(), value);
        }
        parameters
    }

    /// Checks that the options about the storage go together.
    fn check_storage(&mut self, given: &BTreeMap<String, String>, storage: &StorageOptions) {
        let is_given = |option: &str| given.contains_key(option);
        let parameters = || {
            let parameters = storage.parameters.keys();
            parameters.map(|key| format!("{PARAMETER}{}", key.escape_debug()))
        };
        if is_given("class") && is_given("plugin") {
            self.faults.push("plugin: the class says which; leave one of them out".to_owned());
        }
        if is_given("from-volume") && is_given("from-snapshot") {
            let fault = "from-snapshot: a volume is a copy of one thing; leave from-volume out";
            self.faults.push(fault.to_owned());
        }
        if is_given("class") {
            let fault = "is what the class says; leave it out, or say plugin in place of class";
            self.faults.extend(parameters().map(|option| format!("{option}: {fault}")));
        } else if !is_given("plugin") {
            let storage_options = STORAGE_OPTIONS.into_iter().filter(|option| is_given(option));
            let mutable = storage.mutable_parameters.keys();
            let mutable = mutable.map(|key| format!("{MUTABLE_PARAMETER}{}", key.escape_debug()));
            let storage_options = storage_options.map(str::to_owned).chain(parameters());
            let fault = "says how a volume is created: say class or plugin, too";
            let faults = storage_options.chain(mutable).map(|option| format!("{option}: {fault}"));
            self.faults.extend(faults);
        }
    }

    fn check_limit(&mut self, target: &VolumeTarget, storage: &StorageOptions) {
        if let (Some(size), Some(limit)) = (target.size, storage.limit)
            && limit.bytes() < size
        {
            self.faults.push(format!("limit={limit}: is smaller than size"));
        }
    }

    /// Checks that a volume that is created will be usable. A registered one is checked later.
    fn check_access(&mut self, target: &VolumeTarget, given: &BTreeMap<String, String>) {
        let creates = given.contains_key("class") || given.contains_key("plugin");
        let writes = |access: AccessMode| access.sharing().writers != Bound::None;
        if let Some(access) = target.access.filter(|access| creates && !writes(*access))
            && target.mode == Mode::Write
        {
            self.faults.push(format!("access={access}: nobody writes there; say mode=ro"));
        }
    }

    fn refuse_unknown(&mut self) {
        for (unknown, value) in &self.options {
            let (option, value) = (unknown.escape_debug(), value.escape_debug());
            let why = why_refused(unknown);
            // The refusal is logged, and flags may hold secrets.
            let shown_option =
                if unknown == "o" { "o".to_owned() } else { format!("{option}={value}") };
            self.faults.push(format!("{shown_option}: {why}"));
        }
    }

    fn check<T, E: Display>(&mut self, option: &str, value: &str, read: Result<T, E>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(fault) => {
                self.faults.push(format!("{option}={}: {fault}", value.escape_debug()));
                None
            }
        }
    }
}

fn parse_mode(mode: &str) -> Result<Mode, &'static str> {
    match mode {
        "rw" => Ok(Mode::Write),
        "ro" => Ok(Mode::Read),
        _ => Err("must be rw or ro"),
    }
}

fn parse_access(access: &str) -> Result<AccessMode, String> {
    let quoted = serde_json::Value::String(access.to_owned());
    serde_json::from_value(quoted).map_err(|_| {
        let modes = AccessMode::ALL.map(|mode| mode.to_string()).join(", ");
        format!("must be one of {modes}")
    })
}

fn parse_file_system(name: &str) -> Result<String, String> {
    fs_type_fault(name).map_or_else(|| Ok(name.to_owned()), Err)
}

fn parse_reclaim(reclaim: &str) -> Result<Reclaim, &'static str> {
    match reclaim {
        "delete" => Ok(Reclaim::Delete),
        "retain" => Ok(Reclaim::Retain),
        _ => Err("must be delete or retain"),
    }
}

/// A snapshot is named with its volume: `VOLUME@SNAPSHOT`.
fn parse_snapshot(name: &str) -> Result<CopyFrom, String> {
    let parts = name.rsplit_once('@');
    let (volume, snapshot) = parts.ok_or("must be VOLUME@SNAPSHOT")?;
    let volume = VolumeId::from_str(volume).map_err(|fault| format!("the volume {fault}"))?;
    let snapshot =
        SnapshotId::from_str(snapshot).map_err(|fault| format!("the snapshot {fault}"))?;
    Ok(CopyFrom { volume, snapshot: Some(snapshot), with_secrets: false })
}

fn why_refused(option: &str) -> String {
    let why = match option {
        "fs_type" | "fstype" | "type" => "the file system is called `fs` here",
        "o" => {
            "mount flags may hold secrets, which Docker would keep and show; they are in the \
                class, or said when the volume is registered with Berth"
        }
        "device" => {
            "where its content is, its plugin knows; it is said when the volume is \
                     registered with Berth (`external_id`)"
        }
        _ => {
            let options = OPTIONS.join(", ");
            return format!("there is no such option; there are {options}");
        }
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_pairs(options: &[(&str, &str)]) -> Result<NameOptions, String> {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        parse("data", &options.collect())
    }

    fn parse_target(options: &[(&str, &str)]) -> VolumeTarget {
        let NameOptions { target, storage } = parse_pairs(options).unwrap();
        assert_eq!(storage, None, "{options:?}");
        target
    }

    #[test]
    fn a_name_alone_is_a_volume_of_the_default_namespace() {
        let target = parse_target(&[]);
        assert_eq!(target.key().to_string(), "default/data");
        assert_eq!(
            target,
            VolumeTarget::without_options(Namespace::default(), VolumeId::new("data").unwrap())
        );
    }

    #[test]
    fn every_option_of_a_registered_volume_is_read() {
        let target = parse_target(&[
            ("volume", "a b/c[2]"),
            ("namespace", "prod"),
            ("mode", "ro"),
            ("access", "multi-node-reader-only"),
            ("fs", "ext4"),
            ("size", "10G"),
        ]);
        assert_eq!((target.fs.as_deref(), target.size), (Some("ext4"), Some(10 << 30)));
        assert_eq!(target.key().to_string(), "prod/a b/c[2]");
        assert_eq!(
            (target.mode, target.access),
            (Mode::Read, Some(AccessMode::MultiNodeReaderOnly))
        );
        assert_eq!(parse_target(&[("mode", "rw")]).mode, Mode::Write);
    }

    #[test]
    fn every_option_of_a_volume_that_is_created_is_read() {
        let parsed = parse_pairs(&[
            ("class", "fast"),
            ("size", "10GiB"),
            ("limit", "20GB"),
            ("reclaim", "retain"),
            ("from-snapshot", "da@ta@monday"),
            ("mutable.iops", "100"),
            ("mutable.a.b", ""),
        ]);
        let NameOptions { target, storage } = parsed.unwrap();
        let storage = storage.unwrap();
        assert_eq!(target.size, Some(10 << 30));
        assert_eq!(storage.class.as_ref().unwrap().as_str(), "fast");
        assert_eq!(storage.limit.unwrap().bytes(), 20_000_000_000);
        assert_eq!(storage.reclaim, Some(Reclaim::Retain));
        let origin = storage.origin.unwrap();
        assert_eq!(origin.volume.as_str(), "da@ta");
        assert_eq!(origin.snapshot.unwrap().as_str(), "monday");
        let mutable: Vec<_> = storage.mutable_parameters.keys().map(String::as_str).collect();
        assert_eq!(mutable, ["a.b", "iops"]);

        let parsed = parse_pairs(&[("plugin", "nfs"), ("param.tier", "1"), ("from-volume", "old")]);
        let storage = parsed.unwrap().storage.unwrap();
        assert_eq!(storage.parameters["tier"], "1");
        assert_eq!(storage.origin.unwrap().snapshot, None);
        let parsed = parse_pairs(&[("class", "fast"), ("reclaim", "delete")]).unwrap();
        assert_eq!(parsed.storage.unwrap().reclaim, Some(Reclaim::Delete));
    }

    #[test]
    fn every_fault_comes_at_once() {
        let parsed = parse_pairs(&[
            ("volume", ""),
            ("namespace", "a\nb"),
            ("mode", "rx"),
            ("access", "all"),
            ("size", "10 apples"),
            ("fs", "ext4 -o x"),
            ("class", ""),
            ("plugin", "nfs"),
            ("limit", "0"),
            ("reclaim", "keep"),
            ("from-volume", "old"),
            ("from-snapshot", "old"),
            ("param.tier", "hunter2"),
            ("mutable.", "hunter2"),
            ("o", "password=hunter2"),
            ("fs_type", "xfs"),
            ("colour", "red"),
        ]);
        let parsed = parsed.unwrap_err();
        for fault in [
            "volume=: is empty",
            "namespace=a",
            "mode=rx: must be rw or ro",
            "access=all: must be one of single-node-reader-only",
            "size=10 apples: \"10 apples\" is no size",
            "fs=ext4 -o x: must be the name of a file system",
            "class=: is empty",
            "plugin: the class says which",
            "limit=0: is 0",
            "reclaim=keep: must be delete or retain",
            "from-snapshot=old: must be VOLUME@SNAPSHOT",
            "from-snapshot: a volume is a copy of one thing",
            "param.tier: is what the class says",
            "mutable.: name the parameter",
            "fs_type=xfs: the file system is called `fs` here",
            "o: mount flags may hold secrets",
            "colour=red: there is no such option; there are volume, namespace, mode, access, fs, \
             size, class, plugin, limit, reclaim, from-volume, from-snapshot, param.KEY, \
             mutable.KEY",
        ] {
            assert!(parsed.contains(fault), "{fault} is not in: {parsed}");
        }
        assert!(!parsed.contains("hunter2"), "{parsed}");
    }

    #[test]
    fn options_of_a_creation_need_a_class_or_a_plugin() {
        let parsed = parse_pairs(&[
            ("size", "10G"),
            ("limit", "20G"),
            ("reclaim", "retain"),
            ("from-volume", "old"),
            ("from-snapshot", "old@monday"),
            ("param.tier", "1"),
            ("mutable.iops", "100"),
        ]);
        let parsed = parsed.unwrap_err();
        for option in
            ["limit", "reclaim", "from-volume", "from-snapshot", "param.tier", "mutable.iops"]
        {
            let fault = format!("{option}: says how a volume is created: say class or plugin, too");
            assert!(parsed.contains(&fault), "{fault} is not in: {parsed}");
        }
        assert!(!parsed.contains("size:"), "a size may be asked of a registered volume: {parsed}");
    }

    #[test]
    fn a_volume_that_is_created_must_be_usable() {
        let read_only = ("access", "multi-node-reader-only");
        let parsed = parse_pairs(&[("class", "fast"), read_only]).unwrap_err();
        assert!(parsed.contains("nobody writes there; say mode=ro"), "{parsed}");
        parse_pairs(&[("class", "fast"), read_only, ("mode", "ro")]).unwrap();
        let parsed =
            parse_pairs(&[("class", "fast"), ("size", "2G"), ("limit", "1G")]).unwrap_err();
        assert!(parsed.contains("limit=1GiB: is smaller than size"), "{parsed}");
    }
}
