//! Allocs and nodes as the stream's leader has them.
//!
//! A mirror may be behind the leader, in both directions: an alloc that ended may look live here,
//! and one that was just registered may look absent.

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::alloc::Alloc;
use berth_domain::plugin::Node;
use berth_domain::{AllocId, Namespace, NodeId};

use crate::state::StateInner;

/// The refusal of a request about an alloc that is not registered.
pub fn no_such_alloc(id: &AllocId) -> Problem {
    Problem::new(Code::NoSuchAlloc, format!("no alloc {id}"))
}

impl StateInner {
    /// The alloc and its revision.
    pub async fn read_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        step: &str,
    ) -> Result<(u64, Option<Alloc>), Problem> {
        let read = self.allocs.read(&key::alloc(namespace, id)).await;
        read.map_err(|error| error.into_problem(step))
    }

    /// The alloc. Its absence is confirmed at a quorum, for a caller that acts on the absence
    /// without a write of its own.
    pub async fn read_alloc_surely(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        step: &str,
        trace: TraceContext,
    ) -> Result<Option<Alloc>, Problem> {
        let read = self.allocs.read_surely(&key::alloc(namespace, id), trace).await;
        read.map_err(|error| error.into_problem(step))
    }

    /// Whether the alloc has not ended, and so wants its claims. A worker asks because it has seen
    /// a change. By the mirror, the worker might be sent away although the alloc has ended, or an
    /// alloc that was just registered might lose its claims.
    pub async fn is_surely_wanted(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        trace: TraceContext,
    ) -> Result<bool, Problem> {
        let alloc = self.read_alloc_surely(namespace, id, "claim.checkpoint", trace).await?;
        Ok(alloc.is_some_and(|alloc| !alloc.state.is_terminal()))
    }

    /// The node's record.
    pub async fn read_node(&self, id: &NodeId, step: &str) -> Result<Option<Node>, Problem> {
        let read = self.nodes.read(&key::node(id)).await;
        let (_, node) = read.map_err(|error| error.into_problem(step).node(id))?;
        Ok(node)
    }
}
