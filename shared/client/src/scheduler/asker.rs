//! Requests of a scheduler, in its namespace.

use std::time::Duration;

use berth_bus::Call;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::Verb;
use berth_domain::{Namespace, limits};

use crate::{Client, Retry};

/// How long a request that only writes or reads records is retried.
pub(super) const BRIEF: Duration = Duration::from_secs(60);
/// Most pages of a list that are read.
pub(super) const PAGES_MAX: usize = 1000;

/// The time limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Time limit of one try. Then the request is sent again, because the service may have been
    /// killed.
    pub attempt: Duration,
    /// Time limit of all tries together.
    pub overall: Duration,
}

impl Default for Deadlines {
    /// 30 s and five minutes, because attaching a volume in a cloud takes minutes.
    fn default() -> Self {
        Self { attempt: Duration::from_secs(30), overall: Duration::from_secs(300) }
    }
}

/// Sends requests in one namespace.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub(super) client: Client,
    pub(super) namespace: Namespace,
}

impl Asker {
    /// Retries until there is an answer that time alone does not change, or until the time is over.
    pub(super) async fn send<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        Deadlines { attempt, overall }: Deadlines,
    ) -> Result<V::Reply, Problem> {
        let call = Call::within(TraceContext::begin(&mut rand::rng()), overall);
        let reply = self.client.persist::<V>(to, request, &call, Retry::each(attempt), |failed| {
            failed.problem.retryable
        });
        reply.await
    }

    /// Sends a request that only writes or reads records.
    pub(super) async fn send_brief<V: Verb<To = Namespace>>(
        &self,
        request: &V::Request,
    ) -> Result<V::Reply, Problem> {
        let deadlines = Deadlines { attempt: limits::REQUEST_TIMEOUT, overall: BRIEF };
        self.send::<V>(&self.namespace, request, deadlines).await
    }
}
