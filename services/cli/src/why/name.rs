//! The things that a name may mean.

use berth_domain::{AllocId, NodeId, PluginId, VolumeId};

use super::Names;

/// Everything that may have the name: things of each kind, or of the kind before the first slash.
pub fn names(text: &str) -> Names {
    let (kind, id) = match text.split_once('/') {
        Some((kind @ ("volume" | "alloc" | "node" | "plugin"), id)) => (Some(kind), id),
        _ => (None, text),
    };
    let is = |one: &str| kind.is_none_or(|kind| kind == one);
    Names {
        volume: VolumeId::new(id).ok().filter(|_| is("volume")),
        alloc: AllocId::new(id).ok().filter(|_| is("alloc")),
        node: NodeId::new(id).ok().filter(|_| is("node")),
        plugin: PluginId::new(id).ok().filter(|_| is("plugin")),
    }
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
    }
}
