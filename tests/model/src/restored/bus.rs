//! The bucket, its restore, and the claim services that remember its former state.

use super::decide::{Decider, Question, Reports};
use super::world::{
    ALLOCS, Access, Answer, Ask, Call, Grant, Memory, Pending, Record, Registered, Service, Stream,
    World,
};
use super::{Mutation, Restore, Scenario};

/// A revision above all that were used before the restore.
const RAISED: u8 = 24;

/// How a bucket relates to the one that a service remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The bucket is the remembered one, or the first that the service sees.
    Same,
    /// The bucket is another incarnation, and the service reads it again.
    Next,
    /// The bucket must not be served.
    Lost,
}

/// How a service judges the bucket when it compares it.
pub(super) fn judge(scenario: Scenario, memory: Option<&Memory>, stream: &Stream) -> Verdict {
    if stream.access == Access::Unfinished {
        return Verdict::Lost;
    }
    let Some(memory) = memory else { return Verdict::Same };
    if stream.number > memory.number {
        return Verdict::Next;
    }
    // The newest message that the service saw must exist.
    let newest = memory.messages.len().checked_sub(1);
    let is_there = |at: usize| stream.messages.get(at) == memory.messages.get(at);
    let is_known = stream.number == memory.number && newest.is_none_or(is_there);
    if is_known || scenario.is(Mutation::ServeFallen) { Verdict::Same } else { Verdict::Lost }
}

/// The memory of a service that has read the whole bucket.
pub(super) fn read(stream: &Stream) -> Memory {
    let Stream { number, lacks, messages, record, head, .. } = stream.clone();
    Memory { number, lacks, messages, record, head }
}

impl World {
    /// Whether a service that remembers the bucket serves it.
    pub(super) fn is_served(&self, scenario: Scenario) -> bool {
        let is_accepted = self.stream.number > 0 || self.setbacks == 0;
        self.stream.access == Access::Served
            && (is_accepted || self.has_restarted || scenario.is(Mutation::ServeFallen))
    }

    /// The service compares the bucket, and reads what is new.
    pub(super) fn look(&mut self, scenario: Scenario) {
        let Service { memory, pending } = &mut self.service;
        match judge(scenario, memory.as_ref(), &self.stream) {
            Verdict::Same => *memory = Some(read(&self.stream)),
            Verdict::Next => {
                *memory = Some(read(&self.stream));
                // Writes that were sent earlier may still be stored.
                *pending = pending.take().filter(|pending| pending.is_checked);
            }
            Verdict::Lost => {}
        }
    }

    /// What the service knows of the nodes: which have mounts without a claim, and which have not
    /// compared.
    fn reports(&self, scenario: Scenario, memory: &Memory) -> Reports {
        let is_due = memory.lacks && !scenario.is(Mutation::NotCompared);
        let unreported = |at: usize| is_due && self.nodes[at].reported != memory.number;
        let counts = !scenario.is(Mutation::IgnoreMounts);
        let mounted = |at: usize| counts && self.nodes[at].is_unaccounted;
        Reports {
            mounted: std::array::from_fn(mounted),
            unreported: std::array::from_fn(unreported),
        }
    }

    /// A service decides by its memory. Returns the write that follows. A grant that needs no write
    /// is given at once.
    fn decide(
        &mut self,
        scenario: Scenario,
        decider: &mut Decider,
        memory: &Memory,
        (ask, service): (Ask, u8),
    ) -> Option<Pending> {
        let reports = self.reports(scenario, memory);
        // The service asks the leader for the alloc.
        if self.stream.access == Access::Unfinished {
            return None;
        }
        let alloc = match ask {
            Ask::Take(alloc) | Ask::Begin(alloc) => Some(alloc),
            _ => None,
        };
        let registered = alloc.map(|alloc| self.stream.allocs[usize::from(alloc)]);
        let is_wanted = registered == Some(Registered::Live);
        if matches!(ask, Ask::Take(_)) && !is_wanted {
            return None;
        }
        // Each attempt has a different name.
        let attempt = 2 * (40 * self.setbacks + memory.head) + service;
        let question = Question { record: memory.record, ask, reports, is_wanted, attempt };
        let decision = decider.decide(question)?;
        let since = alloc.map_or(0, |alloc| self.nodes[usize::from(alloc)].compared);
        if decider.step(decision).write.is_none() {
            let Ask::Take(alloc) = ask else { return None };
            // The service also asks the leader.
            let is_current = *memory == read(&self.stream);
            let is_granted = decider.is_taken(memory.record, alloc);
            if is_current && is_granted && decider.may_grant_again(memory.record, alloc, reports) {
                let epoch = decider.epoch(memory.record, alloc)?;
                self.grants.insert(Grant { alloc, epoch, since });
            }
            return None;
        }
        let last = u8::try_from(memory.messages.len()).unwrap_or(u8::MAX);
        let footing = (memory.number, last);
        let is_checked = false;
        Some(Pending { ask, decision, guard: memory.head, footing, since, is_checked })
    }

