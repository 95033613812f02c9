//! `Client::persist`: each deadline, each pause and the counter of failed tries.
//!
//! The verb is `node.leave`: it changes something, so the bus itself sends a try once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_bus::{Bus, Call, Config, Listen, Service, ServiceSpec, VerbRequest};
use berth_client::{Client, FailedTry, Retry};
use berth_contract::code::Code;
use berth_contract::header::CONTRACT_VERSION;
use berth_contract::message::registry::{Leave, NodeLeft};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{NodeLeave, Verb as _};
use berth_domain::NodeId;
use berth_domain::retry::Schedule;
use berth_harness::nats::Server;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

/// A deadline that only a failing test reaches.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much later than its deadline a caller may get its error on a loaded machine.
const SLACK: Duration = Duration::from_secs(3);

/// Short pauses, and tries of at most `each`.
fn retry(each: Duration) -> Retry {
    let pauses = Schedule { first: Duration::from_millis(20), max: Duration::from_millis(100) };
    Retry { pauses, ..Retry::each(each) }
}

fn call(within: Duration) -> Call {
    Call::within(trace(), within)
}

fn trace() -> TraceContext {
    TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap()
}

/// A failed try, as it was shown to the caller.
#[derive(Debug, Clone, PartialEq)]
struct ShownFailure {
    code: Code,
    failures: u32,
    since: Instant,
    pause: Duration,
}

impl From<&FailedTry<'_>> for ShownFailure {
    fn from(failed: &FailedTry<'_>) -> Self {
        let &FailedTry { problem, failures, since, pause } = failed;
        Self { code: problem.code, failures, since, pause }
    }
}

/// One server, with one bus for the client and one for the service.
struct Site {
    client: Client,
    bus: Bus,
    _server: Server,
}

impl Site {
    async fn start() -> Self {
        let server = Server::start().await;
        let connect = async |name| {
            let config = Config::new([server.url()], name).insecure();
            Bus::connect(Config { request_timeout: PATIENCE, ..config }).await.unwrap()
        };
        let (client, bus) = (connect("test/client/1").await, connect("test/service/1").await);
        Self { client: Client::new(client), bus, _server: server }
    }

