//! The stored messages, the messages that the lagging replica has seen, and the batch that it is
//! about to store.

use std::collections::{BTreeMap, BTreeSet};

/// One of the two volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Name {
    A,
    B,
}

pub(super) const NAMES: [Name; 2] = [Name::A, Name::B];

impl Name {
    pub(super) fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The handle by which the plugin knows a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum External {
    /// The volume that both names want.
    Shared,
    /// A volume that only `A` is registered for at times.
    Own,
}

/// A key of the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Spec(Name),
    Claim(Name),
    Handle(External),
}

/// What a guard covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Filter {
    /// Everything below a volume.
    Volume(Name),
    /// The key of a handle.
    Handle(External),
}

impl Key {
    pub(super) fn filter(self) -> Filter {
        match self {
            Self::Spec(name) | Self::Claim(name) => Filter::Volume(name),
            Self::Handle(external) => Filter::Handle(external),
        }
    }
}

/// The newest message of a key: a value ([`Values`](super::values::Values)), or a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) revision: u8,
    pub(super) value: Option<u16>,
}

pub(super) type Messages = BTreeMap<Key, Message>;

/// A state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct World {
    /// The messages on the server.
    pub(super) stored: Messages,
    /// The messages that the lagging replica has applied.
    pub(super) mirror: Messages,
    /// The messages that this replica will apply next, in order.
    pub(super) ahead: Vec<(Key, Message)>,
    /// The request that this replica works on.
    pub(super) pending: Option<Pending>,
}

/// A request to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Register(Name, External),
    Deregister(Name),
    Take(Name),
    /// A worker asks for the next call of a release.
    Begin(Name),
    /// The call of the claim's attempt succeeded.
    Answer(Name),
    /// The repair of a volume without a key.
    Reserve(Name),
    /// The repair of a key without a volume.
    Free(External, Name),
}

impl Ask {
    pub(super) fn volume(self) -> Name {
        match self {
            Self::Register(name, _)
            | Self::Deregister(name)
            | Self::Take(name)
            | Self::Begin(name)
            | Self::Answer(name)
            | Self::Reserve(name)
            | Self::Free(_, name) => name,
        }
    }
}

/// A request that the lagging replica works on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    /// Whether the other name is registered for the handle, and has been since the request began.
    pub(super) twice: bool,
    pub(super) stage: Stage,
}

/// The progress of the request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The replica asks the leader for the newest revisions below these filters, or of the whole
    /// bucket.
    Asks { all: bool, filters: BTreeSet<Filter> },
    /// The replica sends this batch.
    Sends(Batch),
}

/// Writes that are stored together, and whether a call follows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Batch {
    pub(super) writes: Vec<Write>,
    pub(super) detaches: bool,
}

/// One write of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) value: Option<u16>,
    /// The newest revision that may exist below the key's filter; `None` for a write without a
    /// guard.
    pub(super) guard: Option<u8>,
}

/// The newest revision below a filter.
pub(super) fn head(messages: &Messages, filter: Filter) -> u8 {
    let below = messages.iter().filter(|(key, _)| key.filter() == filter);
    below.map(|(_, message)| message.revision).max().unwrap_or(0)
}

impl World {
    /// Stores the batch if its guards allow it; returns what was stored.
    pub(super) fn store(&mut self, writes: &[Write]) -> Option<Vec<(Key, Message)>> {
        let holds = |write: &Write| {
            write.guard.is_none_or(|guard| guard == head(&self.stored, write.key.filter()))
        };
        if !writes.iter().all(holds) {
            return None;
        }
        let mut messages = Vec::new();
        for write in writes {
            // The revision is also above purged messages, because the server goes on counting.
            let mut newest = 0;
            self.each_revision(&mut |filter, revision| {
                if filter == write.key.filter() {
                    newest = newest.max(*revision);
                }
            });
            let message = Message { revision: newest + 1, value: write.value };
            messages.push((write.key, message));
        }
        self.stored.extend(messages.iter().copied());
        self.ahead.extend(messages.iter().copied());
        Some(messages)
    }

    /// The mirror applies the message if it is newer than the mirror's message of that key.
    pub(super) fn apply(&mut self, key: Key, message: Message) {
        let known = self.mirror.get(&key).map_or(0, |known| known.revision);
        if message.revision > known {
            self.mirror.insert(key, message);
        }
    }

    /// The mirror applies the next message.
    pub(super) fn advance(&mut self) {
        if !self.ahead.is_empty() {
            let (key, message) = self.ahead.remove(0);
            self.apply(key, message);
        }
    }

    /// The mirror applies everything up to the newest message below a filter.
    pub(super) fn reach(&mut self, filter: Filter) {
        while self.ahead.iter().any(|(key, _)| key.filter() == filter) {
            self.advance();
        }
    }

    /// The mirror applies everything.
    pub(super) fn reach_all(&mut self) {
        while !self.ahead.is_empty() {
            self.advance();
        }
    }

    /// Makes worlds that behave alike equal: it drops markers that no rule sees, and turns
    /// revisions into ranks below their filter, because no rule compares revisions of two filters.
    pub(super) fn normalise(&mut self) {
        // The newest marker of a volume stays (decision 0022).
        let stored = self.stored.clone();
        self.stored.retain(|key, message| {
            message.value.is_some() || message.revision == head(&stored, key.filter())
        });
        // A projection forgets a volume of which nothing is left.
        let mirror = self.mirror.clone();
        let is_alive = |filter: Filter| {
            mirror.iter().any(|(key, message)| key.filter() == filter && message.value.is_some())
        };
        let ahead = &self.ahead;
        self.mirror.retain(|key, message| {
            let is_overtaken = ahead.iter().any(|(other, _)| other == key);
            let is_head = message.revision == head(&mirror, key.filter());
            message.value.is_some() || is_overtaken || (is_head && is_alive(key.filter()))
        });
        let mut revisions: BTreeMap<Filter, BTreeSet<u8>> = BTreeMap::new();
        self.each_revision(&mut |filter, revision| {
            revisions.entry(filter).or_default().insert(*revision);
        });
        self.each_revision(&mut |filter, revision| {
            let below = revisions.get(&filter).into_iter().flatten();
            let lower = below.filter(|other| 0 < **other && **other <= *revision).count();
            *revision = u8::try_from(lower).unwrap_or(u8::MAX);
        });
    }

    fn each_revision(&mut self, change: &mut impl FnMut(Filter, &mut u8)) {
        for (key, message) in self.stored.iter_mut().chain(self.mirror.iter_mut()) {
            change(key.filter(), &mut message.revision);
        }
        for (key, message) in &mut self.ahead {
            change(key.filter(), &mut message.revision);
        }
        if let Some(Pending { stage: Stage::Sends(batch), .. }) = &mut self.pending {
            for write in &mut batch.writes {
                let filter = write.key.filter();
                write.guard.iter_mut().for_each(|guard| change(filter, guard));
            }
        }
    }
}
