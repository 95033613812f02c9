//! Group commit: writes that would wait for each other are stored in one step.
//!
//! **Owns** which write is sent alone and which in a batch. A server syncs its disk once for each
//! write, or once for each batch: under load that is most of what a write costs. While few writes
//! of a bucket are in progress, each is sent alone, because a batch costs more than a write: on one
//! server it is staged in files first. Further writes wait for the batch in progress, and then
//! share the next one.
//!
//! A proposed change of nats-server makes a batch on one server cheaper ([nats-server
//! 8539](https://github.com/nats-io/nats-server/pull/8539)).
//!
//! **Promises**
//! - Each write keeps its own guard and its own outcome. A batch is stored whole or not at all. One
//!   failed guard makes the server refuse the batch; then each of its writes is sent alone. When
//!   the acknowledgement of a batch is lost, [`commit`](crate::store::commit) resolves each of its
//!   writes.
//! - Writes that must be stored together are one member of a batch: they are always in one batch,
//!   with others or alone.
//! - A process has at most one batch of a bucket in progress: a server allows a bounded number.
//!
//! **Never** puts two writes into one batch if the guard of one covers the key of the other. Never
//! makes a write wait longer than one tick and the batches before it, each of which has a deadline.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::HeaderMap;
use berth_telemetry::metric::{BUCKETS, COMMITS_TOGETHER};
use bytes::Bytes;
use rand::RngExt as _;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::cause::Cause;
use crate::connection::exchange::ExchangeError;
use crate::connection::handle::{Bus, Watch};
use crate::connection::headers;
use crate::store::ticks::{Arrival, TICK, Ticks};
use crate::stream::ack::{Ack, SendOutcome, judge, read_ack};

/// Most messages of a batch (the server takes 1000), and most bytes.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: usize = 1 << 20;

/// The writes of one bucket that are in progress in this process.
pub(crate) struct Group {
    bus: Bus,
    bucket: String,
    state: Mutex<GroupState>,
}

#[derive(Default)]
struct GroupState {
    /// Writes in progress that were sent alone.
    alone: usize,
    /// Whether a batch is in progress.
    together: bool,
    waiting: VecDeque<BatchMember>,
    ticks: Ticks<BatchMember>,
}

/// One write to be sent.
pub(crate) struct GuardedMessage {
    pub(crate) subject: String,
    /// The subject its guard covers, without a last `>`.
    pub(crate) scope: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

struct BatchMember {
    /// One write, or several that are stored whole or not at all.
    messages: Vec<GuardedMessage>,
    /// Whether its batch was refused, so that it is sent in a batch of its own.
    solo: bool,
    told: oneshot::Sender<GroupOutcome>,
}

impl BatchMember {
    fn new(messages: Vec<GuardedMessage>) -> (Self, oneshot::Receiver<GroupOutcome>) {
        let (told, outcome) = oneshot::channel();
        (Self { messages, solo: false, told }, outcome)
    }

    fn is_bound(&self) -> bool {
        self.messages.len() > 1
    }

    fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.body.len()).sum()
    }
}

/// How a write is to be sent, or how its batch ended.
pub(crate) enum GroupOutcome {
    /// The caller sends it alone, and holds the turn until it is answered.
    Alone(SoloTurn),
    /// It was sent in a batch.
    Sent(SendOutcome),
}

/// The right to write alone.
pub(crate) struct SoloTurn(Arc<Group>);

impl Drop for SoloTurn {
    fn drop(&mut self) {
        self.0.lock().alone -= 1;
        self.0.start_ready();
    }
}

/// The batch in progress. When this is dropped, the next batch may be sent.
struct RunningBatch(Arc<Group>);

impl Drop for RunningBatch {
    fn drop(&mut self) {
        self.0.lock().together = false;
        self.0.start_ready();
    }
}

impl Group {
    pub(crate) fn new(bus: Bus, bucket: &str) -> Arc<Self> {
        Arc::new(Self { bus, bucket: bucket.to_owned(), state: Mutex::default() })
    }

