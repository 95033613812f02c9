//! Tries of one request, until it is answered or given up.

use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{Row, Verb};
use berth_domain::retry::Schedule;
use tokio::time::{Instant, sleep};

use crate::Client;

/// A try waits at least this long for its answer, unless the deadline is nearer.
const TRY_MIN: Duration = Duration::from_secs(1);
/// How long the first try of a change waits for its answer if the service has replicas. The queue
/// group keeps choosing a replica that hangs until nats-server drops it (`ping_interval`).
const REPLICA_FIRST_TRY_MAX: Duration = Duration::from_millis(1_200);
/// The same if a plugin may be called before the answer. A retry may call it again.
const PLUGIN_FIRST_TRY_MAX: Duration = Duration::from_secs(5);
/// Pauses after a request that came too late. One of the two clocks is wrong, so a quick retry
/// fails as well, and hundreds of callers may retry.
const PAUSES_LATE: Schedule =
    Schedule { first: Duration::from_secs(1), max: Duration::from_secs(15) };

/// The timeouts and pauses of a request's tries.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// Longest wait of one try for its answer. A replica that was killed does not answer; another
    /// one continues its work.
    pub tries: Schedule,
    /// The pauses between tries.
    pub pauses: Schedule,
}

impl Retry {
    /// For a user or a program that waits for one answer.
    pub const USUAL: Self = Self::each(Duration::MAX);

    /// The same with this longest wait of one try.
    pub const fn each(each: Duration) -> Self {
        let pauses = Schedule { first: Duration::from_millis(200), max: Duration::from_secs(3) };
        Self { tries: Schedule { first: each, max: each }, pauses }
    }

    /// The deadline of a try: half of the remaining time, so that there is time for another try.
    fn deadline(&self, requests: u32, until: Instant) -> Instant {
        let now = Instant::now();
        let half = until.saturating_duration_since(now) / 2;
        (now + half.max(TRY_MIN).min(self.tries.longest(requests))).min(until)
    }

    /// The same with short first tries if another replica may answer the next one. A read needs
    /// none, because it is sent to several replicas at once.
    fn among_replicas(self, row: &Row) -> Self {
        if row.only_reads() || !row.has_replicas() {
            return self;
        }
        let calls_plugin = row.may_fail_with(Code::PluginFailed);
        let first = if calls_plugin { PLUGIN_FIRST_TRY_MAX } else { REPLICA_FIRST_TRY_MAX };
        Self { tries: Schedule { first: self.tries.first.min(first), ..self.tries }, ..self }
    }

    fn pause(&self, problem: &Problem, tries: u32) -> Duration {
        let schedule = if problem.code == Code::Late { PAUSES_LATE } else { self.pauses };
        schedule.wait(tries, rand::random())
    }
}

/// A try that failed, while there is time for another.
#[derive(Debug)]
pub struct FailedTry<'a> {
    /// Why it failed.
    pub problem: &'a Problem,
    /// The number of failed tries.
    pub failures: u32,
    /// When the first try began.
    pub since: Instant,
    /// How long the pause before the next try will be.
    pub pause: Duration,
}

/// The failed tries of a request that its error may need.
#[derive(Default)]
struct Failures {
    /// The last try that was not answered: it may have been carried out.
    unanswered: Option<Problem>,
    /// The last refusal with a reason.
    reason: Option<Problem>,
}

impl Failures {
    fn record(&mut self, problem: Problem) {
        match problem.code {
            Code::NoAnswer => self.unanswered = Some(problem),
            Code::Late => {}
            _ => self.reason = Some(problem),
        }
    }

    /// The error of a request whose last try failed with `last`.
    fn error(self, last: Problem, had_time: bool) -> Problem {
        let was_not_received = matches!(last.code, Code::NoResponder | Code::BusUnavailable);
        match self.unanswered.filter(|_| was_not_received) {
            Some(unanswered) => unanswered,
            None => last.or_reason(self.reason, had_time),
        }
    }
}

