//! Requests about several things in one message.
//!
//! **Promises** that each request is answered as if it had been sent alone, also in the history: a
//! refusal among many is an event as any other.

use std::future::Future;

use berth_contract::problem::Problem;
use berth_domain::Namespace;
use berth_service::refusals::RequestSubject;
use futures_util::stream::{self, StreamExt as _};

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
    work: impl Fn(R) -> F,
) -> Vec<Result<T, Problem>> {
    let ManyOf { state, namespace, caller, step } = of;
    let answers = requests.into_iter().map(|request| {
        let (about, done) = (about(&request), work(request));
        async move {
            done.await.map_err(|problem| {
                let problem = problem.at_step(step).trace(caller.trace.trace_id());
                tell_refusal(state, namespace, caller, about, &problem);
                problem
            })
        }
    });
    stream::iter(answers).buffered(AT_ONCE_MAX).collect().await
}
