//! Sends the node's agent a mount request for every volume of an alloc.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::Mount;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::{VolumeId, limits};
use berth_host::MountTable;

use super::plan::{CommandVolume, Mounted, Plan};
use super::queue_position::print_queue_position;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::{Patience, Session};

/// How long claims and mounts are retried by default: attaching in a cloud takes minutes.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Has every volume of the plan claimed and mounted, in order.
pub async fn mount_all(
    session: &Session,
    plan: &Plan,
    waits: bool,
    patience: Patience,
) -> Result<Vec<Mounted>, Failure> {
    // Short tries: a restarted agent has lost our request, and a running agent joins the retry to
    // it.
    let patience = patience.each(limits::REQUEST_TIMEOUT);
    let mut mounted = Vec::new();
    for CommandVolume { source, volume } in plan.volumes() {
        let body = Mount {
            namespace: session.namespace.clone(),
            alloc: plan.alloc.clone(),
            volume: volume.clone(),
            wait: waits,
            alias: None,
            path: None,
        };
        let is_retried = |problem: &Problem| may_pass(problem, waits);
        let (node, namespace) = (plan.node.clone(), session.namespace.clone());
        let to = verb::NodeAndNamespace { node, namespace };
        let asked = session.pursue_while::<verb::AgentMount>(&to, &body, patience, is_retried);
        let reply = tokio::select! {
            reply = asked => reply?,
            never = print_queue_position(session, plan, volume), if waits => match never {},
        };
        let path = PathBuf::from(reply.path);
        check_visible(plan, volume, &path)?;
        let mode = if reply.read_only { "to read" } else { "to read and write" };
        print_note(format_args!("  mounted {volume} {mode}, for {} on {}", plan.alloc, plan.node));
        mounted.push(Mounted { source: source.clone(), path });
    }
    Ok(mounted)
}

/// Whether the problem may end without an action of the operator.
fn may_pass(problem: &Problem, waits: bool) -> bool {
    match problem.code {
        // Without `--wait` the run fails immediately, and names the holders, or a better place.
        Code::Held | Code::AccessInUse | Code::Waiting | Code::NoRoomHere => waits,
        _ => problem.retryable,
    }
}

/// The agent's path must be a mount *here*. On another host, or in another mount namespace, it is
/// an empty directory at best, and the command would write outside the volume.
fn check_visible(plan: &Plan, source: &VolumeId, path: &Path) -> Result<(), Failure> {
    let why = match MountTable::read_blocking() {
        // The mount table contains no symbolic links, so the real path is looked up.
        Ok(mounts) if fs::canonicalize(path).is_ok_and(|path| mounts.has(&path)) => return Ok(()),
        Ok(_) => String::new(),
        Err(error) => format!(" ({error})"),
    };
    let node = &plan.node;
    let path = path.display();
    Err(Failure::local(
        format!("volume {source} is mounted at {path} on node {node}, but not seen from here{why}"),
        format!(
            "run it on the host of node {node}, in its mount namespace;\n\
             for a `berth dev` of an ordinary user join it first: its env file says how"
        ),
    ))
}