impl Client {
    /// Sends a request until it is answered, until `again` returns false for a failed try, or until
    /// the call's deadline leaves no time for another try.
    pub async fn persist<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        call: &Call,
        retry: Retry,
        mut again: impl FnMut(&FailedTry<'_>) -> bool,
    ) -> Result<V::Reply, Problem> {
        let (since, until) = (Instant::now(), call.deadline);
        let retry = retry.among_replicas(&V::ROW);
        let (mut failures, mut tries, mut before) = (0, 0, Failures::default());
        loop {
            let began = Instant::now();
            if began >= until {
                let late = Problem::new(Code::Late, "there was no time left to ask").retryable();
                return Err(before.error(late.at_step(V::STEP), false));
            }
            let mut call = *call;
            call.deadline = retry.deadline(failures + 1, until);
            let problem = match self.once::<V>(to, request, &call).await {
                Ok(reply) => return Ok(reply),
                Err(problem) => problem,
            };
            failures += 1;
            // A try that has waited long enough already is followed by the next one at once, to
            // miss no answer.
            let had_time = began.elapsed() >= retry.pauses.max;
            tries = if had_time { 1 } else { tries + 1 };
            let pause = retry.pause(&problem, tries);
            let is_last = Instant::now() + pause >= until;
            if is_last || !again(&FailedTry { problem: &problem, failures, since, pause }) {
                return Err(before.error(problem, had_time));
            }
            before.record(problem);
            sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_contract::verb;

    use super::*;

    fn problem(code: Code) -> Problem {
        Problem::new(code, "x")
    }

    fn error(codes: &[Code], had_time: bool) -> Code {
        let mut before = Failures::default();
        let (last, earlier) = codes.split_last().unwrap();
        for code in earlier {
            before.record(problem(*code));
        }
        before.error(problem(*last), had_time).code
    }

    #[test]
    fn an_unanswered_try_may_have_been_done_whatever_came_later() {
        assert_eq!(error(&[Code::NoAnswer, Code::NoResponder], true), Code::NoAnswer);
        assert_eq!(error(&[Code::NoAnswer, Code::Held], true), Code::Held);
    }

    #[test]
    fn an_earlier_reason_says_more_than_a_try_without_time() {
        assert_eq!(error(&[Code::PluginUnhealthy, Code::NoAnswer], false), Code::PluginUnhealthy);
        assert_eq!(error(&[Code::PluginUnhealthy, Code::NoAnswer], true), Code::NoAnswer);
        assert_eq!(error(&[Code::PluginUnhealthy, Code::Late], true), Code::PluginUnhealthy);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_leaves_time_for_another() {
        let left = |retry: Retry, requests, left: u64| {
            let now = Instant::now();
            retry.deadline(requests, now + Duration::from_millis(left)) - now
        };
        assert_eq!(left(Retry::USUAL, 1, 5_000), Duration::from_millis(2_500));
        assert_eq!(left(Retry::USUAL, 2, 1_500), Duration::from_secs(1));
        assert_eq!(left(Retry::USUAL, 3, 700), Duration::from_millis(700));
        // A change at a service with replicas leaves time for several.
        let among = |row: Row| Retry::USUAL.among_replicas(&row);
        let brief = among(verb::VolumeDeregister::ROW);
        assert_eq!(left(brief, 1, 60_000), Duration::from_millis(1_200));
        assert_eq!(left(brief, 3, 60_000), Duration::from_millis(4_800));
        assert_eq!(left(among(verb::VolumeRegister::ROW), 1, 60_000), Duration::from_secs(5));
        for alone in [verb::VolumeStatus::ROW, verb::AgentMount::ROW, verb::GcForce::ROW] {
            assert_eq!(left(among(alone), 1, 60_000), Duration::from_secs(30));
        }
        let tries = Schedule { first: Duration::from_secs(1), max: Duration::from_secs(5) };
        let growing = Retry { tries, ..Retry::USUAL };
        assert_eq!(left(growing, 2, 60_000), Duration::from_secs(2));
    }
}
