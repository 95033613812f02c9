//! The closed loop: each caller always has one operation under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Fatal;
use crate::stats::Sample;

/// One operation of a caller; false when its supply is used up.
pub type Operation = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<bool, Fatal>> + Send + Sync>;

/// The length of a round.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// Not counted.
    pub warm_up: Duration,
    /// Counted.
    pub measured: Duration,
}

/// The result of a round.
#[derive(Debug)]
pub struct Done {
    /// The operations that ended in the measured time; none when none ended.
    pub sample: Option<Sample>,
    /// All operations, including those of the warm-up.
    pub operations: usize,
}

/// Runs a task for each caller; returns their results in the order in which they end. The first
/// error ends all of them.
pub async fn callers<T, F>(many: usize, task: impl FnMut(usize) -> F) -> Result<Vec<T>, Fatal>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Fatal>> + Send + 'static,
{
    let mut running: JoinSet<F::Output> = (0..many).map(task).collect();
    let mut results = Vec::with_capacity(many);
    while let Some(done) = running.join_next().await {
        results.push(done??);
    }
    Ok(results)
}

/// Runs one round. It ends early when a caller finds the supply used up.
pub async fn run(at_once: usize, round: Round, operation: &Operation) -> Result<Done, Fatal> {
    let begin = Instant::now() + round.warm_up;
    let end = begin + round.measured;
    let done = callers(at_once, |caller| {
        let operation = Arc::clone(operation);
        async move {
            let (mut times, mut operations) = (Vec::with_capacity(1024), 0);
            let mut used_up_at = None;
            loop {
                let started = Instant::now();
                if started >= end {
                    break;
                }
                if !operation(caller).await? {
                    used_up_at = Some(started);
                    break;
                }
                let answered = Instant::now();
                operations += 1;
                if answered >= begin && answered < end {
                    times.push((answered, answered - started));
                }
            }
            Ok((times, operations, used_up_at))
        }
    });
    let (mut times, mut operations, mut counted_until) = (Vec::new(), 0, end);
    for (caller_times, caller_operations, used_up_at) in done.await? {
        times.extend(caller_times);
        operations += caller_operations;
        counted_until = counted_until.min(used_up_at.unwrap_or(end));
    }
    times.retain(|(answered, _)| *answered <= counted_until);
    let times = times.into_iter().map(|(_, took)| took).collect();
    let sample = Sample::new(times, counted_until.saturating_duration_since(begin));
    Ok(Done { sample, operations })
}

/// Items to operate on, each once.
#[derive(Debug)]
pub struct Supply<T> {
    items: Vec<T>,
    next: AtomicUsize,
}

impl<T> Supply<T> {
    pub fn new(items: Vec<T>) -> Arc<Self> {
        Arc::new(Self { items, next: AtomicUsize::new(0) })
    }

    /// The next item, which no caller took before.
    pub fn take(&self) -> Option<&T> {
        self.items.get(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const ROUND: Round =
        Round { warm_up: Duration::from_millis(500), measured: Duration::from_secs(2) };

    /// An operation of ten milliseconds, on Tokio's paused clock.
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
