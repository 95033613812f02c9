//! The things that a name may mean.

use berth_domain::{AllocId, NodeId, PluginId, SnapshotId, VolumeId};

use crate::facts::{Names, SnapshotName};

/// Everything that may have the name: things of each kind, or of the kind before the first slash.
pub fn names(text: &str) -> Names {
    let (kind, id) = match text.split_once('/') {
        Some((kind @ ("volume" | "alloc" | "node" | "plugin" | "snapshot"), id)) => {
            (Some(kind), id)
        }
        _ => (None, text),
    };
    let is = |one: &str| kind.is_none_or(|kind| kind == one);
    Names {
        volume: VolumeId::new(id).ok().filter(|_| is("volume")),
        alloc: AllocId::new(id).ok().filter(|_| is("alloc")),
        node: NodeId::new(id).ok().filter(|_| is("node")),
        plugin: PluginId::new(id).ok().filter(|_| is("plugin")),
        snapshot: snapshot(id).filter(|_| is("snapshot")),
    }
}

/// `VOLUME@SNAPSHOT`
fn snapshot(text: &str) -> Option<SnapshotName> {
    let (volume, id) = text.rsplit_once('@')?;
    Some(SnapshotName { volume: VolumeId::new(volume).ok()?, snapshot: SnapshotId::new(id).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_before_the_slash_rules_the_others_out() {
        let all = names("data");
        assert!(all.volume.is_some() && all.alloc.is_some());
        assert!(all.node.is_some() && all.plugin.is_some());
        let one = names("node/n1");
        assert_eq!(one, Names { node: NodeId::new("n1").ok(), ..Names::default() });
        // A slash may be part of an id.
        let path = names("team/data");
        assert_eq!(path.volume, VolumeId::new("team/data").ok());
        assert_eq!(names(""), Names::default());
        let snapshot = names("data@monday").snapshot.unwrap();
        assert_eq!((snapshot.volume.as_str(), snapshot.snapshot.as_str()), ("data", "monday"));
        let one = names("snapshot/data@monday");
        assert_eq!(one, Names { snapshot: Some(snapshot), ..Names::default() });
        assert_eq!(names("volume/data@monday").snapshot, None);
    }
}
