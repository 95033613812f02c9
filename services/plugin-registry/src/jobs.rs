//! `plugin.expect`: a job that provides a plugin says how many instances it is to have (D5).
//!
//! **Promises** that only what the job itself says is changed, under the guard of its own key, so
//! that jobs never wait for each other, and that saying the same again writes nothing.

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::registry::{Expect, Expected};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::Job;
use berth_domain::{Timestamp, limits};
use berth_service::deadline;
use tokio::time::Instant;

use crate::events;
use crate::state::State;
use crate::store::{LostRaces, StoreError};

const STEP: &str = verb::PluginExpect::STEP;

/// Notes what the job says; takes it back when that is nothing.
pub async fn expect(
    state: &State,
    request: Expect,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Expected, Problem> {
    let plugin = request.plugin.clone();
    state.catch_up(STEP, deadline).await.map_err(|problem| problem.plugin(&plugin))?;
    let mut races = LostRaces::default();
    let changed = loop {
        let attempt = note(state, &request, at, trace, deadline).await;
        if let Some(outcome) = races.outcome(STEP, attempt) {
            break outcome;
        }
    };
    let changed = changed.map_err(|problem| problem.plugin(&plugin))?;
    Ok(Expected { changed })
}

/// Whether anything was written.
async fn note(
    state: &State,
    request: &Expect,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<bool, StoreError> {
    let Expect { plugin, namespace, job: id, controllers, nodes } = request;
    let key = key::job(plugin, namespace, id);
    let (known, seen) = state.look_at_job(&key).await?;
    let wanted = wanted(known.as_ref(), *controllers, *nodes, at);
    if wanted == known {
        return Ok(false);
    }
    if known.is_none() {
        // Two that come at once may both be the last: the bound is against mistakes.
        let jobs = |plugin| state.plugin_mirror.read(|all| Some(all.get(plugin)?.jobs.len()));
        if jobs(plugin).unwrap_or_default() >= limits::JOBS_PER_PLUGIN_MAX {
            let said = format!("plugin {plugin} has {} jobs", limits::JOBS_PER_PLUGIN_MAX);
            return Err(Problem::new(Code::TooManyJobs, said).into());
        }
    }
    deadline::check(deadline)?;
    state.store_job(&key, &seen, wanted.as_ref(), trace).await?;
    let event = events::expected(plugin, namespace, id, wanted.as_ref(), at, trace);
    events::tell(&state.events, &event, trace);
    Ok(true)
}

/// The job as it is to stand; none when it is to have no instance.
fn wanted(known: Option<&Job>, controllers: u32, nodes: u32, at: Timestamp) -> Option<Job> {
    if (controllers, nodes) == (0, 0) {
        return None;
    }
    let same = known.filter(|known| (known.controllers, known.nodes) == (controllers, nodes));
    Some(same.cloned().unwrap_or(Job { controllers, nodes, since: at }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_stays_while_a_job_says_the_same_and_nothing_takes_it_back() {
        let at = Timestamp::from_unix_ms;
        let first = wanted(None, 1, 3, at(5));
        assert_eq!(first, Some(Job { controllers: 1, nodes: 3, since: at(5) }));
        assert_eq!(wanted(first.as_ref(), 1, 3, at(9)), first);
        let more = Some(Job { controllers: 1, nodes: 4, since: at(9) });
        assert_eq!(wanted(first.as_ref(), 1, 4, at(9)), more);
        assert_eq!(wanted(first.as_ref(), 0, 0, at(9)), None);
        assert_eq!(wanted(None, 0, 0, at(9)), None);
    }
}
