//! Talking to the services: one connection, one trace, and asking again where that helps.
//!
//! **Promises** that each question ends by its deadline, that whoever waits is told why, and that
//! everything one `berth` does is one trace, named in every error.
//!
//! **Never** asks again after a policy "no": only what may pass by itself is repeated, which is
//! safe because every request of Berth's is idempotent.

use std::time::Duration;

use berth_bus::{Bus, Call, Config};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::subject::{AgentVerb, Global as GlobalVerb, Namespaced};
use berth_domain::retry::Schedule;
use berth_domain::{Namespace, NodeId};
use berth_service::clock;
use berth_service::process::chain;
use berth_telemetry::{Kind, Span};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use crate::args::Global;
use crate::failure::Failure;
use crate::output::{Output, say};
use crate::span;

/// How long a question is pursued, unless said otherwise.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nobody wants to watch a silent terminal for longer.
const SILENCE: Duration = Duration::from_secs(1);
/// When a question is asked again.
pub const AGAIN: Schedule =
    Schedule { first: Duration::from_millis(200), max: Duration::from_secs(3) };

/// What is asked, of whom.
#[derive(Debug, Clone)]
pub struct Question {
    /// The step's name in errors, such as `volume.status`.
    pub step: String,
    /// Where it is sent.
    pub subject: String,
    /// Whose agent it is for, where it is for one.
    node: Option<NodeId>,
    /// Whether it changes nothing, and any replica's answer will do.
    only_reads: bool,
    /// Whether it only writes records, within moments.
    is_brief: bool,
}

impl Question {
    /// A question about something in a namespace.
    pub fn namespaced(verb: Namespaced, namespace: &Namespace) -> Self {
        let (subject, only_reads) = (verb.subject(namespace), verb.only_reads());
        Self { step: verb.step(), subject, node: None, only_reads, is_brief: verb.is_brief() }
    }

    /// A question to the registry or the collector.
    pub fn global(verb: GlobalVerb) -> Self {
        let (subject, only_reads) = (verb.subject(), verb.only_reads());
        Self { step: verb.step(), subject, node: None, only_reads, is_brief: false }
    }

    /// A question to a node's agent.
    pub fn agent(verb: AgentVerb, node: &NodeId) -> Self {
        Self {
            step: format!("agent.{}", verb.as_str()),
            subject: verb.subject(node),
            node: Some(node.clone()),
            only_reads: false,
            is_brief: false,
        }
    }

    /// What can be said of a problem with it that the bus does not know.
    fn place(&self, problem: Problem) -> Problem {
        let Some(node) = &self.node else { return problem };
        let problem = match problem.code {
            Code::NoResponder | Code::NoAnswer if problem.node.is_none() => problem.next(format!(
                "see with `berth node status {node}` how it is; start berth-node-agent there, or \
                 look at its log"
            )),
            _ => problem,
        };
        problem.node(node)
    }
}

/// How long to pursue a question.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until then.
    pub until: Instant,
    /// How long one asking may take at most.
    pub each_max: Duration,
}

impl Patience {
    /// Patience for so long from now.
    pub fn of(span: Duration) -> Self {
        Self { until: Instant::now() + span, each_max: span }
    }

    /// Asks again after at most so long: whoever was asked may have been killed meanwhile.
    #[must_use]
    pub fn each(self, each_max: Duration) -> Self {
        Self { each_max, ..self }
    }

    /// The deadline of the next asking: half of what is left, so that there is time for another.
    fn next(self) -> Instant {
        let left = self.until.saturating_duration_since(Instant::now());
        let each = (left / 2).max(Duration::from_secs(1)).min(self.each_max);
        (Instant::now() + each).min(self.until)
    }
}

/// What is no address is the command line's fault and not the bus's, and no waiting mends it.
fn check_addresses(nats: &str) -> Result<(), Failure> {
    const SCHEMES: [&str; 4] = ["nats", "tls", "ws", "wss"];
    let is_address = |text: &str| match text.split_once("://") {
        Some((scheme, rest)) => SCHEMES.contains(&scheme) && !rest.is_empty(),
        None => !text.is_empty(),
    };
    if nats.split(',').map(str::trim).all(is_address) {
        return Ok(());
    }
    // It is not repeated: it may hold a password.
    Err(Failure::usage(
        "what --nats or BERTH_NATS_URL says is no address of a server",
        "write nats://HOST:PORT, or several of them separated by commas",
    ))
}

