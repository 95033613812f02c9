//! The part of all volumes that a list goes through.

use berth_domain::{Namespace, VolumeKey};

use super::subtree::Subtree;

/// The first volume that a list reads, which is not before `first`; none to begin with the first of
/// all. A list of one namespace reads no other.
pub(super) fn start(
    namespace: &Namespace,
    prefix: &str,
    first: Option<&VolumeKey>,
) -> Option<VolumeKey> {
    let start = VolumeKey::first_of(namespace.clone(), prefix);
    let start = (!namespace.is_wildcard()).then_some(start);
    start.max(first.cloned())
}

/// Those of the volumes, which come in order, that are of the namespace and have the prefix. Ends
/// with the last of them.
pub(super) fn cut<'a>(
    namespace: &'a Namespace,
    prefix: &'a str,
    volumes: impl Iterator<Item = (&'a VolumeKey, &'a Subtree)>,
) -> impl Iterator<Item = (&'a VolumeKey, &'a Subtree)> {
    let matches = move |key: &VolumeKey| {
        namespace.covers(&key.namespace) && key.volume.as_str().starts_with(prefix)
    };
    let range = volumes.take_while(move |(key, _)| namespace.is_wildcard() || matches(key));
    range.filter(move |(key, _)| matches(key))
}