    /// Waits until the write may be sent alone, or was sent in a batch.
    pub(crate) async fn join(
        self: &Arc<Self>,
        message: impl FnOnce() -> GuardedMessage,
    ) -> GroupOutcome {
        let outcome = {
            let mut state = self.lock();
            if !state.together && state.waiting.is_empty() && state.alone < self.alone_max() {
                state.alone += 1;
                return GroupOutcome::Alone(SoloTurn(Arc::clone(self)));
            }
            state.enter(vec![message()])
        };
        self.start_ready();
        outcome.await.unwrap_or_else(|_| GroupOutcome::Sent(given_up()))
    }

    /// As [`join`](Self::join), for a write that nobody waits for: while many of these come, it is
    /// held back until the end of the tick.
    pub(crate) async fn join_at_tick(
        self: &Arc<Self>,
        message: impl FnOnce() -> GuardedMessage,
    ) -> GroupOutcome {
        match self.hold(message) {
            Ok(outcome) => {
                self.start_ready();
                outcome.await.unwrap_or_else(|_| GroupOutcome::Sent(given_up()))
            }
            Err(message) => self.join(message).await,
        }
    }

    /// Holds the message back until the end of the tick, or returns it.
    fn hold<M>(self: &Arc<Self>, message: M) -> Result<oneshot::Receiver<GroupOutcome>, M>
    where
        M: FnOnce() -> GuardedMessage,
    {
        let mut state = self.lock();
        let Arrival { starts, is_held } = state.ticks.arrive();
        if starts {
            tokio::spawn(Arc::clone(self).count_ticks());
        }
        if is_held { Ok(state.hold(message())) } else { Err(message) }
    }

    /// Lets go on what each tick has held back, until a tick without a write.
    async fn count_ticks(self: Arc<Self>) {
        let mut runs = true;
        while runs {
            sleep(TICK).await;
            runs = self.lock().end_tick();
            self.start_ready();
        }
    }

    /// Waits until these writes were sent in one batch.
    pub(crate) async fn join_together(
        self: &Arc<Self>,
        messages: Vec<GuardedMessage>,
    ) -> SendOutcome {
        let outcome = self.lock().enter(messages);
        self.start_ready();
        match outcome.await {
            Ok(GroupOutcome::Sent(sent)) => sent,
            Ok(GroupOutcome::Alone(_)) | Err(_) => given_up(),
        }
    }

    /// Starts the writes that may be sent now.
    fn start_ready(self: &Arc<Self>) {
        let mut alone = Vec::new();
        {
            let mut state = self.lock();
            if state.together {
                return;
            }
            state.waiting.retain(|member| !member.told.is_closed());
            let solo = state.waiting.iter().position(|member| member.solo);
            if let Some(member) = solo.and_then(|index| state.waiting.remove(index)) {
                state.together = true;
                tokio::spawn(Arc::clone(self).store(vec![member]));
                return;
            }
            let bound = state.waiting.iter().any(BatchMember::is_bound);
            if bound || state.waiting.len() >= self.alone_max() {
                let members = state.disjoint();
                if members.len() >= self.alone_max() || members.iter().any(BatchMember::is_bound) {
                    state.together = true;
                    tokio::spawn(Arc::clone(self).store(members));
                    return;
                }
                // The guards overlap, so most of the writes will fail. Sent alone, each caller
                // learns it soonest.
                alone = members;
                state.alone += alone.len();
            }
            while state.alone < self.alone_max()
                && let Some(index) = state.waiting.iter().position(|member| !member.is_bound())
                && let Some(member) = state.waiting.remove(index)
            {
                state.alone += 1;
                alone.push(member);
            }
        }
        self.release(alone);
    }

    /// Lets each member be sent alone. The members are counted in `alone` already.
    fn release(self: &Arc<Self>, members: Vec<BatchMember>) {
        for member in members {
            // A caller that gave up does not use its turn, so the turn is given back.
            let _: Result<(), GroupOutcome> =
                member.told.send(GroupOutcome::Alone(SoloTurn(Arc::clone(self))));
        }
    }

