//! `node.report`: what an agent says of its node, worked in.

use std::collections::BTreeSet;

use berth_contract::message::registry::{Report, Reported};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{Half, Instance, Node, NodeState};
use berth_domain::{NodeId, Timestamp};
use berth_service::deadline;
use tokio::time::Instant;

use crate::decide::{Arrived, InstanceKey, Verdict, Write, decide, faults};
use crate::events;
use crate::leases::Leases;
use crate::state::State;
use crate::store::{LostRaces, RecordSnapshot, StoreError};

const STEP: &str = verb::NodeReport::STEP;

/// Works a report in that came `at` this time.
///
/// What it changes is decided twice by the same rules: by the mirrors, which ends most reports, and
/// over what the leader has, under whose guards it is written. The mirrors must show what an
/// earlier report changed at another replica: that nothing is to be done is guarded by nothing
/// else. A crash between two writes leaves the rest to the next report.
pub async fn report(
    state: &State,
    report: Report,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Reported, Problem> {
    let faults = faults(&report);
    if !faults.is_empty() {
        return Err(Problem::bad_input(STEP, faults).node(&report.node));
    }
    let arrived = Arrived { report, at };
    let mut races = LostRaces::default();
    let worked_in = loop {
        let attempt = work_in(state, &arrived, trace, deadline).await;
        if let Some(outcome) = races.outcome(STEP, attempt) {
            break outcome;
        }
    };
    worked_in.map_err(|problem| problem.node(&arrived.report.node))
}

async fn work_in(
    state: &State,
    arrived: &Arrived,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Reported, StoreError> {
    state.catch_up(STEP, deadline).await?;
    let node = &arrived.report.node;
    let standing = state.standing(node);
    match decide(&standing, arrived) {
        Verdict::Late => return Ok(late(state, arrived, standing.node.as_ref())),
        Verdict::Write(writes) if writes.is_empty() => {
            return Ok(reported(state, arrived, standing.node.as_ref()));
        }
        Verdict::Write(_) => {}
    }
    deadline::check(deadline)?;
    let told = arrived.report.instances.iter().map(|told| (told.plugin.clone(), told.half));
    let places: BTreeSet<InstanceKey> = told.chain(standing.instances.into_keys()).collect();
    let seen = state.look(node, places).await?;
    let Verdict::Write(writes) = decide(&seen.standing, arrived) else {
        return Ok(late(state, arrived, seen.standing.node.as_ref()));
    };
    let mut stands = seen.standing.node.clone();
    for write in &writes {
        state.store(node, &seen, write, trace).await?;
        let event = match write {
            Write::Put(place, instance) => shared_id(state, &seen, place, instance, node)
                .map(|why| events::shared_id(node, place, why, arrived.at, trace)),
            Write::Node(_) | Write::Delete(_) => None,
        };
        let event =
            event.or_else(|| events::of_write(node, &seen.standing, write, arrived.at, trace));
        if let Some(event) = event {
            events::tell(&state.events, &event, trace);
        }
        if let Write::Node(next) = write {
            stands = Some(next.clone());
        }
    }
    Ok(reported(state, arrived, stands.as_ref()))
}

/// Why the instance is not healthy although it says so, when this write is what makes it so: its
/// plugin calls the node by the id of another.
fn shared_id(
    state: &State,
    seen: &RecordSnapshot,
    (plugin, half): &InstanceKey,
    next: &Instance,
    node: &NodeId,
) -> Option<String> {
    let known = seen.standing.instances.get(&(plugin.clone(), *half));
    let told = |known: &Instance| {
        known.healthy == next.healthy && known.external_node() == next.external_node()
    };
    if *half != Half::Node || known.is_some_and(told) {
        return None;
    }
    let why = state
        .plugin_mirror
        .read(|plugins| plugins.get(plugin)?.shared_id(node).map(|shared| shared.to_string()))?;
    tracing::warn!(%node, %plugin, why, "the instance counts as unhealthy");
    Some(why)
}

/// What the agent is told of its node as it stands.
fn reported(state: &State, arrived: &Arrived, stands: Option<&Node>) -> Reported {
    Reported {
        clock_skew_ms: arrived.skew_ms(stands.map_or(0, |node| node.clock_skew_ms)),
        clock: Some(arrived.at),
        state: stands.map_or(NodeState::Down, |node| node.state),
        gone: stands.and_then(|node| node.gone.clone()),
        pace_s: state.pace.of(state.lease_mirror.read(Leases::many)),
    }
}

fn late(state: &State, arrived: &Arrived, stands: Option<&Node>) -> Reported {
    let Report { node, clock, .. } = &arrived.report;
    tracing::debug!(%node, sent = %clock, "a report came after a newer one, and changes nothing");
    reported(state, arrived, stands)
}
