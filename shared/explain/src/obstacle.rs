//! What on a node keeps a volume from being unmounted, if a person has to end it there: a process,
//! another mount, or a mount that the plugin left.

use berth_contract::code::Code;
use berth_domain::volume::{CallFailure, FailureFacts, HoldingProcess};
use berth_domain::{GrpcCode, NodeId};

use crate::cause::{Actor, Cause};
use crate::finding::Finding;
use crate::next;

/// What keeps the volume mounted.
pub struct Obstacle<'a> {
    pub cause: Cause,
    node: &'a NodeId,
    failure: &'a CallFailure,
}

/// What this failure of an unmount says that a person has to end on the node.
pub fn find<'a>(node: &'a NodeId, failure: &'a CallFailure) -> Option<Obstacle<'a>> {
    let FailureFacts { code, grpc, next, .. } = &failure.facts;
    // The plugin is asked again, and nothing says that a person could do more.
    let is_temporary = grpc.is_some_and(GrpcCode::is_temporary);
    let cause = match Code::from((*code)?) {
        Code::VolumeHeldByProcess => Cause::HeldByProcess,
        Code::ForeignMount => Cause::ForeignMount,
        // The agent knows what to look at. Otherwise the agent itself failed.
        Code::UnmountFailed if next.is_some() && !is_temporary => Cause::MountLeft,
        _ => return None,
    };
    Some(Obstacle { cause, node, failure })
}

impl Obstacle<'_> {
    /// The finding, with its sentence, the failure and what to do about it.
    pub fn explain(&self, sentence: impl Into<String>) -> Finding {
        let FailureFacts { processes, next: advice, .. } = &self.failure.facts;
        let advice = advice.as_ref().map(|advice| next::advice(self.node, advice));
        Finding::new(self.cause, Actor::You, sentence)
            .shown_by([self.failure.to_string()])
            .next_if_known(show_processes(self.node, processes).or(advice))
            .next(next::node_status(self.node))
    }

    /// `process 7 (sh), process 8 (cat)`
    pub fn name_processes(&self) -> String {
        let processes = self.failure.facts.processes.iter();
        let named: Vec<String> =
            processes.map(|one| format!("process {} ({})", one.pid, one.command)).collect();
        if named.is_empty() { "processes".to_owned() } else { named.join(", ") }
    }
}

/// Shows the processes on their node.
pub fn show_processes(node: &NodeId, processes: &[HoldingProcess]) -> Option<String> {
    let pids: Vec<String> = processes.iter().map(|one| one.pid.to_string()).collect();
    (!pids.is_empty()).then(|| {
        format!(
            "ps -o pid,user,etime,args -p {}   # on node {node}: end what does not end by itself, \
             and the release goes on",
            pids.join(",")
        )
    })
}
