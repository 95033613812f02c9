//! What became of a write that was not acknowledged.
//!
//! **Owns** the reading of the stream's history after the guard's revision.
//!
//! **Rests on** this: the guard held when the write was stored, so nothing below its filter stands
//! between the guard's revision and the write. Hence the first message after that revision is ours,
//! or ours was never stored and never will be. One thing blurs it: ours may have been stored and
//! then pushed out by later writes of the same key: as many as the bucket keeps, or a KV purge,
//! which is none of ours. Most often the first message's own guard tells: if it stood on the same
//! revision, ours was never between.

use async_nats::jetstream::message::StreamMessage;
use berth_contract::header;
use tokio::time::Instant;

use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::exchange::pause;
use crate::headers;
use crate::read::ReadError;
use crate::write::Write;

/// What was found of a write.
pub(crate) enum WriteTrace {
    /// It is stored.
    Stored(u64),
    /// Another write came first: it is not stored and cannot be any more.
    Beaten,
    /// Nothing came since: it is not stored yet.
    None,
    /// Others wrote the key since: it is not stored, or it was and they pushed it out.
    Blurred,
    /// The leader did not answer.
    Unread(Cause),
}

impl Bucket {
    /// Looks for writes that are stored together, and names one that decides. They are stored when
    /// each of them is; and are not, and never will be, when another write came before one of them:
    /// then the guard of that one cannot hold for a later copy.
    pub(crate) async fn resolve_all(
        &self,
        writes: &[Write<'_>],
        copy: &str,
        deadline: Instant,
    ) -> (WriteTrace, usize) {
        let mut tries = 0;
        loop {
            let (mut stored, mut last, mut open) = (0, 0, None);
            for (at, write) in writes.iter().enumerate() {
                match self.resolve(write, copy, deadline).await {
                    WriteTrace::Stored(revision) => {
                        (stored, last) = (stored + 1, last.max(revision));
                    }
                    WriteTrace::Beaten if stored == 0 => return (WriteTrace::Beaten, at),
                    trace @ (WriteTrace::Unread(_) | WriteTrace::Blurred) => return (trace, at),
                    trace @ (WriteTrace::Beaten | WriteTrace::None) => open = Some((trace, at)),
                }
            }
            let Some((trace, at)) = open else { return (WriteTrace::Stored(last), 0) };
            if stored == 0 {
                return (trace, at);
            }
            // One was read before the batch was stored and the next one after it. A server that was
            // killed may have kept a part of a batch; then it stays so.
            if Instant::now() >= deadline {
                return (WriteTrace::Unread(Cause::new("a part of the writes is stored")), at);
            }
            tries += 1;
            pause(tries).await;
        }
    }

    /// Looks for the write until the leader answers or the deadline comes.
    async fn resolve(&self, write: &Write<'_>, copy: &str, deadline: Instant) -> WriteTrace {
        let mut tries = 0;
        loop {
            let error = match self.find_write(write, copy).await {
                Ok(trace) => return trace,
                Err(error) => error,
            };
            if Instant::now() >= deadline {
                return WriteTrace::Unread(Cause::new(error));
            }
            tries += 1;
            pause(tries).await;
        }
    }

    async fn find_write(&self, write: &Write<'_>, copy: &str) -> Result<WriteTrace, ReadError> {
        let guard = write.guard;
        let Some(first) = self.first_after(guard.filter, guard.revision).await? else {
            // The head falls when the marker it stood on expires; then the guard cannot hold again.
            let head = self.head(guard.filter).await?;
            return Ok(if head < guard.revision { WriteTrace::Beaten } else { WriteTrace::None });
        };
        if is_copy(&first, copy) {
            return Ok(WriteTrace::Stored(first.sequence));
        }
        let base = headers::number(&first.headers, headers::EXPECTED_REVISION);
        let scope = headers::get(&first.headers, headers::EXPECTED_FILTER);
        if base == Some(guard.revision) && scope == Some(&self.subject(guard.filter)) {
            return Ok(WriteTrace::Beaten);
        }
        self.pushed_out(write).await
    }

    /// Whether later writes of the key may have pushed ours out.
    async fn pushed_out(&self, write: &Write<'_>) -> Result<WriteTrace, ReadError> {
        let mut revision = write.guard.revision;
        for _ in 0..self.shape.history {
            let Some(next) = self.first_after(write.key, revision).await? else {
                return Ok(WriteTrace::Beaten);
            };
            if headers::get(&next.headers, headers::ROLLUP).is_some() {
                break;
            }
            revision = next.sequence;
        }
        Ok(WriteTrace::Blurred)
    }
}

fn is_copy(message: &StreamMessage, copy: &str) -> bool {
    headers::get(&message.headers, header::WRITE) == Some(copy)
}
