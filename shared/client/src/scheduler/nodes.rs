//! The nodes that can host volumes.

use berth_bus::Call;
use berth_contract::message::query::{LongPoll, Page};
use berth_contract::message::volume::{ListPlacements, NodePlacement, Obstacle, Placements};
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::NodeId;
use berth_domain::alloc::VolumeRequest;

use super::asker::{BRIEF, PAGES_MAX};
use super::{Refusal, Scheduler};

/// A node, and the obstacles to the volumes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// The smallest number of free places among the volumes' plugins; none without a limit.
    pub free: Option<u64>,
    /// The obstacles to the volumes.
    pub obstacles: Vec<Obstacle>,
}

/// All nodes, by whether they can host some volumes. Nothing is reserved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Nodes that can host them now.
    pub now: Vec<Candidate>,
    /// Nodes that can host them after a wait: a mount with `wait` gets in line there.
    pub later: Vec<Candidate>,
    /// Nodes that cannot host them before an operator changes something.
    pub never: Vec<Candidate>,
    /// The number of claims that are in line for the volumes already.
    pub waiting: usize,
}

impl Nodes {
    fn add(&mut self, page: Placements) {
        if self.now.is_empty() && self.later.is_empty() && self.never.is_empty() {
            self.waiting = page.volumes.iter().map(|volume| volume.waiting).sum();
        }
        for NodePlacement { node, fits, fits_later, slots, obstacles } in page.nodes {
            let free = slots.iter().filter_map(|slots| slots.free).min();
            let list = match (fits, fits_later) {
                (true, _) => &mut self.now,
                (false, true) => &mut self.later,
                (false, false) => &mut self.never,
            };
            list.push(Candidate { node, free, obstacles });
        }
    }
}

impl Scheduler {
    /// The nodes that can host these volumes. `index` is the alloc's, for volumes of which each
    /// alloc has its own.
    pub async fn nodes_for(
        &self,
        volumes: &[VolumeRequest],
        index: Option<u32>,
    ) -> Result<Nodes, Refusal> {
        let request = ListPlacements {
            volumes: volumes.to_vec(),
            index,
            node: None,
            page: Page::default(),
            newer: LongPoll::default(),
        };
        let asker = &self.0.asker;
        let mut nodes = Nodes::default();
        let call = Call::within(TraceContext::begin(&mut rand::rng()), BRIEF);
        let (to, take) = (&asker.namespace, |page| nodes.add(page));
        asker.client.pages::<verb::VolumePlacement>(to, request, &call, PAGES_MAX, take).await?;
        Ok(nodes)
    }
}
