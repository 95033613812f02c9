//! A new volume, put together from the command line.
//!
//! **Promises** that every fault of the command line is found before anything is sent, and that
//! each names its option.

use std::collections::BTreeMap;

use berth_contract::decode::{Fault, Unknown, decode};
use berth_contract::message::storage::Create;
use berth_domain::size::Size;
use berth_domain::volume::MountOptions;
use serde_json::{Map, Value, json};

use crate::args::{NewVolumeArgs, SnapshotArg, UseArgs};
use crate::failure::Failure;
use crate::size;

/// Stands for the plugin of the source until it is known.
const SOURCE_PLUGIN: &str = "plugin-of-the-source";
/// Stands for a source whose name was wrong.
const SOURCE: &str = "source";
/// The options of the document's fields.
const OPTIONS: [(&str, &str); 16] = [
    ("id", "ID"),
    ("class", "--class"),
    ("plugin", "--plugin"),
    ("size", "--size"),
    ("limit", "--limit"),
    ("name", "--name"),
    ("capability", "--access"),
    ("mount.fs_type", "--fs-type"),
    ("mount.flags", "--mount-flag"),
    ("mount.group", "--mount-group"),
    ("parameters", "--param"),
    ("mutable_parameters", "--mutable"),
    ("topology", "--topology"),
    ("for_alloc", "--for-alloc"),
    ("node", "--node"),
    ("from.with_secrets", "--with-secrets"),
];

/// The faults of a command line so far, each with its option.
#[derive(Debug, Clone, Default)]
pub struct ArgFaults(Vec<Fault>);

impl ArgFaults {
    /// Adds a fault.
    pub fn add(&mut self, option: &str, problem: impl Into<String>) {
        let (path, problem) = (option.to_owned(), problem.into());
        self.0.push(Fault { path, problem, line: None });
    }

    /// Reads a size; none after adding a fault.
    pub fn size(&mut self, option: &str, text: &str) -> Option<u64> {
        size::parse(text).map(Size::bytes).map_err(|fault| self.add(option, fault)).ok()
    }

    /// Reads pairs, each key once.
    pub fn pairs(&mut self, option: &str, given: &[String]) -> BTreeMap<String, String> {
        let mut pairs = BTreeMap::new();
        for text in given {
            match text.split_once('=') {
                Some((key, value)) if !key.is_empty() => {
                    if pairs.insert(key.to_owned(), value.to_owned()).is_some() {
                        self.add(option, format!("{key} is given twice"));
                    }
                }
                _ => self.add(option, format!("{text:?} must be KEY=VALUE")),
            }
        }
        pairs
    }

    /// Reads one place: segments that are separated by commas.
    pub fn place(&mut self, option: &str, text: &str) -> BTreeMap<String, String> {
        let segments: Vec<String> = text.split(',').map(str::to_owned).collect();
        self.pairs(option, &segments)
    }

    /// Fails if there are any; `help` is the command, without `berth`.
    pub fn check(&self, help: &str) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(Failure::command_line(&self.0, help)) }
    }
}

/// The document of a new volume, as far as the command line says it.
#[derive(Debug, Clone)]
pub struct Draft {
    fields: Map<String, Value>,
    faults: ArgFaults,
    help: &'static str,
}

impl Draft {
    /// The document that the options say. `help` is the command, without `berth`.
    pub fn new(id: &str, new: &NewVolumeArgs, help: &'static str) -> Self {
        let mut faults = ArgFaults::default();
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| {
            let is_empty = match &value {
                Value::Null => true,
                Value::Array(all) => all.is_empty(),
                Value::Object(all) => all.is_empty(),
                _ => false,
            };
            if !is_empty {
                fields.insert(name.to_owned(), value);
            }
        };
        set("id", json!(id));
        set("class", json!(new.class));
        set("plugin", json!(new.plugin));
        set("name", json!(new.name));
        for (name, option, text) in
            [("size", "--size", &new.size), ("limit", "--limit", &new.limit)]
        {
            let bytes = text.as_ref().and_then(|text| faults.size(option, text));
            set(name, json!(bytes));
        }
        if new.class.is_none() || new.uses.access.is_some() || new.uses.attachment.is_some() {
            set("capability", json!([capability(&new.uses)]));
        }
        set("mount", mount(&new.uses));
        set("parameters", json!(faults.pairs("--param", &new.param)));
        set("mutable_parameters", json!(faults.pairs("--mutable", &new.mutable)));
        let places = new.topology.iter().map(|text| faults.place("--topology", text));
        // A place without a segment has a fault already.
        let places: Vec<_> = places.filter(|place| !place.is_empty()).collect();
        set("topology", json!(places));
        set("topology_policy", json!(new.topology_policy));
        set("reclaim", json!(new.reclaim));
        set("node", json!(new.node));
        Self { fields, faults, help }
    }

