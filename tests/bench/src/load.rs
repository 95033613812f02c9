//! The closed loop: so many callers, each with one operation under way, always.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Fatal;
use crate::stats::Sample;

/// One operation of one caller; false when there is nothing left to do it on.
pub type Operation = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<bool, Fatal>> + Send + Sync>;

/// How long a round is.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measured: Duration,
}

/// What a round brought.
#[derive(Debug)]
pub struct Done {
    /// The operations that ended in the measured time; none when there was nothing left for them.
    pub sample: Option<Sample>,
    /// All operations, those of the warm-up too.
    pub operations: usize,
}

/// Runs one round. It ends early when a caller finds nothing left to do.
pub async fn run(at_once: usize, round: Round, operation: &Operation) -> Result<Done, Fatal> {
    let begin = Instant::now() + round.warm_up;
    let end = begin + round.measured;
    let mut callers = JoinSet::new();
    for caller in 0..at_once {
        let operation = Arc::clone(operation);
        callers.spawn(async move {
            let (mut times, mut operations) = (Vec::with_capacity(1024), 0);
            let mut dry = None;
            loop {
                let asked = Instant::now();
                if asked >= end {
                    break;
                }
                if !operation(caller).await? {
                    dry = Some(asked);
                    break;
                }
                let answered = Instant::now();
                operations += 1;
                if answered >= begin && answered < end {
                    times.push((answered, answered - asked));
                }
            }
            Ok::<_, Fatal>((times, operations, dry))
        });
    }
    let (mut times, mut operations, mut until) = (Vec::new(), 0, end);
    while let Some(caller) = callers.join_next().await {
        let (theirs, their_operations, dry) = caller??;
        times.extend(theirs);
        operations += their_operations;
        until = until.min(dry.unwrap_or(end));
    }
    times.retain(|(answered, _)| *answered <= until);
    let times = times.into_iter().map(|(_, took)| took).collect();
    let sample = Sample::new(times, until.saturating_duration_since(begin));
    Ok(Done { sample, operations })
}

/// Things to operate on, each once.
#[derive(Debug)]
pub struct Supply<T> {
    things: Vec<T>,
    next: AtomicUsize,
}

impl<T> Supply<T> {
    /// All of these.
    pub fn new(things: Vec<T>) -> Arc<Self> {
        Arc::new(Self { things, next: AtomicUsize::new(0) })
    }

    /// The next item, which no caller took before.
    pub fn take(&self) -> Option<&T> {
        self.things.get(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const ROUND: Round =
        Round { warm_up: Duration::from_millis(500), measured: Duration::from_secs(2) };

    /// An operation of ten milliseconds, on a clock that runs as fast as it is waited for.
    fn ten_ms(supply: Arc<Supply<()>>) -> Operation {
        Arc::new(move |_| {
            let supply = Arc::clone(&supply);
            async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(supply.take().is_some())
            }
            .boxed()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn callers_wait_for_their_own_operation_only() {
        let done = run(4, ROUND, &ten_ms(Supply::new(vec![(); 10_000]))).await.unwrap();
        let sample = done.sample.unwrap();
        assert!((390.0..=410.0).contains(&sample.per_second), "{sample:?}");
        assert!((990..=1010).contains(&done.operations), "{}", done.operations);
        let ms = sample.p50.as_millis();
        assert!((10..=12).contains(&ms), "{sample:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_supply_that_ends_shortens_the_round_and_not_the_rate() {
        let done = run(4, ROUND, &ten_ms(Supply::new(vec![(); 600]))).await.unwrap();
        let sample = done.sample.unwrap();
        assert!((380.0..=410.0).contains(&sample.per_second), "{sample:?}");
        assert_eq!(done.operations, 600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_supply_that_ends_in_the_warm_up_measures_nothing() {
        let done = run(4, ROUND, &ten_ms(Supply::new(vec![(); 20]))).await.unwrap();
        assert_eq!(done.sample, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_operation_fails_the_round() {
        let fails: Operation = Arc::new(|_| async { Err("no".into()) }.boxed());
        assert!(run(2, ROUND, &fails).await.is_err());
    }
}