    async fn store(self: Arc<Self>, members: Vec<BatchMember>) {
        let _batch = RunningBatch(Arc::clone(&self));
        match self.send(&members).await {
            SendOutcome::Stored(last) => {
                let count = count(&members);
                COMMITS_TOGETHER.add(count, [BUCKETS.label(&self.bucket)]);
                let mut revision = last - count;
                for member in members {
                    revision += member.messages.len() as u64;
                    let _: Result<(), GroupOutcome> =
                        member.told.send(GroupOutcome::Sent(SendOutcome::Stored(revision)));
                }
            }
            sent @ (SendOutcome::Refused(_) | SendOutcome::Contradicted(_)) => {
                tracing::debug!(bucket = self.bucket, "each write of a batch goes alone");
                let (bound, alone): (Vec<_>, Vec<_>) =
                    members.into_iter().partition(BatchMember::is_bound);
                let mut sent = Some(sent);
                let mut state = self.lock();
                state.alone += alone.len();
                for mut member in bound {
                    if let Some(sent) = sent.take_if(|_| member.solo) {
                        let _: Result<(), GroupOutcome> =
                            member.told.send(GroupOutcome::Sent(sent));
                    } else {
                        member.solo = true;
                        state.waiting.push_back(member);
                    }
                }
                drop(state);
                self.release(alone);
            }
            SendOutcome::NotStored(cause) => tell_members(members, SendOutcome::NotStored, &cause),
            SendOutcome::Lost(cause) => tell_members(members, SendOutcome::Lost, &cause),
        }
    }

