//! Requests to the services: one connection, one trace, and retries where they help.
//!
//! **Promises** that each request ends by its deadline, that the reason of a retry is printed, and
//! that all requests of one `berth` are one trace, named in every error.
//!
//! **Never** retries after a refusal by policy. Retries are safe because every request of Berth's
//! is idempotent.

use std::time::Duration;

use berth_bus::{Bus, Call, ConnectError};
use berth_client::{Client, FailedTry, Retry};
use berth_contract::code::Code;
use berth_contract::message::access::AccessReport;
use berth_contract::message::paged::{Paged, PagedReply};
use berth_contract::problem::Problem;
use berth_contract::verb::Verb;
use berth_domain::Namespace;
use berth_service::process::chain;
use berth_telemetry::{Kind, Span};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::Global;
use crate::connection;
use crate::failure::Failure;
use crate::output::{Output, print_note};
use crate::span;
use berth_explain::missing_rights;

/// How long a request is retried, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a request is retried that no service has answered: longer than nats-server keeps a
/// replica that hangs in its queue group (`ping_interval` in deploy/nats).
const UNANSWERED_PATIENCE: Duration = Duration::from_secs(15);
/// How long retries continue before their reason is printed.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// How long a service that did not receive a request may take to say what it is.
const INFO_WITHIN: Duration = Duration::from_secs(2);

/// The limits of a request's retries.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The deadline.
    pub until: Instant,
    /// The deadline while no service has answered.
    unanswered_until: Instant,
    /// The timeout of one try.
    pub each_max: Duration,
}

impl Patience {
    /// Retries for this long from now.
    pub fn lasting(span: Duration) -> Self {
        let until = Instant::now() + span;
        Self { until, unanswered_until: until, each_max: span }
    }

    /// The limits of most requests. While no service answers, retries last longer: see
    /// [`UNANSWERED_PATIENCE`].
    fn usual() -> Self {
        let unanswered_until = Instant::now() + UNANSWERED_PATIENCE;
        Self { unanswered_until, ..Self::lasting(PATIENCE).each(PATIENCE / 2) }
    }

    /// Limits each try: the service that took the request may have been killed.
    #[must_use]
    pub fn each(self, each_max: Duration) -> Self {
        Self { each_max, ..self }
    }
}

/// The problem of a failed connection, and what to do.
fn explain(error: ConnectError) -> Problem {
    let code = match error {
        ConnectError::Refused { .. } | ConnectError::Credentials(_) => Code::NotAllowed,
        _ => Code::BusUnavailable,
    };
    let problem = Problem::new(code, chain(&error)).at_step("connect");
    match code {
        Code::BusUnavailable => {
            problem.next("check --nats or BERTH_NATS_URL; `berth dev` runs a whole system to try")
        }
        _ => problem.next("check --creds or BERTH_CREDS, and the other flags of the connection"),
    }
}

/// A connection to the bus, and the settings of all requests of one `berth`.
#[derive(Debug)]
pub struct Session {
    /// The bus.
    pub bus: Bus,
    client: Client,
    /// The namespace of the requests.
    pub namespace: Namespace,
    /// How answers are printed.
    pub output: Output,
    /// The user's `--timeout`.
    pub timeout: Option<Duration>,
    /// The parent span of all its requests; it ends with the session.
    span: Span,
}

impl Session {
    /// Connects.
    pub async fn open(global: &Global) -> Result<Self, Failure> {
        Self::open_within(global, PATIENCE).await
    }

    /// Connects within `--timeout`, or else within this time.
    pub async fn open_within(global: &Global, within: Duration) -> Result<Self, Failure> {
        let mut config = Self::describe_bus(global)?;
        config.start_timeout = global.timeout.unwrap_or(within);
        let bus = Bus::connect(config).await.map_err(explain)?;
        Ok(Self {
            client: Client::new(bus.clone()),
            bus,
            namespace: global.namespace(),
            output: Output { json: global.json },
            timeout: global.timeout,
            span: Span::root("berth", Kind::Internal),
        })
    }