    /// Sends a request while `again` returns true. Returns the result and each failed try.
    async fn pursue(
        &self,
        call: &Call,
        retry: Retry,
        mut again: impl FnMut(&FailedTry<'_>) -> bool,
    ) -> (Result<NodeLeft, Problem>, Vec<ShownFailure>) {
        let request = Leave { node: NodeId::new("n1").unwrap(), revision: None };
        let mut shown = Vec::new();
        let result = self.client.persist::<NodeLeave>(&(), &request, call, retry, |failed| {
            shown.push(failed.into());
            again(failed)
        });
        let result = result.await;
        (result, shown)
    }
}

/// How long each received request had until its deadline.
#[derive(Debug, Clone, Default)]
struct ReceivedTimes(Arc<Mutex<Vec<Duration>>>);

impl ReceivedTimes {
    fn get(&self) -> Vec<Duration> {
        self.0.lock().unwrap().clone()
    }
}

/// A service that answers the n-th request, counted from 1, with `answer`.
async fn serve<F>(
    bus: &Bus,
    answer: impl Fn(usize) -> F + Send + Sync + 'static,
) -> (Service, ReceivedTimes)
where
    F: Future<Output = Result<NodeLeft, Problem>> + Send + 'static,
{
    let spec = ServiceSpec { name: "leave".into(), version: "0.1.0".into(), ..Default::default() };
    let service = bus.service(spec).await.unwrap();
    let received = ReceivedTimes::default();
    let received_times = received.clone();
    let handler = move |request: VerbRequest<NodeLeave>| {
        let mut received_times = received_times.0.lock().unwrap();
        received_times.push(request.remaining());
        answer(received_times.len())
    };
    service.on::<NodeLeave, _>(Listen::All, 64, handler).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    (service, received)
}

fn left() -> NodeLeft {
    NodeLeft { known: true, instances: 2, gone: false }
}

fn refusal(code: Code) -> Problem {
    Problem::new(code, "not now").retryable()
}

fn is_retryable(failed: &FailedTry<'_>) -> bool {
    failed.problem.retryable
}

fn failures(shown: &[ShownFailure]) -> Vec<u32> {
    shown.iter().map(|failed| failed.failures).collect()
}

#[tokio::test]
async fn a_service_that_fails_is_asked_again_and_each_failure_is_shown_with_its_number() {
    let site = Site::start().await;
    let answer = |n| async move {
        match n {
            1 | 2 => Err(refusal(Code::Busy)),
            3 => Err(refusal(Code::Overloaded)),
            _ => Ok(left()),
        }
    };
    let (_service, received) = serve(&site.bus, answer).await;
    let (began, retry) = (Instant::now(), retry(Duration::MAX));
    let (result, shown) = site.pursue(&call(PATIENCE), retry, is_retryable).await;
    assert_eq!(result.unwrap(), left());
    assert_eq!(failures(&shown), [1, 2, 3]);
    let codes: Vec<_> = shown.iter().map(|failed| failed.code).collect();
    assert_eq!(codes, [Code::Busy, Code::Busy, Code::Overloaded]);
    let pauses: Duration = shown.iter().map(|failed| failed.pause).sum();
    assert!(began.elapsed() >= pauses, "{pauses:?} of pauses in {:?}", began.elapsed());
    assert!(shown.iter().all(|failed| failed.pause <= retry.pauses.max), "{shown:?}");
    assert!(shown.iter().all(|failed| failed.since == shown[0].since), "{shown:?}");
    // A try has half of the remaining time, so that there is time for another.
    let received = received.get();
    assert_eq!(received.len(), 4);
    assert!(received.iter().all(|left| *left <= PATIENCE / 2), "{received:?}");
}

#[tokio::test]
async fn a_refusal_that_the_caller_does_not_want_repeated_is_the_only_try() {
    let site = Site::start().await;
    let refuse = |_| async { Err(Problem::new(Code::NodeReady, "its agent runs")) };
    let (_service, received) = serve(&site.bus, refuse).await;
    let (result, shown) = site.pursue(&call(PATIENCE), retry(Duration::MAX), is_retryable).await;
    let problem = result.unwrap_err();
    assert_eq!((problem.code, failures(&shown)), (Code::NodeReady, vec![1]));
    assert_eq!(problem.step.as_deref(), Some(NodeLeave::STEP));
    assert_eq!(problem.trace.as_deref(), Some(trace().trace_id().as_str()));
    assert_eq!(received.get().len(), 1);
}

#[tokio::test]
async fn a_service_that_is_away_is_asked_until_it_comes() {
    let site = Site::start().await;
    let (away, come) = watch::channel(0);
    let coming = async {
        let mut come = come;
        come.wait_for(|failures| *failures >= 3).await.unwrap();
        serve(&site.bus, |_| async { Ok(left()) }).await
    };
    let call = call(PATIENCE);
    let pursued = site.pursue(&call, retry(Duration::MAX), |failed| {
        away.send_replace(failed.failures);
        failed.problem.code == Code::NoResponder
    });
    let ((result, shown), (_service, received)) = tokio::join!(pursued, coming);
    assert_eq!(result.unwrap(), left());
    let expected: Vec<_> = (1..).take(shown.len()).collect();
    assert_eq!(failures(&shown), expected);
    assert!(shown.len() >= 3 && shown.iter().all(|failed| failed.code == Code::NoResponder));
    assert_eq!(received.get().len(), 1);
}

#[tokio::test]
async fn a_service_that_stays_away_is_reported_by_the_deadline() {
    let site = Site::start().await;
    let (within, retry) = (Duration::from_secs(1), retry(Duration::MAX));
    let began = Instant::now();
    let (result, shown) = site.pursue(&call(within), retry, |_| true).await;
    assert!(began.elapsed() < within + SLACK, "{:?}", began.elapsed());
    let problem = result.unwrap_err();
    assert_eq!((problem.code, problem.retryable), (Code::NoResponder, true));
    assert_eq!(problem.step.as_deref(), Some(NodeLeave::STEP));
    let expected: Vec<_> = (1..).take(shown.len()).collect();
    assert_eq!(failures(&shown), expected);
    assert!(shown.len() > 1, "{shown:?}");
}

#[tokio::test]
async fn a_late_answer_is_not_waited_for_and_another_try_gets_its_own_deadline() {
    let site = Site::start().await;
    let answer = |n| async move {
        if n < 3 {
            sleep(PATIENCE).await;
        }
        Ok(left())
    };
    let (_service, received) = serve(&site.bus, answer).await;
    let tries = Schedule { first: Duration::from_millis(300), max: Duration::from_millis(600) };
    let retry = Retry { tries, ..retry(Duration::MAX) };
    let began = Instant::now();
    // There is time for many more tries, because a loaded machine may be late with the third
    // answer, too.
    let (result, shown) = site.pursue(&call(PATIENCE), retry, is_retryable).await;
    assert_eq!(result.unwrap(), left());
    // A little less than both tries together: the service ends a handler at the deadline, which the
    // request carries in whole milliseconds.
    assert!(began.elapsed() >= Duration::from_millis(850), "{:?}", began.elapsed());
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert_eq!(failures(&shown)[..2], [1, 2]);
    assert!(shown.iter().all(|failed| failed.code == Code::NoAnswer), "{shown:?}");
    let received = received.get();
    assert!(received[0] <= tries.first && received[1] <= tries.max, "{received:?}");
}

#[tokio::test]
async fn answers_that_all_come_late_end_at_the_deadline_as_perhaps_done() {
    let site = Site::start().await;
    let silent = |_| async {
        sleep(PATIENCE).await;
        Ok(left())
    };
    let (_service, received) = serve(&site.bus, silent).await;
    // Long enough for a busy machine to begin each try in time.
    let one_try = Duration::from_secs(2);
    let (within, retry) = (Duration::from_secs(6), retry(one_try));
    let began = Instant::now();
    let (result, shown) = site.pursue(&call(within), retry, is_retryable).await;
    assert!(began.elapsed() < within + SLACK, "{:?}", began.elapsed());
    assert_eq!(result.unwrap_err().code, Code::NoAnswer);
    let expected: Vec<_> = (1..).take(shown.len()).collect();
    assert_eq!(failures(&shown), expected);
    assert!(shown.len() > 1, "{shown:?}");
    assert!(received.get().iter().all(|left| *left <= one_try), "{received:?}");
}

/// Refusals by a service of the last release, which calls them not retryable: of a record that it
/// cannot read, and of a request with unknown fields.
fn refusals_of_older() -> [Problem; 2] {
    let of_record = Problem::new(Code::NewerRecord, "schema 2");
    let of_request = Problem::bad_input_of(Some(u32::MAX), Vec::new()).at_step("node.leave");
    [of_record, of_request].map(|problem| Problem { retryable: false, ..problem })
}

/// Two replicas, the first one older. Chance decides which of them gets a request.
#[tokio::test]
async fn a_replica_that_is_too_old_is_passed_over_for_another() {
    for refusal in refusals_of_older() {
        let site = Site::start().await;
        let answer = move |n| {
            let refusal = refusal.clone();
            async move { if n <= 3 { Err(refusal) } else { Ok(left()) } }
        };
        let (_service, received) = serve(&site.bus, answer).await;
        let never = |_: &FailedTry<'_>| panic!("the caller sees nothing of it");
        let (result, _) = site.pursue(&call(PATIENCE), retry(Duration::MAX), never).await;
        assert_eq!((result.unwrap(), received.get().len()), (left(), 4));
    }
}

#[tokio::test]
async fn where_every_replica_is_too_old_the_tries_are_bounded_and_the_caller_decides() {
    for refusal in refusals_of_older() {
        let (site, code) = (Site::start().await, refusal.code);
        let refuse = move |_| std::future::ready(Err(refusal.clone()));
        let (_service, received) = serve(&site.bus, refuse).await;
        let (result, _) = site.pursue(&call(PATIENCE), retry(Duration::MAX), |_| false).await;
        let problem = result.unwrap_err();
        assert!(problem.code == code && problem.retryable, "{problem}");
        assert_eq!(received.get().len(), 5);
    }
}

/// A request that every version refuses fails at once.
#[tokio::test]
async fn bad_input_for_a_service_of_the_same_version_is_asked_once() {
    let site = Site::start().await;
    let refuse = |_| async {
        Err(Problem::bad_input_of(Some(CONTRACT_VERSION), Vec::new()).at_step("node.leave"))
    };
    let (_service, received) = serve(&site.bus, refuse).await;
    let (result, _) = site.pursue(&call(PATIENCE), retry(Duration::MAX), is_retryable).await;
    assert_eq!((result.unwrap_err().code, received.get().len()), (Code::BadInput, 1));
}
