//! Waiting for operations that go on by themselves: each step is printed as it happens.
//!
//! **Promises** that a step, and the reason why nothing can be read, is printed once, and that a
//! wait ends by its deadline.
//!
//! **Never** drives an operation: the volumewatcher does, whether anybody waits or not.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use berth_client::poll;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::output::print_note;
use crate::span;
use crate::table::plain;

/// Pause after a request that failed.
const ERROR_REST: Duration = Duration::from_secs(1);

/// A step of an operation. It is printed again when its text changes, but not when only the time of
/// its next try changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitStep {
    text: String,
    /// When it is tried again: `in 3.0s`.
    next_try: Option<String>,
}

impl WaitStep {
    /// `creating; try 2 failed: no room, next in 3.0s`, if the last try failed.
    pub fn failed_try(
        state: &str,
        tries: u32,
        error: Option<&str>,
        next_try: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        // Tries before this step belong to an earlier step.
        let failed = match tries {
            0 => "before".to_owned(),
            tries => format!("try {tries} failed"),
        };
        let text = format!("{state}; {failed}: {}", plain(error?));
        Some(Self { text, next_try: next_try.map(|at| span::until(at, now)) })
    }

    /// The step with what it is about: `a on data: unpublishing`.
    #[must_use]
    pub fn prefix_with(self, subject: impl fmt::Display, separator: &str) -> Self {
        Self { text: format!("{subject}{separator}{}", self.text), ..self }
    }
}

impl From<String> for WaitStep {
    fn from(text: String) -> Self {
        Self { text, next_try: None }
    }
}

impl fmt::Display for WaitStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.next_try.iter().try_for_each(|next| write!(f, ", next {next}"))
    }
}

/// Waits, and prints the steps meanwhile.
#[derive(Debug)]
pub struct Waiter {
    /// The awaited operation, in a word: `change`, `release`.
    operation: &'static str,
    started: Instant,
    /// The last printed text of each subject.
    printed: BTreeMap<String, String>,
    /// The last step, printed or not.
    last: Option<String>,
    /// Why the last request failed, if it did.
    silence: Option<Code>,
}

impl Waiter {
    /// Begins a wait for `operation`.
    pub fn begin(operation: &'static str) -> Self {
        let (printed, last, silence) = Default::default();
        Self { operation, started: Instant::now(), printed, last, silence }
    }

    /// Calls `read` until it breaks. Returns none after the deadline `until`. Fails if a request
    /// cannot succeed later.
    pub async fn poll<Found>(
        &mut self,
        until: Instant,
        pause: Duration,
        mut read: impl AsyncFnMut(&mut Self) -> Result<ControlFlow<Found>, Problem>,
    ) -> Result<Option<Found>, Failure> {
        let end = poll(until, pause, async || match read(self).await {
            Ok(flow) => {
                self.end_silence();
                flow.map_break(Ok)
            }
            Err(problem) if !problem.retryable => Break(Err(problem.into())),
            Err(problem) => {
                self.print_silence(&problem);
                sleep(ERROR_REST).await;
                Continue(())
            }
        });
        end.await.break_value().transpose()
    }

    /// Prints a step of this subject, unless it was the subject's last one.
    pub fn step(&mut self, subject: &str, step: &WaitStep) {
        if self.is_new(subject, step) {
            self.print(step);
        }
    }

    fn is_new(&mut self, subject: &str, step: &WaitStep) -> bool {
        self.last = Some(step.to_string());
        let text = step.text.clone();
        self.printed.insert(subject.to_owned(), text) != Some(step.text.clone())
    }

    /// Prints a line with the time since the beginning.
    pub fn print(&self, line: impl fmt::Display) {
        print_step(self.started, line);
    }

    /// Prints why nothing can be read now, once for each reason.
    pub fn print_silence(&mut self, problem: &Problem) {
        if self.silence.replace(problem.code) != Some(problem.code) {
            let line =
                format!("cannot look now: {problem}; the {} goes on without us", self.operation);
            self.print(&line);
            self.last = Some(line);
        }
    }

    /// Notes that a request was answered, so that the next silence is printed.
    pub fn end_silence(&mut self) {
        self.silence = None;
    }

    /// How long the wait has lasted.
    pub fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// `is not ready after 5m: creating; try 2 failed: no room`
    pub fn describe_end(&self, goal: &str) -> String {
        let last_step = self.last.as_deref().unwrap_or("its state is not known");
        format!("is not {goal} after {}: {last_step}", span::short(self.waited()))
    }
}

/// Prints a step, with the time since `started`.
pub fn print_step(started: Instant, step: impl fmt::Display) {
    print_note(format_args!("  {:>5}  {step}", span::short(started.elapsed())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(tries: u32, next_ms: u64) -> WaitStep {
        let (next, now) = (Timestamp::from_unix_ms(next_ms), Timestamp::from_unix_ms(1000));
        WaitStep::failed_try("creating", tries, Some("no\n"), Some(next), now).unwrap()
    }

    #[test]
    fn a_step_is_new_when_more_than_its_next_try_has_changed() {
        let mut waiter = Waiter::begin("change");
        assert_eq!(failed(2, 4000).to_string(), "creating; try 2 failed: no\\n, next in 3.0s");
        assert!(waiter.is_new("data", &failed(2, 4000)));
        assert!(!waiter.is_new("data", &failed(2, 9000)), "another time of the next try");
        assert!(waiter.is_new("data", &failed(3, 9000)));
        assert!(waiter.is_new("other", &failed(3, 9000)), "each subject has its own steps");
        assert!(
            waiter.describe_end("ready").ends_with(": creating; try 3 failed: no\\n, next in 8.0s")
        );
        assert_eq!(WaitStep::failed_try("creating", 0, None, None, Timestamp::default()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_its_result_with_a_refusal_or_at_the_deadline() {
        let pause = Duration::from_secs(2);
        let until = || Instant::now() + Duration::from_secs(10);
        let mut waiter = Waiter::begin("change");
        let mut reads = 0;
        let reply = waiter.poll(until(), pause, async |_| {
            reads += 1;
            match reads {
                1 => Err(Problem::new(Code::NoAnswer, "away").retryable()),
                2 => Ok(Continue(())),
                _ => Ok(Break(reads)),
            }
        });
        assert_eq!(reply.await.unwrap(), Some(3));
        let none = waiter.poll(until(), pause, async |_| Ok(Continue::<()>(())));
        assert_eq!(none.await.unwrap(), None);
        let refused = Problem::new(Code::NotAllowed, "no");
        let refused =
            waiter.poll(until(), pause, async |_| Err::<ControlFlow<()>, _>(refused.clone()));
        assert!(refused.await.is_err());
    }
}