    /// The new volume is a copy of this volume.
    pub fn copy_volume(&mut self, volume: &str) {
        self.fields.insert("from".to_owned(), json!({ "volume": volume }));
    }

    /// The new volume is a copy of this snapshot: `VOLUME@SNAPSHOT`.
    pub fn copy_snapshot(&mut self, option: &str, text: &str) {
        match text.parse::<SnapshotArg>() {
            Ok(SnapshotArg { volume, snapshot }) => {
                let from = json!({ "volume": volume, "snapshot": snapshot });
                self.fields.insert("from".to_owned(), from);
            }
            Err(fault) => {
                self.faults.add(option, format!("{text:?}: {fault}"));
                // The volume is still a copy, so that a missing class or plugin is no second fault.
                self.copy_volume(SOURCE);
            }
        }
    }

    /// The copy gets the secrets of its source.
    pub fn with_secrets(&mut self) {
        if let Some(Value::Object(from)) = self.fields.get_mut("from") {
            from.insert("with_secrets".to_owned(), json!(true));
        }
    }

    /// The new volume is for the run of this alloc.
    pub fn for_alloc(&mut self, alloc: &str) {
        self.fields.insert("for_alloc".to_owned(), json!(alloc));
    }

    /// Whether neither a class nor a plugin is named, so that the source says it.
    pub fn is_by_source(&self) -> bool {
        let has = |name: &str| self.fields.contains_key(name);
        has("from") && !has("class") && !has("plugin")
    }

    /// The same with what the source is made of. Options go over it.
    #[must_use]
    pub fn like_source(&self, source: Map<String, Value>, has_own_use: bool) -> Self {
        let mut fields = self.fields.clone();
        if !has_own_use {
            fields.remove("capability");
        }
        for (name, value) in source {
            fields.entry(name).or_insert(value);
        }
        Self { fields, ..self.clone() }
    }

    /// The request, if nothing is wrong. What only the source determines is not checked.
    pub fn check(&self) -> Result<Create, Failure> {
        let mut fields = self.fields.clone();
        if self.is_by_source() {
            fields.insert("plugin".to_owned(), json!(SOURCE_PLUGIN));
        }
        match decode::<Create>(Value::Object(fields), Unknown::Fault) {
            Ok(request) => self.faults.check(self.help).map(|()| request),
            Err(faults) => {
                let mut all_faults = self.faults.clone();
                all_faults.0.extend(faults.into_iter().map(of_option));
                Err(Failure::command_line(&all_faults.0, self.help))
            }
        }
    }
}

/// The one capability that the options say.
pub fn capability(uses: &UseArgs) -> Value {
    use berth_domain::access::{AccessMode, AttachmentMode};
    let access = uses.access.unwrap_or(AccessMode::SingleNodeWriter);
    let attachment = uses.attachment.unwrap_or(AttachmentMode::FileSystem);
    json!({ "access": access, "attachment": attachment })
}

/// The mount options that the options say; null for none.
pub fn mount(uses: &UseArgs) -> Value {
    let UseArgs { fs_type, mount_flag, mount_group, .. } = uses;
    let (fs_type, flags, group) = (fs_type.clone(), mount_flag.clone(), mount_group.clone());
    let options = MountOptions { fs_type, flags, group };
    if options.is_empty() { Value::Null } else { json!(options) }
}

