//! Allocs and nodes, read at the stream's leader.
//!
//! A mirror may lag behind the leader, in both directions: an alloc that ended may look live here,
//! and one that was just registered may look absent.
//!
//! **Promises** that a sender that acts for one node learns nothing of allocs of other nodes, not
//! even that they exist (G1): the answer is that of an unknown alloc, and takes as long.

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::alloc::Alloc;
use berth_domain::plugin::Node;
use berth_domain::{AllocId, Namespace, NodeId};
use berth_service::clock;
use berth_service::record_table::StoreError;

use crate::store::state::StateInner;

/// The refusal of a request about an alloc that is not registered.
pub fn no_such_alloc(id: &AllocId) -> Problem {
    Problem::new(Code::NoSuchAlloc, format!("no alloc {id}"))
}

/// Whether a sender may know of the alloc. `own` is the node that it acts for, if it acts for one.
pub fn is_known_to(alloc: &Alloc, own: Option<&NodeId>) -> bool {
    own.is_none_or(|node| alloc.node == *node)
}

impl StateInner {
    /// The alloc and its revision.
    pub async fn read_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
    ) -> Result<(u64, Option<Alloc>), Problem> {
        let read = self.allocs.read(&key::alloc(namespace, id)).await;
        read.map_err(Problem::from)
    }

    /// The alloc. Its absence is confirmed at a quorum, for a caller that acts on the absence
    /// without a write of its own.
    pub async fn read_alloc_surely(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        trace: TraceContext,
    ) -> Result<Option<Alloc>, Problem> {
        let read = self.allocs.read_surely(&key::alloc(namespace, id), trace).await;
        read.map_err(Problem::from)
    }

    /// Logs that the sender asked for an alloc of another node, and takes as long as confirming an
    /// absence: it confirms the absence of an alloc that nobody registers.
    pub async fn conceal_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        own: Option<&NodeId>,
        trace: TraceContext,
    ) -> Result<(), StoreError> {
        let (own, trace_id) = (own.map(NodeId::as_str), trace.trace_id());
        tracing::warn!(
            %namespace, alloc = %id, sender = own, trace = trace_id,
            "refused: not allowed; answered as an unknown alloc"
        );
        let Ok(unused) = AllocId::new(format!("none/{:08x}", clock::jitter())) else {
            return Ok(());
        };
        let key = key::alloc(namespace, &unused);
        self.allocs.read_surely::<Alloc>(&key, trace).await.map(drop)
    }

    /// Whether the alloc has not ended, and so wants its claims. It is read at the leader, because
    /// a worker asks after it has seen a change: by a lagging mirror, the worker might be sent away
    /// although the alloc has ended, or an alloc that was just registered might lose its claims.
    pub async fn is_surely_wanted(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        trace: TraceContext,
    ) -> Result<bool, Problem> {
        let alloc = self.read_alloc_surely(namespace, id, trace).await?;
        Ok(alloc.is_some_and(|alloc| !alloc.state.is_terminal()))
    }

    /// The node's record.
    pub async fn read_node(&self, id: &NodeId) -> Result<Option<Node>, Problem> {
        let read = self.nodes.read(&key::node(id)).await;
        let (_, node) = read.map_err(|error| Problem::from(error).node(id))?;
        Ok(node)
    }
}
