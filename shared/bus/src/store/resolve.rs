//! Finds out whether a write that was not acknowledged is stored.
//!
//! **Owns** the reading of the stream's history after the guard's revision.
//!
//! **Rests on** this: if the write was stored, its guard held. So no message below its filter lies
//! between the guard's revision and the write. The first message after that revision is our write,
//! or our write was never stored and never will be.
//!
//! There is one exception: our write was stored and then pushed out of the history, by as many
//! later writes of the key as the bucket keeps. (A KV purge would do the same; Berth sends none.)
//! Most often the guard of the first message decides: if it has the same revision as ours, our
//! write was never in between.

use async_nats::jetstream::message::StreamMessage;
use berth_contract::header;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::connection::exchange::pause;
use crate::connection::headers;
use crate::store::bucket::Bucket;
use crate::store::read::ReadError;
use crate::store::write::Write;

/// What the stream says of a write that may have been sent.
pub(crate) enum WriteTrace {
    /// It is stored.
    Stored(u64),
    /// Another write came first: this one is not stored and cannot be any more.
    Beaten,
    /// No write came since: this one is not stored yet.
    None,
    /// The key was written since: our write was not stored, or it was stored and pushed out.
    Blurred,
    /// The leader did not answer.
    Unread(Cause),
}

impl Bucket {
    /// Looks for writes that are stored together, and returns the index of one that decides. They
    /// are stored if each of them is. They are not stored, and never will be, if another write came
    /// before one of them: that guard cannot hold for a later copy.
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
            // One write was read before the batch was stored, and another after it. Or a server
            // that was killed kept only a part of the batch, and then the difference stays.
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
            // The head falls when its marker expires. Then the guard cannot hold again.
            let head = self.head(guard.filter).await?;
            return Ok(if head < guard.revision { WriteTrace::Beaten } else { WriteTrace::None });
        };
        if is_copy(&first, copy) {
            if first.subject.as_str() == self.subject(write.key) {
                return Ok(WriteTrace::Stored(first.sequence));
            }
            // The writes of a batch may have one guard, which covers all of them.
            let own = self.first_after(write.key, guard.revision).await?;
            let own = own.filter(|own| is_copy(own, copy));
            return Ok(own.map_or(WriteTrace::None, |own| WriteTrace::Stored(own.sequence)));
        }
        let base = headers::number(&first.headers, headers::EXPECTED_REVISION);
        let scope = headers::get(&first.headers, headers::EXPECTED_FILTER);
        if base == Some(guard.revision) && scope == Some(&self.subject(guard.filter)) {
            return Ok(WriteTrace::Beaten);
        }
        self.pushed_out(write).await
    }

    /// Whether later writes of the key may have pushed the write out of the history.
    async fn pushed_out(&self, write: &Write<'_>) -> Result<WriteTrace, ReadError> {
        let mut revision = write.guard.revision;
        for _ in 0..self.shape.history {
            let Some(following) = self.first_after(write.key, revision).await? else {
                return Ok(WriteTrace::Beaten);
            };
            if headers::get(&following.headers, headers::ROLLUP).is_some() {
                break;
            }
            revision = following.sequence;
        }
        Ok(WriteTrace::Blurred)
    }
}

fn is_copy(message: &StreamMessage, copy: &str) -> bool {
    headers::get(&message.headers, header::WRITE) == Some(copy)
}
