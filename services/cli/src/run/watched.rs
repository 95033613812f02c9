//! Announces a command to this node's agent, before anything is claimed for it.
//!
//! **Promises** that from then on the agent releases the volumes after this process is killed, but
//! not while a process of the command is left.

use berth_contract::message::agent::AgentQuery;
use berth_contract::verb;
use berth_domain::alloc::AllocState;
use berth_service::runs::{AnnounceError, Announced, Ended, Run, Runs};

use super::child::Mark;
use super::plan::Plan;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::{Patience, Session};

/// Our run as the agent watches it; none when the agent is too old to watch runs.
#[derive(Debug)]
pub struct Watched(Option<Announced>);

/// Announces the run.
pub async fn announce(
    session: &Session,
    plan: &Plan,
    patience: Patience,
) -> Result<Watched, Failure> {
    let (node, namespace) = (plan.node.clone(), session.namespace.clone());
    let to = verb::NodeAndNamespace { node, namespace };
    let reply = session.pursue::<verb::AgentStatus>(&to, &AgentQuery {}, patience);
    let status = reply.await?;
    let Some(dir) = status.runs else {
        print_note(format_args!(
            "  the agent of node {} is of an older version: if this process is killed, end alloc \
             {} by hand",
            plan.node, plan.alloc
        ));
        return Ok(Watched(None));
    };
    let (namespace, alloc) = (session.namespace.clone(), plan.alloc.clone());
    let (pid, mark) = (std::process::id(), String::new());
    let run = Run { namespace, alloc, pid, mark, ended: None, guard: None };
    let announced = Runs::in_dir(&dir).announce(run).map_err(|error| refused(plan, &error))?;
    Ok(Watched(Some(announced)))
}

fn refused(plan: &Plan, error: &AnnounceError) -> Failure {
    let Plan { node, alloc, .. } = plan;
    let next = match error {
        AnnounceError::Taken => "choose another --alloc, or leave it out".to_owned(),
        AnnounceError::Write { .. } => format!(
            "run it as root on the host of node {node}, in its mount namespace;\n\
             for a `berth dev` of an ordinary user join it first: its env file says how"
        ),
    };
    Failure::local(format!("alloc {alloc} cannot run on node {node}: {error}"), next)
}

impl Watched {
    /// The mark that the command inherits; none when the agent watches no runs.
    pub fn mark(&self) -> Result<Option<Mark>, Failure> {
        let Some((file, path)) = self.0.as_ref().and_then(Announced::held) else {
            return Ok(None);
        };
        let file = file.try_clone().map_err(|error| {
            Failure::local(error, "look at the limits of this shell: ulimit -a")
        })?;
        Ok(Some(Mark { file, path }))
    }

    /// Reports how the run ended, after the command and all its children have ended.
    pub fn ended(&mut self, state: AllocState, note: &str) {
        let Some(announced) = &mut self.0 else { return };
        if let Err(error) = announced.ended(Ended { state, note: note.to_owned() }) {
            // Without this report the run ends with us, and the agent reports an unknown end.
            print_note(format_args!("  the node's agent could not be told how it ended: {error}"));
            self.0 = None;
        }
    }

    /// Removes the announcement: the claim service knows the end, so the agent need not report it.
    pub fn forget_ended(self) {
        // If a file cannot be removed, the agent reports the end again and removes the file.
        let _ = self.0.map(Announced::forget_ended);
    }
}