    /// The service that knows all stored records decides, and stores its decision at once.
    pub(super) fn decide_at_once(&mut self, scenario: Scenario, decider: &mut Decider, ask: Ask) {
        let memory = read(&self.stream);
        if let Some(pending) = self.decide(scenario, decider, &memory, (ask, 1)) {
            self.write(decider, &pending);
            self.go_on(decider, &pending);
        }
    }

    /// The other service decides on its memory.
    pub(super) fn decide_by_memory(&mut self, scenario: Scenario, decider: &mut Decider, ask: Ask) {
        let Some(memory) = self.service.memory.clone() else { return };
        let write = self.decide(scenario, decider, &memory, (ask, 0));
        self.service.pending = write.map(|mut pending| {
            // The mutation takes the head of the bucket for the head of its memory once.
            if scenario.is(Mutation::FromMemory) && memory.number < self.stream.number {
                pending.guard = self.stream.head;
                (pending.footing, pending.is_checked) = ((self.stream.number, 0), true);
            }
            pending
        });
    }

    /// The service compares the bucket before it sends its write.
    pub(super) fn check(&mut self, scenario: Scenario) {
        let Service { memory, pending } = &mut self.service;
        let Some(known) = memory else { return };
        let is_same = judge(scenario, Some(known), &self.stream) == Verdict::Same;
        if let Some(pending) = pending.as_mut().filter(|it| it.footing.0 == known.number) {
            pending.is_checked |= is_same;
        }
    }

    /// The write reaches the bucket, and its answer reaches the service.
    pub(super) fn store(&mut self, decider: &mut Decider) {
        let Some(pending) = self.service.pending.take() else { return };
        if self.stream.access == Access::Unfinished || self.stream.head != pending.guard {
            return;
        }
        let before = read(&self.stream);
        self.write(decider, &pending);
        let memory = &mut self.service.memory;
        if memory.as_ref() == Some(&before) {
            *memory = Some(read(&self.stream));
        }
        if self.stream.head > pending.footing.1 {
            self.go_on(decider, &pending);
        }
    }

    fn write(&mut self, decider: &mut Decider, pending: &Pending) {
        let stream = &mut self.stream;
        stream.messages.push(self.setbacks);
        stream.head = stream.last();
        stream.record = decider.store(stream.record, pending.decision, stream.head);
    }

    /// The effects of an acknowledged write.
    fn go_on(&mut self, decider: &Decider, pending: &Pending) {
        let (record, revision) = (self.stream.record, self.stream.head);
        let attempt = decider.step(pending.decision).call.as_ref();
        let attempt = attempt.and_then(|call| call.id.as_str()[1..].parse().ok());
        match (pending.ask, attempt) {
            (Ask::Take(alloc), _) => {
                if let Some(epoch) = decider.epoch(record, alloc) {
                    self.grants.insert(Grant { alloc, epoch, since: pending.since });
                }
            }
            (Ask::Begin(alloc), Some(attempt)) => {
                if let Some(epoch) = decider.epoch(record, alloc) {
                    self.calls.insert(Call::Detach { alloc, epoch, revision, attempt });
                }
            }
            (Ask::Drive, Some(attempt)) => {
                self.calls.insert(Call::Delete { attempt });
            }
            _ => {}
        }
        let settled = match pending.ask {
            Ask::Answer(alloc, attempt) => Answer::Detached { alloc, attempt },
            Ask::Settle(attempt) => Answer::Deleted { attempt },
            _ => return,
        };
        self.answers.remove(&settled);
    }

