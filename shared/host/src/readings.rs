//! A reading that concurrent callers share.
//!
//! **Owns** the last reading of each kind.
//!
//! **Promises**
//!
//! - that a caller gets a reading that began after its call;
//! - that readings run off the async threads, one at a time. While several callers wait, there is a
//!   rest between two readings, in which further callers join them. A lone caller never rests;
//! - that a reading that hangs holds one thread, and its callers get an error within
//!   [`READING_MAX`]; later callers get the error at once.
//!
//! **Never** depends on what is read.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::pool::{HostOperation, HostPool};

/// The rest after a reading is this many times as long as the reading took.
const REST_FACTOR: u32 = 8;
/// The longest rest: a caller in a crowd waits longer for its turn than that.
const REST_MAX: Duration = Duration::from_millis(25);

/// How long a reading may take.
const READING_MAX: Duration = Duration::from_secs(10);
/// The share of all readings in the pool.
const SHARE: &str = "mount tables";

/// Readings of one kind.
#[derive(Debug)]
pub(crate) struct SharedReadings<T> {
    /// The source of the readings: a file or a directory of `/proc`.
    source: &'static str,
    /// The number of callers so far.
    pub(crate) asked: AtomicU64,
    pub(crate) last: Mutex<Option<SharedReading<T>>>,
}

/// The last reading.
#[derive(Debug)]
pub(crate) struct SharedReading<T> {
    /// The number of callers before it began.
    pub(crate) asked: u64,
    value: Arc<T>,
    /// The next reading begins after this time if several callers wait for it.
    rest_until: Instant,
}

impl<T: Send + Sync + 'static> SharedReadings<T> {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, asked: AtomicU64::new(0), last: Mutex::const_new(None) }
    }

    /// Returns a reading that begins after this call.
    pub(crate) async fn read<E>(&self, read: fn() -> Result<T, E>) -> Result<Arc<T>, E>
    where
        E: Error + From<io::Error> + Send + 'static,
    {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some(reading) = &*last {
            if ticket < reading.asked {
                return Ok(Arc::clone(&reading.value));
            }
            // Callers that came later wait for the lock. The longer the rest, the more of them
            // share the next reading.
            if self.asked.load(Ordering::SeqCst) > ticket + 1 {
                sleep_until(reading.rest_until).await;
            }
        }
        let (asked, began) = (self.asked.load(Ordering::SeqCst), Instant::now());
        let operation = HostOperation::new("read", SHARE, self.source);
        let value = HostPool::of_process().run(operation, READING_MAX, read).await;
        let value = value.map_err(io::Error::from)??;
        let value = Arc::new(value);
        let rest_until = Instant::now() + (began.elapsed() * REST_FACTOR).min(REST_MAX);
        *last = Some(SharedReading { asked, value: Arc::clone(&value), rest_until });
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::time::timeout;

    use super::*;

    const BLINK: Duration = Duration::from_millis(50);

    /// Readings of which the last one has just ended, with a rest until then.
    fn resting_until(rest_until: Instant) -> SharedReadings<usize> {
        let last = SharedReading { asked: 0, value: Arc::new(0), rest_until };
        SharedReadings { last: Mutex::new(Some(last)), ..SharedReadings::new("/test/readings") }
    }

    #[tokio::test]
    async fn a_lone_caller_reads_at_once() {
        let readings = resting_until(Instant::now() + Duration::from_secs(3600));
        assert_eq!(*readings.read(|| Ok::<_, io::Error>(1)).await.unwrap(), 1);
        assert_eq!(*readings.read(|| Ok::<_, io::Error>(2)).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn in_a_crowd_there_is_a_rest_and_one_reading_serves_all() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let read = || Ok::<_, io::Error>(COUNT.fetch_add(1, Ordering::SeqCst));
        let readings = resting_until(Instant::now() + BLINK * 4);
        let under_way = readings.last.lock().await;
        let all = async { tokio::join!(readings.read(read), readings.read(read)) };
        tokio::pin!(all);
        assert!(timeout(BLINK, &mut all).await.is_err(), "another reading is under way");
        drop(under_way);
        assert!(timeout(BLINK, &mut all).await.is_err(), "there is no rest");
        let (one, other) = all.await;
        assert_eq!((*one.unwrap(), *other.unwrap()), (0, 0));
        assert_eq!(COUNT.load(Ordering::SeqCst), 1);
    }
}
