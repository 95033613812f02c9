//! Obstacles on a node that keep a volume from being unmounted until a person removes them: a
//! process, another mount, or a mount that the plugin left.

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

/// The obstacle that a failed unmount reports, if a person has to remove it.
pub fn find<'a>(node: &'a NodeId, failure: &'a CallFailure) -> Option<Obstacle<'a>> {
    let FailureFacts { code, grpc, next, .. } = &failure.facts;
    // The plugin is asked again, and the answer does not call for a person.
    let is_temporary = grpc.is_some_and(GrpcCode::is_temporary);
    let cause = match Code::from((*code)?) {
        Code::VolumeHeldByProcess => Cause::HeldByProcess,
        Code::ForeignMount => Cause::ForeignMount,
        // The agent advises what to look at. Otherwise the agent itself failed.
        Code::UnmountFailed if next.is_some() && !is_temporary => Cause::MountLeft,
        _ => return None,
    };
    Some(Obstacle { cause, node, failure })
}

impl Obstacle<'_> {
    /// The finding, with this sentence, the failure as evidence, and the remedies.
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
        let names: Vec<String> = processes
            .map(|process| format!("process {} ({})", process.pid, process.command))
            .collect();
        if names.is_empty() { "processes".to_owned() } else { names.join(", ") }
    }
}

/// The command that shows the processes on their node.
pub fn show_processes(node: &NodeId, processes: &[HoldingProcess]) -> Option<String> {
    let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
    (!pids.is_empty()).then(|| {
        format!(
            "ps -o pid,user,etime,args -p {}   # on node {node}: end what does not end by itself, \
             and the release goes on",
            pids.join(",")
        )
    })
}
