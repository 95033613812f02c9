//! `plugin.expect`: a job announces how many instances of a plugin it is to run (D5).
//!
//! **Promises** that a job changes only its own key, so that jobs never wait for each other, and
//! that a repeated announcement writes nothing.

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::registry::{ExpectInstances, Expected};
use berth_contract::problem::Problem;
use berth_domain::plugin::Job;
use berth_domain::{Timestamp, limits};
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};

use crate::caller::Caller;
use crate::store::events;
use crate::store::state::State;

/// Stores the announcement; one with no instances withdraws the job.
pub async fn expect(
    state: &State,
    request: ExpectInstances,
    caller: &Caller,
) -> Result<Expected, Problem> {
    let plugin = request.plugin.clone();
    state.catch_up(caller.deadline).await.map_err(|problem| problem.plugin(&plugin))?;
    let attempt = || store_job(state, &request, caller);
    let changed = retry_lost_races(attempt).await.map_err(|problem| problem.plugin(&plugin))?;
    Ok(Expected { changed })
}

/// Returns whether anything was written.
async fn store_job(
    state: &State,
    request: &ExpectInstances,
    caller: &Caller,
) -> Result<bool, StoreError> {
    let (at, trace) = (caller.at, caller.trace);
    let ExpectInstances { plugin, namespace, job: id, controllers, nodes } = request;
    let key = key::job(plugin, namespace, id);
    let (revision, recorded) = state.plugins.read::<Job>(&key).await?;
    let wanted = wanted_job(recorded.as_ref(), *controllers, *nodes, at);
    if wanted == recorded {
        return Ok(false);
    }
    if recorded.is_none() {
        // Two jobs that are announced at once may both pass: the limit is against mistakes only.
        let jobs = |plugin| state.plugins.mirror.read(|all| Some(all.get(plugin)?.jobs.len()));
        if jobs(plugin).unwrap_or_default() >= limits::JOBS_PER_PLUGIN_MAX {
            let message = format!("plugin {plugin} has {} jobs", limits::JOBS_PER_PLUGIN_MAX);
            return Err(Problem::new(Code::TooManyJobs, message).into());
        }
    }
    deadline::check(caller.deadline)?;
    match &wanted {
        Some(job) => drop(state.plugins.put(&key, job, revision, trace).await?),
        None => state.plugins.delete(&key, revision, trace).await?,
    }
    let event = events::job_changed((plugin, namespace, id), wanted.as_ref(), at, trace);
    events::publish(&state.events, &event, trace);
    Ok(true)
}

/// The job's next record; none for a job that expects no instance.
fn wanted_job(recorded: Option<&Job>, controllers: u32, nodes: u32, at: Timestamp) -> Option<Job> {
    if (controllers, nodes) == (0, 0) {
        return None;
    }
    let same =
        recorded.filter(|recorded| (recorded.controllers, recorded.nodes) == (controllers, nodes));
    Some(same.cloned().unwrap_or(Job { controllers, nodes, since: at }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_stays_while_a_job_says_the_same_and_nothing_takes_it_back() {
        let at = Timestamp::from_unix_ms;
        let first = wanted_job(None, 1, 3, at(5));
        assert_eq!(first, Some(Job { controllers: 1, nodes: 3, since: at(5) }));
        assert_eq!(wanted_job(first.as_ref(), 1, 3, at(9)), first);
        let more = Some(Job { controllers: 1, nodes: 4, since: at(9) });
        assert_eq!(wanted_job(first.as_ref(), 1, 4, at(9)), more);
        assert_eq!(wanted_job(first.as_ref(), 0, 0, at(9)), None);
        assert_eq!(wanted_job(None, 0, 0, at(9)), None);
    }
}