    /// The settings of the bus, from the flags, the variables and the context.
    pub fn describe_bus(global: &Global) -> Result<berth_bus::Config, Failure> {
        let name = format!("berth/{}", std::process::id());
        let nats = connection::read(&global.connection, global.context.as_deref())?;
        let actor = connection::actor(&nats).map_err(|error| explain(error.into()))?;
        Ok(nats.bus(&name, actor))
    }

    /// The user's `--timeout`, or else `default`.
    pub fn patience(&self, default: Duration) -> Patience {
        Patience::lasting(self.timeout.unwrap_or(default))
    }

    /// Sends a request, and retries it while that may help, for the usual time.
    pub async fn ask_service<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
    ) -> Result<V::Reply, Failure> {
        let patience = self.timeout.map_or_else(Patience::usual, Patience::lasting);
        self.pursue::<V>(to, request, patience).await
    }

    /// Sends a request, and retries it while that may help, for this long.
    pub async fn pursue<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        patience: Patience,
    ) -> Result<V::Reply, Failure> {
        self.pursue_while::<V>(to, request, patience, |problem| problem.retryable).await
    }

    /// Sends a request until it has an answer, or a problem for which `again` is false.
    pub async fn pursue_while<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        patience: Patience,
        again: impl Fn(&Problem) -> bool,
    ) -> Result<V::Reply, Failure> {
        let call = Call::until(self.span.context(), patience.unanswered_until);
        let retry = Retry::each(patience.each_max);
        let mut printed_code = None;
        let answer = self.client.persist::<V>(to, request, &call, retry, |failed| {
            let FailedTry { problem, since, pause, .. } = *failed;
            let is_over = Instant::now() + pause >= patience.until;
            if !again(problem) || is_over && problem.code != Code::NoAnswer {
                return false;
            }
            // `run::queue_position` prints a position in the queue, and does so sooner.
            let is_news = printed_code != Some(problem.code) && problem.code != Code::Waiting;
            if since.elapsed() + pause >= SILENCE_MAX && is_news {
                let after = span::short(since.elapsed());
                print_note(format_args!("  {after}: {problem}; asking again"));
                printed_code = Some(problem.code);
            }
            true
        });
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(problem) => Err(self.explain_unserved::<V>(problem).await.into()),
        }
    }

    /// Explains a request that no service received. If the service runs and may not receive it,
    /// starting the service would not help.
    async fn explain_unserved<V: Verb>(&self, problem: Problem) -> Problem {
        if problem.code != Code::NoResponder {
            return problem;
        }
        let service = V::ROW.service.name;
        let call = Call::within(self.span.context(), INFO_WITHIN);
        let subject = format!("$SRV.INFO.{service}");
        let info: Option<Value> = self.bus.request(&subject, &json!({}), &call).await.ok();
        let access = info.and_then(|mut info| serde_json::from_value(info["access"].take()).ok());
        let access: Option<AccessReport> = access;
        let lacking =
            access.as_ref().and_then(|report| Some((report, report.find_step(V::STEP, false)?)));
        let Some((access, right)) = lacking else { return problem };
        let message = missing_rights::describe(service, access, &right);
        Problem { message, ..problem }.next(missing_rights::next(access))
    }

    /// Reads a list to its end, or this many pages, and passes each page to `take`.
    pub async fn pages<V: Verb<Request: Paged, Reply: PagedReply>>(
        &self,
        to: &V::To,
        request: V::Request,
        pages_max: usize,
        take: impl FnMut(V::Reply),
    ) -> Result<bool, Problem> {
        let call = Call::until(self.span.context(), self.patience(PATIENCE).until);
        self.client.pages::<V>(to, request, &call, pages_max, take).await
    }

    /// Sends a request without a retry.
    pub async fn once<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        deadline: Instant,
    ) -> Result<V::Reply, Problem> {
        let call = Call::until(self.span.context(), deadline);
        self.client.once::<V>(to, request, &call).await
    }
}