/// Whether the service has not seen the request, and so has not said anything about it.
fn was_not_received(problem: &Problem) -> bool {
    matches!(problem.code, Code::NoResponder | Code::BusUnavailable)
}

/// A connection to the bus, and what holds for all that one `berth` asks.
#[derive(Debug)]
pub struct Session {
    /// The bus.
    pub bus: Bus,
    /// The namespace asked about.
    pub namespace: Namespace,
    /// How answers are printed.
    pub output: Output,
    /// The user's `--timeout`.
    pub timeout: Option<Duration>,
    /// All that it asks is part of this; it ends with the session.
    span: Span,
}

impl Session {
    /// Connects.
    pub async fn open(global: &Global) -> Result<Self, Failure> {
        let name = format!("berth/{}", std::process::id());
        check_addresses(&global.nats)?;
        let mut config = Config::new(global.nats.split(',').map(str::trim), &name);
        config.start_timeout = global.timeout.unwrap_or(PATIENCE);
        let bus = Bus::connect(config).await.map_err(|error| {
            Problem::new(Code::BusUnavailable, chain(&error))
                .at("connect")
                .next("check --nats or BERTH_NATS_URL; `berth dev` runs a whole system to try")
        })?;
        Ok(Self {
            bus,
            namespace: global.namespace(),
            output: Output { json: global.json },
            timeout: global.timeout,
            span: Span::root("berth", Kind::Internal),
        })
    }

    /// As long as the user said, or else `default`.
    pub fn patience(&self, default: Duration) -> Patience {
        Patience::of(self.timeout.unwrap_or(default))
    }

    /// A question about something in the session's namespace.
    pub fn about(&self, verb: Namespaced) -> Question {
        Question::namespaced(verb, &self.namespace)
    }

    /// Asks, and asks again while it may help, for the usual time.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        question: &Question,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let patience = self.patience(PATIENCE);
        self.pursue(question, body, patience, |problem| problem.retryable).await
    }

    /// Asks until there is an answer, or a problem that `again` says is final.
    pub async fn pursue<T: DeserializeOwned>(
        &self,
        question: &Question,
        body: &impl Serialize,
        patience: Patience,
        again: impl Fn(&Problem) -> bool,
    ) -> Result<T, Failure> {
        let started = Instant::now();
        let mut told = None;
        let mut unanswered = None;
        let mut reason: Option<Problem> = None;
        let mut tries = 0;
        loop {
            let asked = Instant::now();
            let problem = match self.once(question, body, patience.next()).await {
                Ok(answer) => return Ok(answer),
                Err(problem) => problem,
            };
            // Who was kept waiting for the answer asks again at once, so as to miss nothing.
            tries = if asked.elapsed() > AGAIN.max { 1 } else { tries + 1 };
            let wait = AGAIN.wait(tries, clock::jitter());
            if !again(&problem) || Instant::now() + wait >= patience.until {
                // What was once sent and not answered may have been done, whatever came later.
                let unanswered = unanswered.filter(|_| was_not_received(&problem));
                let had_time = asked.elapsed() >= AGAIN.max;
                let last = unanswered.unwrap_or_else(|| problem.or_reason(reason, had_time));
                return Err(last.into());
            }
            match problem.code {
                Code::NoAnswer => unanswered = Some(problem.clone()),
                Code::Late => {}
                _ => reason = Some(problem.clone()),
            }
            // `run::place` prints a place in line, and does so sooner.
            let is_news = told != Some(problem.code) && problem.code != Code::Waiting;
            if started.elapsed() + wait >= SILENCE && is_news {
                let after = span::short(started.elapsed());
                say(format_args!("  {after}: {problem}; asking again"));
                told = Some(problem.code);
            }
            sleep(wait).await;
        }
    }

    /// Asks once.
    pub async fn once<T: DeserializeOwned>(
        &self,
        question: &Question,
        body: &impl Serialize,
        deadline: Instant,
    ) -> Result<T, Problem> {
        let call = Call::until(self.span.context(), deadline)
            .of_anyone(question.only_reads)
            .again_early(question.is_brief);
        let answer = self.bus.request(&question.subject, body, &call).await;
        answer.map_err(|error| {
            let problem = error.into_problem(&question.step);
            question.place(problem).trace(self.span.context().trace_id())
        })
    }
}
