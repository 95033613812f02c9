//! Claims counted by the plugin's id of their node (`NodeGetInfo.node_id`). The storage knows nodes
//! by these ids: an attachment belongs to such an id, and not to a node's name (rules 8, 9).

use super::change::Change;
use crate::NodeId;
use crate::volume::record::claim::Claim;

/// Claims that hold the volume, counted by the plugin's id of the node and by node.
///
/// A sorted list: most volumes have one entry, and a tree would need three times the memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ExternalNodes(Vec<ExternalUse>);

/// The claims of one node under one id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExternalUse {
    external: Box<str>,
    pub node: NodeId,
    /// Claims that hold the volume, or may.
    pub held: u32,
    /// Those of them that need an attachment by the controller.
    pub attached: u32,
    /// Claims whose node may use the attachment.
    pub in_use: u32,
    /// Claims that are sure to unpublish at the controller later (rule 9).
    pub will_unpublish: u32,
}

impl ExternalNodes {
    /// Adds or removes a claim. A waiting claim and one without an id do not count.
    pub fn count_claim(&mut self, claim: &Claim, change: Change) {
        let Some(external) = claim.external_node.as_deref().filter(|_| claim.is_held()) else {
            return;
        };
        let key = (external, &claim.node);
        let at = match self.0.binary_search_by(|one| (&*one.external, &one.node).cmp(&key)) {
            Ok(at) => at,
            Err(at) => {
                let (external, node) = (external.into(), claim.node.clone());
                let new = ExternalUse {
                    external,
                    node,
                    held: 0,
                    attached: 0,
                    in_use: 0,
                    will_unpublish: 0,
                };
                // Most volumes are never held under a second id.
                self.0.reserve_exact(usize::from(self.0.is_empty()));
                self.0.insert(at, new);
                at
            }
        };
        let Some(one) = self.0.get_mut(at) else { return };
        change.count_if(true, &mut one.held);
        change.count_if(claim.controller, &mut one.attached);
        change.count_if(claim.is_in_use(), &mut one.in_use);
        change.count_if(claim.will_unpublish(), &mut one.will_unpublish);
        if one.held == 0 {
            self.0.remove(at);
        }
    }

    /// The claims under an id, by node.
    pub fn under(&self, external: &str) -> &[ExternalUse] {
        let from = self.0.partition_point(|one| &*one.external < external);
        let rest = self.0.get(from..).unwrap_or_default();
        let many = rest.partition_point(|one| &*one.external == external);
        rest.get(..many).unwrap_or_default()
    }
}