    /// The first step of a restore: `berth bus restore` removes the bucket. Another tool puts the
    /// backup in place at once.
    pub(super) fn set_back(&mut self, scenario: Scenario) {
        self.setbacks += 1;
        if scenario.restore == Restore::Ours {
            self.stream.access = Access::Unfinished;
            return;
        }
        // Every write that was sent earlier has arrived, and the service has seen all stored
        // messages.
        let Service { memory, pending } = &mut self.service;
        *memory = memory.take().map(|_| read(&self.stream));
        if let Some(pending) = pending {
            pending.is_checked = false;
        }
        if let Some(backup) = self.backup.take() {
            self.put_back(backup);
        }
    }

    /// The backup is in place, and the records of nodes are unchanged.
    fn put_back(&mut self, backup: Stream) {
        self.stream = backup;
        for node in &mut self.nodes {
            (node.reported, node.is_unaccounted) = (0, false);
        }
        self.calls.retain(|call| matches!(call, Call::Detach { .. }));
    }

    /// A new incarnation begins, above all revisions that anybody has seen: `berth bus restore`
    /// ends, or a person accepts the bucket.
    pub(super) fn begin_incarnation(&mut self, scenario: Scenario) {
        let number = self.stream.number + 1;
        if let Some(backup) = self.backup.take() {
            self.put_back(backup);
        }
        let stream = &mut self.stream;
        (stream.number, stream.lacks, stream.access) = (number, true, Access::Served);
        if !scenario.is(Mutation::NotRaised) {
            stream.messages = vec![self.setbacks; RAISED.into()];
        }
        if !scenario.is(Mutation::NotRaised) && !scenario.is(Mutation::HeadsStay) {
            stream.head = stream.last();
        }
    }

    /// An alloc is registered.
    pub(super) fn register(&mut self, scenario: Scenario, at: usize) {
        self.stream.allocs[at] = Registered::Live;
        // A service notices the restore by this record if nothing else differs.
        if scenario.restore == Restore::Stock {
            self.stream.messages.push(self.setbacks);
        }
    }

    /// An alloc ends. Its record says so as soon as it can be written.
    pub(super) fn end(&mut self, at: usize) {
        self.runs[at] = false;
        if self.is_registered(at, Registered::Live) {
            self.stream.allocs[at] = Registered::Ended;
        }
    }

    /// Whether the alloc's record has this state and can be changed.
    pub(super) fn is_registered(&self, at: usize, as_what: Registered) -> bool {
        self.stream.access == Access::Served && self.stream.allocs[at] == as_what
    }

    /// Drops whatever can have no effect any more.
    pub(super) fn normalise(&mut self, decider: &Decider) {
        let head = self.stream.head;
        let is_final = self.setbacks > 0 && self.stream.access == Access::Served;
        if is_final && self.service.pending.as_ref().is_some_and(|it| it.guard < head) {
            self.service.pending = None;
        }
        for node in &mut self.nodes {
            let is_due = |call: &Call| matches!(call, Call::Detach { .. });
            if !self.calls.iter().any(is_due) {
                node.newest_call = 0;
            }
        }
        let nodes = &self.nodes;
        self.grants.retain(|grant| nodes[usize::from(grant.alloc)].detached < grant.epoch);
        let backup = self.backup.as_ref().map(|backup| backup.record);
        let records = [Some(self.stream.record), backup];
        self.answers.retain(|answer| {
            let (Answer::Detached { attempt, .. } | Answer::Deleted { attempt }) = answer;
            records.iter().flatten().any(|record| decider.awaits(*record, *attempt))
        });
    }

    /// The requests to a service that has this record.
    pub(super) fn requests(
        &self,
        scenario: Scenario,
        decider: &Decider,
        record: Record,
    ) -> Vec<Ask> {
        let mut asks = Vec::new();
        for at in 0..ALLOCS {
            let alloc = u8::from(at > 0);
            let claim = decider.claim(record, alloc);
            let is_asked = self.grants.iter().any(|grant| grant.alloc == alloc);
            let is_free = self.nodes[at].mounted.is_none() || claim.is_none();
            if self.runs[at] && is_free && !is_asked {
                asks.push(Ask::Take(alloc));
            }
            if claim.is_some() {
                asks.push(Ask::Begin(alloc));
            }
        }
        let answers = self.answers.iter().map(|answer| match *answer {
            Answer::Detached { alloc, attempt } => Ask::Answer(alloc, attempt),
            Answer::Deleted { attempt } => Ask::Settle(attempt),
        });
        asks.extend(answers);
        if scenario.deletes {
            let is_deleting = decider.is_deleting(record);
            asks.push(if is_deleting { Ask::Drive } else { Ask::Delete });
        }
        asks
    }
}
