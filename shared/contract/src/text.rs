//! Text that people write and that ends in mounts, labels and terminals (A3).
//!
//! **Owns** what a name, a mount option and a topology may be made of, for every way in: volume
//! documents, requests for volumes, and Docker's options.
//!
//! **Never** judges what is stored: records of before are read as they are.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::limits::{ID_BYTES_MAX, META_BYTES_MAX, META_ENTRIES_MAX};
use berth_domain::size::Size;
use berth_domain::volume::MountOptions;

use crate::decode::Decoder;

/// The longest name of a file system, in bytes.
const FS_TYPE_BYTES_MAX: usize = 64;

/// Why the text is no name for people; they may be in any script.
pub fn name_fault(text: &str) -> Option<String> {
    let control = text.chars().find(|c| c.is_control())?;
    Some(format!("holds the control character {control:?}, which no terminal shows as it is"))
}

/// Why the text is no type of a file system. A plugin may make a path or an option of it.
pub fn fs_type_fault(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let sound = (1..=FS_TYPE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(plain)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric());
    let rule = "must be the name of a file system, such as ext4: letters, digits, `.`, `_` and `-`";
    (!sound).then(|| rule.to_owned())
}

/// Why the text is not one mount flag. Flags may hold secrets, so none is repeated here.
fn flag_fault(flag: &str) -> Option<String> {
    let split = |c: char| c == ',' || c.is_whitespace() || c.is_control();
    let rule = "must be one mount flag, such as noatime: not empty, and without commas, white \
                space and control characters; give each flag by itself";
    (flag.is_empty() || flag.contains(split)).then(|| rule.to_owned())
}

fn group_fault(group: &str) -> Option<String> {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    let rule = "must be a group, such as 1000: not empty, and without white space";
    (group.is_empty() || group.contains(odd)).then(|| rule.to_owned())
}

fn segment_fault(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".to_owned());
    }
    name_fault(text)
}

/// Notes a fault at the path, if there is one.
pub(crate) fn add_fault(decoder: &mut Decoder, path: &str, fault: Option<String>) {
    if let Some(fault) = fault {
        decoder.demand(false, path, fault);
    }
}

/// Notes all that is wrong with mount options at `mount`.
pub(crate) fn check_mount(decoder: &mut Decoder, mount: &MountOptions) {
    add_fault(decoder, "mount.fs_type", mount.fs_type.as_deref().and_then(fs_type_fault));
    for (at, flag) in mount.flags.iter().enumerate() {
        add_fault(decoder, &format!("mount.flags[{at}]"), flag_fault(flag));
    }
    add_fault(decoder, "mount.group", mount.group.as_deref().and_then(group_fault));
}

/// Notes all that is wrong with the labels at `path`.
pub(crate) fn check_meta(decoder: &mut Decoder, path: &str, meta: &BTreeMap<String, String>) {
    let bytes: usize = meta.iter().map(|(key, value)| key.len() + value.len()).sum();
    let problem = format!(
        "has {} entries of {bytes} bytes together; at most {META_ENTRIES_MAX} of \
         {META_BYTES_MAX} are taken",
        meta.len()
    );
    decoder.demand(meta.len() <= META_ENTRIES_MAX && bytes <= META_BYTES_MAX, path, problem);
    for (key, value) in meta {
        let empty = key.is_empty().then(|| "is a label without a name".to_owned());
        let fault = empty.or_else(|| name_fault(key)).or_else(|| name_fault(value));
        add_fault(decoder, &format!("{path}.{key}"), fault);
    }
}

/// Notes all that is wrong with the topologies at `topology`.
pub(crate) fn check_topologies(decoder: &mut Decoder, topologies: &[BTreeMap<String, String>]) {
    for (at, segments) in topologies.iter().enumerate() {
        check_topology(decoder, &format!("topology[{at}]"), segments);
    }
}

/// Notes all that is wrong with the topology at `path`.
pub(crate) fn check_topology(
    decoder: &mut Decoder,
    path: &str,
    segments: &BTreeMap<String, String>,
) {
    let none = "has no segment; leave `topology` out if the volume is to be had everywhere";
    decoder.demand(!segments.is_empty(), path, none);
    check_keys(decoder, path, segments);
    for (key, value) in segments {
        add_fault(decoder, &format!("{path}.{key}"), segment_fault(value));
    }
}

/// Notes all that is wrong with what the documents of a new volume and of a class have in common.
pub(crate) fn check_template<'a>(
    decoder: &mut Decoder,
    mount: Option<&MountOptions>,
    topologies: Option<&[BTreeMap<String, String>]>,
    parameters: impl IntoIterator<Item = (&'a str, Option<&'a BTreeMap<String, String>>)>,
) {
    if let Some(mount) = mount {
        check_mount(decoder, mount);
    }
    check_topologies(decoder, topologies.unwrap_or_default());
    for (path, map) in parameters {
        if let Some(map) = map {
            check_keys(decoder, path, map);
        }
    }
}

/// Notes a fault at `limit` if it is smaller than the size.
pub(crate) fn check_limit(decoder: &mut Decoder, size: Option<Size>, limit: Option<Size>) {
    if let (Some(size), Some(limit)) = (size, limit) {
        decoder.demand(size <= limit, "limit", format!("is {limit}, smaller than `size`, {size}"));
    }
}

/// Notes each entry of the list at `path` that is there before.
pub(crate) fn check_distinct<T: PartialEq + fmt::Display>(
    decoder: &mut Decoder,
    path: &str,
    list: &[T],
) {
    for (at, entry) in list.iter().enumerate() {
        let is_new = !list[..at].contains(entry);
        decoder.demand(is_new, &format!("{path}[{at}]"), format!("{entry} is listed twice"));
    }
}

/// Notes each key at `path` that is no key. Its meaning is the plugin's.
pub(crate) fn check_keys(decoder: &mut Decoder, path: &str, map: &BTreeMap<String, String>) {
    for key in map.keys() {
        let fault = segment_fault(key).map(|fault| format!("has the key {key:?}, which {fault}"));
        add_fault(decoder, path, fault);
    }
}

/// Why the text is not what a plugin calls a volume.
pub(crate) fn external_id_fault(id: &str) -> Option<String> {
    let sound = (1..=ID_BYTES_MAX).contains(&id.len()) && !id.chars().any(char::is_control);
    (!sound).then(|| format!("must have 1 to {ID_BYTES_MAX} bytes and no control character"))
}