/// A fault of a field, with the field's option in place of its path.
pub fn of_option(fault: Fault) -> Fault {
    let option = OPTIONS.iter().find(|(field, _)| {
        let below = fault.path.strip_prefix(field);
        below.is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
    });
    let path = match (option, fault.path.as_str()) {
        (Some((_, option)), _) => (*option).to_owned(),
        (None, path) if path.starts_with("from") => "the source".to_owned(),
        (None, path) => path.to_owned(),
    };
    Fault { path, ..fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "volume create";

    fn refusal(id: &str, new: &NewVolumeArgs) -> String {
        let failure = Draft::new(id, new, HELP).check().unwrap_err();
        assert_eq!(failure.exit(), crate::exit::USAGE);
        failure.to_string()
    }

    #[test]
    fn an_id_a_class_and_a_size_are_a_complete_document() {
        let new = NewVolumeArgs {
            class: Some("fast".to_owned()),
            size: Some("10GiB".to_owned()),
            ..NewVolumeArgs::default()
        };
        let request = Draft::new("data", &new, HELP).check().unwrap();
        let expected = json!({"id": "data", "class": "fast", "size": 10_u64 << 30});
        assert_eq!(serde_json::to_value(&request).unwrap(), expected);
    }

    #[test]
    fn every_option_has_its_field() {
        let text = |text: &str| Some(text.to_owned());
        let new = NewVolumeArgs {
            class: None,
            plugin: text("p"),
            size: text("1GiB"),
            limit: text("2GiB"),
            uses: UseArgs {
                fs_type: text("ext4"),
                mount_flag: vec!["noatime".to_owned()],
                mount_group: text("1000"),
                ..UseArgs::default()
            },
            param: vec!["type=gp3".to_owned(), "url=a=b".to_owned()],
            mutable: vec!["iops=3000".to_owned()],
            topology: vec!["zone=a,rack=1".to_owned(), "zone=b".to_owned()],
            topology_policy: Some(berth_domain::class::TopologyPolicy::FirstUse),
            reclaim: Some(berth_domain::volume::storage::Reclaim::Retain),
            name: text("Orders"),
            node: text("n1"),
        };
        let mut draft = Draft::new("data", &new, HELP);
        draft.copy_snapshot("--from-snapshot", "orders@monday");
        draft.with_secrets();
        draft.for_alloc("run-1");
        let expected = json!({
            "id": "data", "name": "Orders", "plugin": "p", "size": 1_u64 << 30,
            "limit": 2_u64 << 30,
            "capability": [{"access": "single-node-writer", "attachment": "file-system"}],
            "mount": {"fs_type": "ext4", "flags": ["noatime"], "group": "1000"},
            "parameters": {"type": "gp3", "url": "a=b"}, "mutable_parameters": {"iops": "3000"},
            "topology": [{"zone": "a", "rack": "1"}, {"zone": "b"}],
            "topology_policy": "first-use", "reclaim": "retain",
            "from": {"volume": "orders", "snapshot": "monday", "with_secrets": true},
            "for_alloc": "run-1", "node": "n1",
        });
        assert_eq!(serde_json::to_value(draft.check().unwrap()).unwrap(), expected);
    }

    #[test]
    fn all_faults_are_told_at_once_by_their_options() {
        let new = NewVolumeArgs {
            size: Some("0".to_owned()),
            limit: Some("10".to_owned()),
            param: vec!["x".to_owned()],
            mutable: vec!["a=1".to_owned(), "a=2".to_owned()],
            topology: vec!["zone".to_owned()],
            uses: UseArgs { fs_type: Some("/etc".to_owned()), ..UseArgs::default() },
            ..NewVolumeArgs::default()
        };
        let refusal = refusal("", &new);
        for part in [
            "8 faults in the command line; nothing was sent",
            "--size is 0; a volume has at least 1 byte",
            "--limit 10 has no unit; write 10GiB or 10MiB",
            "--param \"x\" must be KEY=VALUE",
            "--mutable a is given twice",
            "--topology \"zone\" must be KEY=VALUE",
            "ID is empty",
            "--fs-type must be the name of a file system",
            "--class is missing, and so is `plugin`",
            "see `berth volume create --help`",
        ] {
            assert!(refusal.contains(part), "{part} is not in {refusal}");
        }
    }

    #[test]
    fn a_limit_below_the_size_is_a_fault() {
        let new = NewVolumeArgs {
            class: Some("fast".to_owned()),
            size: Some("2GiB".to_owned()),
            limit: Some("1GiB".to_owned()),
            ..NewVolumeArgs::default()
        };
        let refusal = refusal("data", &new);
        assert!(
            refusal.starts_with("error: --limit is 1GiB, smaller than `size`, 2GiB; nothing"),
            "{refusal}"
        );
    }

    #[test]
    fn a_copy_is_like_its_source_where_no_option_says_otherwise() {
        let mut draft = Draft::new("copy", &NewVolumeArgs::default(), HELP);
        draft.copy_volume("data");
        assert!(draft.is_by_source() && draft.check().is_ok());
        let source = json!({"class": "fast"}).as_object().unwrap().clone();
        let request = draft.like_source(source, false).check().unwrap();
        let expected = json!({"id": "copy", "class": "fast", "from": {"volume": "data"}});
        assert_eq!(serde_json::to_value(&request).unwrap(), expected);
        draft.copy_snapshot("--from-snapshot", "data");
        let refusal = draft.check().unwrap_err().to_string();
        assert!(refusal.contains("--from-snapshot \"data\": must be VOLUME@SNAPSHOT"), "{refusal}");
    }
}
