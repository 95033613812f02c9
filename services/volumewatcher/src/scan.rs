//! The volumes that one scan looks at; pure.
//!
//! **Promises** that a scan costs the same however many volumes there are: it looks at all
//! unfinished work, and at a bounded part of the claims that rest. The next scan looks at the next
//! part.

use std::collections::BTreeMap;

use berth_domain::VolumeKey;
use berth_service::projection::{Subtree, Volumes};

/// Claims of used volumes that one scan looks at. Such a claim is due once its alloc has ended, and
/// the end of the alloc wakes it; a scan only repairs that. Nothing wakes a volume whose alloc is
/// never registered: a scan finds it, in a large fleet only when its part has its turn.
const CLAIMS_MAX: usize = 20_000;

/// The volumes of one scan.
pub struct Slice<'a> {
    volumes: BTreeMap<&'a VolumeKey, &'a Subtree>,
    /// Where the next scan begins; none after the last volume.
    pub next: Option<VolumeKey>,
}

impl<'a> Slice<'a> {
    /// All volumes with unfinished work, and those that allocs use, from this one on.
    pub fn read(volumes: &'a Volumes, first: Option<&VolumeKey>) -> Self {
        Self::bounded(volumes, first, CLAIMS_MAX)
    }

    fn bounded(volumes: &'a Volumes, first: Option<&VolumeKey>, claims_max: usize) -> Self {
        let index = volumes.index();
        let unfinished = index.unfinished().filter_map(|key| volumes.get_key_value(key));
        let mut found: BTreeMap<_, _> = unfinished.collect();
        let (mut claims, mut next) = (0, None);
        for key in index.used_from(first) {
            if claims >= claims_max {
                next = Some(key.clone());
                break;
            }
            if let Some((key, subtree)) = volumes.get_key_value(key) {
                claims += subtree.volume.claims.len().max(1);
                found.insert(key, subtree);
            }
        }
        Self { volumes: found, next }
    }

    pub fn volumes(&self) -> impl Iterator<Item = (&'a VolumeKey, &'a Subtree)> {
        self.volumes.iter().map(|(key, subtree)| (*key, *subtree))
    }
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn scans_look_at_all_unfinished_work_and_in_turn_at_all_that_rests() {
        let mut volumes = Volumes::default();
        let claim = |state: &str| {
            json!({"state": state, "node": "n1", "mode": "write", "controller": true,
                "since": "2026-01-01T00:00:00Z", "access": "multi-node-multi-writer",
                "attachment": "file-system", "schema": 1})
        };
        let spec = json!({"plugin": "p", "capabilities": [], "schema": 1});
        for (key, record) in [
            ("default.a.claim.x", claim("taken")),
            ("default.a.claim.y", claim("taken")),
            ("default.b.claim.x", claim("taken")),
            ("default.c.claim.x", claim("taken")),
            ("default.leaving.claim.x", claim("unpublishing")),
            ("default.unused.spec", spec),
        ] {
            volumes.put(key, 1, record.to_string().as_bytes());
        }
        let mut first = None;
        let mut scans = Vec::new();
        loop {
            let slice = Slice::bounded(&volumes, first.as_ref(), 2);
            let names = slice.volumes().map(|(key, _)| key.volume.to_string());
            scans.push(names.collect::<Vec<_>>().join(" "));
            match slice.next {
                Some(next) => first = Some(next),
                None => break,
            }
        }
        assert_eq!(scans, ["a leaving", "b c leaving", "leaving"]);
        let whole = Slice::read(&volumes, None);
        assert_eq!((whole.volumes().count(), whole.next), (4, None));
    }
}
