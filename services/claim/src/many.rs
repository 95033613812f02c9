//! Requests about several things in one message.
//!
//! **Promises** that each request is answered as if it had been sent alone, also in the history: a
//! refusal among many is an event as any other. One that hangs takes no more than its share of the
//! time.

use std::future::Future;
use std::time::Duration;

use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_service::refusals::RequestSubject;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::Instant;

use crate::caller::Caller;
use crate::refusal_event::tell_refusal;
use crate::store::state::State;

/// Requests of one message that are at work at once, at most.
const AT_ONCE_MAX: usize = 16;

/// The message that the requests came in, and the step that each of them is.
#[derive(Clone, Copy)]
pub struct ManyOf<'a> {
    pub state: &'a State,
    pub namespace: &'a Namespace,
    pub caller: &'a Caller,
    pub step: &'static str,
}

/// Does each request, and returns the answers in the order of the requests.
pub async fn answer_each<R, T, F: Future<Output = Result<T, Problem>>>(
    of: ManyOf<'_>,
    requests: Vec<R>,
    about: impl Fn(&R) -> RequestSubject,
    work: impl Fn(R, Caller) -> F,
) -> Vec<Result<T, Problem>> {
    let ManyOf { state, namespace, caller, step } = of;
    let share = share_of(caller.deadline, requests.len());
    let answers = requests.into_iter().map(|request| {
        let (about, work) = (about(&request), &work);
        async move {
            let deadline = caller.deadline.min(Instant::now() + share);
            work(request, Caller { deadline, ..caller.clone() }).await.map_err(|problem| {
                let problem = problem.at_step(step).trace(caller.trace.trace_id());
                tell_refusal(state, namespace, caller, about, &problem);
                problem
            })
        }
    });
    stream::iter(answers).buffered(AT_ONCE_MAX).collect().await
}

/// How long each of so many requests may take, so that one that hangs leaves the others their time.
fn share_of(deadline: Instant, requests: usize) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    let rounds = u32::try_from(requests.div_ceil(AT_ONCE_MAX)).unwrap_or(u32::MAX).max(1);
    left * 9 / 10 / rounds
}
