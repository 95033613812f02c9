//! Commands of `berth` in hints for people.
//!
//! **Promises** that a command runs as printed: it names the ids it is about, and the namespace
//! where it is not the default one.

use std::borrow::Cow;

use berth_domain::{Namespace, NodeId, VolumeKey};

/// The words of [`Code::next`](crate::code::Code::next) that a problem replaces by its own ids.
pub const PLACEHOLDERS: [&str; 3] = ["VOLUME", "PLUGIN", "NODE"];

/// The option that names a namespace; nothing for the default one.
pub fn namespace_option(namespace: &Namespace) -> String {
    if *namespace == Namespace::default() {
        return String::new();
    }
    format!(" --namespace {}", quoted(namespace.as_str()))
}

/// An id as a shell takes it: in quotes where it has more than plain letters.
pub fn quoted(id: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@%+=".contains(letter);
    if !id.is_empty() && id.chars().all(is_plain) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("'{}'", id.replace('\'', "'\\''")))
}

/// A volume as an argument, with its namespace.
pub fn volume_argument(volume: &VolumeKey) -> String {
    format!("{}{}", quoted(volume.volume.as_str()), namespace_option(&volume.namespace))
}

/// A volume as `--volume` of `placement` and of `run` takes it, with its namespace. A colon would
/// end the id there.
pub fn volume_source(volume: &VolumeKey) -> String {
    let escaped = volume.volume.as_str().replace('\\', r"\\").replace(':', r"\:");
    format!("{}{}", quoted(&escaped), namespace_option(&volume.namespace))
}

/// How to unmount a volume that no claim covers.
pub fn unmount(volume: &VolumeKey, node: &NodeId) -> String {
    let (volume, quoted_node) = (volume_argument(volume), quoted(node.as_str()));
    format!("end its workload on node {node}, then `berth node unmount {quoted_node} {volume}`")
}

/// Fills in one placeholder where it is a word in backticks.
pub(crate) fn fill(text: &str, placeholder: &str, value: &str) -> String {
    let fill_part = |(at, part): (usize, &str)| {
        let is_outside_backticks = at % 2 == 0;
        if is_outside_backticks {
            return part.to_owned();
        }
        let words = part.split(' ').map(|word| if word == placeholder { value } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    text.split('`').enumerate().map(fill_part).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use berth_domain::VolumeId;

    use super::*;

    #[test]
    fn an_id_with_more_than_plain_letters_is_quoted() {
        let key = |namespace: &str, volume: &str| {
            let namespace = Namespace::new(namespace).unwrap();
            volume_argument(&VolumeKey::new(namespace, VolumeId::new(volume).unwrap()))
        };
        assert_eq!(key("default", "data"), "data");
        assert_eq!(key("default", "shard[1]"), "'shard[1]'");
        assert_eq!(key("team a", "data"), "data --namespace 'team a'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        let id = VolumeId::new(r"a:b\c").unwrap();
        let source = volume_source(&VolumeKey::new(Namespace::default(), id));
        assert_eq!(source, r"'a\:b\\c'");
    }

    #[test]
    fn only_words_of_commands_are_filled_in() {
        let filled = fill("NODE: see `berth node status NODE` and NODE", "NODE", "n1");
        assert_eq!(filled, "NODE: see `berth node status n1` and NODE");
    }
}
