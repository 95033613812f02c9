//! What Docker's plugin writes into records, and by which the claim service knows what it made.
//!
//! **Owns** the title of a volume that a name of Docker has created, and the ids of its allocs.

use berth_domain::{AllocId, NodeId};

/// Begins the ids of the allocs that Docker's plugin registers.
const ALLOC_ID_PREFIX: &str = "docker/";
/// The longest part of an alloc's id that comes from the name, in characters. The random part alone
/// tells sessions apart, so a long name may be cut.
const NAME_CHARS_MAX: usize = 128;

/// The title of the volume that Docker's plugin creates for a name, as `berth volume list` shows
/// it. Each name on each node has a title of its own.
pub fn volume_title(name: &str, node: &NodeId) -> String {
    format!("Docker volume {name} of node {node}")
}

/// Whether this is a title that the plugin of this node gives.
pub fn is_volume_title(title: &str, node: &NodeId) -> bool {
    let rest = title.strip_prefix("Docker volume ");
    rest.is_some_and(|rest| rest.ends_with(&format!(" of node {node}")))
}

/// A new id for the alloc of a session. `None` when the name cannot be part of an id.
pub fn new_alloc_id(name: &str, random: u64) -> Option<AllocId> {
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    AllocId::new(format!("{ALLOC_ID_PREFIX}{name}/{random:016x}")).ok()
}

/// Whether Docker's plugin registered an alloc with this id.
pub fn is_alloc_id(id: &AllocId) -> bool {
    id.as_str().starts_with(ALLOC_ID_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_known_again() {
        let node = |id: &str| NodeId::new(id).unwrap();
        let title = volume_title("web_data", &node("n1"));
        assert_eq!(title, "Docker volume web_data of node n1");
        assert!(is_volume_title(&title, &node("n1")));
        for other in ["n", "1", "n11", "of node n1"] {
            assert!(!is_volume_title(&title, &node(other)), "{other}");
        }
        assert!(!is_volume_title("data of node n1", &node("n1")));
        assert!(is_alloc_id(&new_alloc_id("web_data", 7).unwrap()));
        assert!(!is_alloc_id(&AllocId::new("web/docker/1").unwrap()));
    }
}