    /// How the send of the whole batch ended. If it is stored, the revision is that of its last
    /// write.
    async fn send(&self, members: &[BatchMember]) -> SendOutcome {
        let within = self.bus.config().request_timeout;
        let mut connection = Watch::new(&self.bus);
        let sent = timeout(within, self.publish(members));
        let answer = tokio::select! {
            // Checked first: without a connection the batch is not sent.
            biased;
            answer = sent => answer.unwrap_or(Err(ExchangeError::TimedOut(within))),
            () = connection.broken() => {
                return SendOutcome::Lost(Cause::new("the connection broke"));
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return error.into(),
        };
        match read_ack(&answer) {
            Ok(Ack { seq: Some(last), count: Some(count), error: None })
                if count == self::count(members) && last >= count =>
            {
                SendOutcome::Stored(last)
            }
            Ok(Ack { error: Some(error), .. }) => judge(error),
            Ok(_) => SendOutcome::Lost(Cause::new("an acknowledgement of another batch")),
            Err(error) => SendOutcome::Lost(Cause::new(error)),
        }
    }

    /// Sends all messages, and waits for the answer to the last, which has the server store the
    /// batch.
    async fn publish(&self, members: &[BatchMember]) -> Result<async_nats::Message, ExchangeError> {
        if !self.bus.connected() {
            return Err(ExchangeError::Disconnected);
        }
        let id = format!("{:016x}", rand::rng().random::<u64>());
        let within = self.bus.config().request_timeout;
        let (messages, all) = (members.iter().flat_map(|member| &member.messages), count(members));
        for (at, message) in (1..).zip(messages) {
            let GuardedMessage { subject, headers, body, .. } = message;
            let (subject, mut headers, body) = (subject.clone(), headers.clone(), body.clone());
            headers::set(&mut headers, headers::BATCH_ID, &id);
            headers::set(&mut headers, headers::BATCH_SEQUENCE, at);
            if at == all {
                headers::set(&mut headers, headers::BATCH_COMMIT, 1);
                return self.bus.exchange(subject, headers, body, within).await;
            }
            let sent = self.bus.client().publish_with_headers(subject, headers, body).await;
            // Without one of its messages the server refuses the batch.
            sent.map_err(|error| ExchangeError::Broken(Cause::new(error)))?;
        }
        Err(ExchangeError::Subject)
    }

    /// Most writes that are sent alone at once. A batch has at least as many.
    fn alone_max(&self) -> usize {
        self.bus.config().alone_max.max(1)
    }

    fn lock(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of messages of a batch.
fn count(members: &[BatchMember]) -> u64 {
    members.iter().map(|member| member.messages.len() as u64).sum()
}

fn given_up() -> SendOutcome {
    SendOutcome::Lost(Cause::new("the batch was given up"))
}

fn tell_members(members: Vec<BatchMember>, sent: impl Fn(Cause) -> SendOutcome, cause: &Cause) {
    for member in members {
        let sent = sent(Cause::new(cause.to_string()));
        let _: Result<(), GroupOutcome> = member.told.send(GroupOutcome::Sent(sent));
    }
}

impl GroupState {
    /// Queues the messages.
    fn enter(&mut self, messages: Vec<GuardedMessage>) -> oneshot::Receiver<GroupOutcome> {
        let (member, outcome) = BatchMember::new(messages);
        self.waiting.push_back(member);
        outcome
    }

    /// Queues the message at the end of the tick.
    fn hold(&mut self, message: GuardedMessage) -> oneshot::Receiver<GroupOutcome> {
        let (member, outcome) = BatchMember::new(vec![message]);
        let bytes = member.bytes();
        self.waiting.extend(self.ticks.hold(member, bytes, (MESSAGES_MAX, BYTES_MAX)));
        outcome
    }

    /// Queues what the tick has held back. Returns whether another tick follows.
    fn end_tick(&mut self) -> bool {
        let (held, runs) = self.ticks.end();
        self.waiting.extend(held);
        runs
    }

    /// Removes the members that may share a batch, in the order of arrival.
    fn disjoint(&mut self) -> Vec<BatchMember> {
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        let (mut scopes, mut count, mut bytes) = (BTreeSet::new(), 0, 0);
        for member in self.waiting.drain(..) {
            let messages = &member.messages;
            let size = member.bytes();
            let fits = count + messages.len() <= MESSAGES_MAX && bytes + size <= BYTES_MAX;
            // A member that is too large gets a batch for itself, and the server's refusal.
            if (fits || taken.is_empty())
                && messages.iter().all(|message| is_apart(&scopes, &message.scope))
            {
                (count, bytes) = (count + messages.len(), bytes + size);
                scopes.extend(messages.iter().map(|message| message.scope.clone()));
                taken.push(member);
            } else {
                left.push_back(member);
            }
        }
        self.waiting = left;
        taken
    }
}

/// Whether no scope in `scopes` covers `scope`, or is covered by it. The scopes are apart from each
/// other, so what lies between a scope and its prefix is covered by the prefix.
fn is_apart(scopes: &BTreeSet<String>, scope: &str) -> bool {
    let before = scopes.range::<str, _>((Bound::Unbounded, Bound::Included(scope))).next_back();
    let after = scopes.range::<str, _>((Bound::Included(scope), Bound::Unbounded)).next();
    !before.is_some_and(|before| covers(before, scope))
        && !after.is_some_and(|after| covers(scope, after))
}

/// A subtree, whose scope ends with a dot, covers what is below it. A key covers itself only:
/// `node.n1` is apart from `node.n10`.
fn covers(scope: &str, other: &str) -> bool {
    scope == other || scope.ends_with('.') && other.starts_with(scope)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn scopes_that_cover_no_other_are_apart(
            scopes in prop::collection::vec("[ab.]{1,6}", 0..12),
        ) {
            let mut taken = BTreeSet::new();
            for scope in &scopes {
                let apart = taken
                    .iter()
                    .all(|other: &String| !covers(other, scope) && !covers(scope, other));
                prop_assert_eq!(is_apart(&taken, scope), apart, "{} {:?}", scope, taken);
                if apart {
                    taken.insert(scope.clone());
                }
            }
        }
    }

    #[test]
    fn a_key_is_apart_from_a_longer_one() {
        let taken = BTreeSet::from(["$KV.l.node.n1".to_owned(), "$KV.l.node.n20".to_owned()]);
        for apart in ["$KV.l.node.n10", "$KV.l.node.n2", "$KV.l.node.n1.", "$KV.l.node.n1.x"] {
            assert!(is_apart(&taken, apart), "{apart}");
        }
        for not in ["$KV.l.node.n1", "$KV.l.node.n20", "$KV.l.node.", "$KV.l."] {
            assert!(!is_apart(&taken, not), "{not}");
        }
    }

    #[test]
    fn a_volume_is_apart_from_another_and_not_from_its_own_keys() {
        let taken = BTreeSet::from(["$KV.v.ns.v1.".to_owned(), "$KV.v.ns.v3.spec".to_owned()]);
        for apart in ["$KV.v.ns.v10.", "$KV.v.ns.v2.", "$KV.v.ns.v3.claim"] {
            assert!(is_apart(&taken, apart), "{apart}");
        }
        for not in ["$KV.v.ns.v1.", "$KV.v.ns.v1.spec", "$KV.v.ns.v3.", "$KV.v.ns.", "$KV.v."] {
            assert!(!is_apart(&taken, not), "{not}");
        }
    }
}
