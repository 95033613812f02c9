//! The writes of one transition, and the revisions that guard them.

use std::collections::BTreeMap;

use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_contract::{key, record};
use berth_domain::VolumeKey;
use berth_domain::volume::{HandleOwner, Write};
use bytes::Bytes;

use crate::store::handle::SideWrite;

/// The revisions that guard a transition, and the writes beside its own; as far as this replica
/// knows.
#[derive(Debug, Default)]
pub struct Batch {
    /// The volume's newest revision.
    pub head: u64,
    /// The writes beside its own, each with the revision of its guard.
    pub beside: Vec<(u64, SideWrite)>,
}

impl Batch {
    pub fn takes_handle(&self) -> bool {
        self.beside.iter().any(|(_, write)| matches!(write, SideWrite::Own(_)))
    }

    /// All writes of a transition, its own first. If the leader was asked for a guard's revision,
    /// that one is used instead of the mirror's.
    pub fn guarded_writes(
        &self,
        volume: &VolumeKey,
        (write, trail): (&Write, Option<Trail>),
        heads: &Heads,
        trace: TraceContext,
    ) -> serde_json::Result<Vec<GuardedWrite>> {
        let mut writes = vec![GuardedWrite::own(volume, write, trail, self.head, trace)?];
        for (revision, beside) in &self.beside {
            writes.push(GuardedWrite::beside(volume, beside, *revision, trace)?);
        }
        for guarded in &mut writes {
            guarded.revision =
                heads.known.get(&guarded.filter).copied().unwrap_or(guarded.revision);
        }
        Ok(writes)
    }
}

/// The newest revisions, as the leader answered. They may be lower than the mirror's after a marker
/// was purged: then the keys below were read again, and the guard uses the lower revision.
#[derive(Debug, Default)]
pub struct Heads {
    /// By the filter of the guard. The mirror has caught up with each of them.
    pub known: BTreeMap<String, u64>,
    /// Whether the mirror has caught up with all volumes.
    pub all: bool,
}

impl Heads {
    pub fn were_asked(&self, all: bool) -> bool {
        !self.known.is_empty() && (self.all || !all)
    }
}

/// The schema of the record that the write stores.
pub fn schema_of(write: &Write) -> u32 {
    match write {
        Write::PutSpec(spec) => record::schema_of_spec(spec),
        Write::PutSnapshot(..) => record::SCHEMA_STORAGE,
        Write::DeleteSpec
        | Write::PutClaim(..)
        | Write::DeleteClaim(_)
        | Write::DeleteSnapshot(_) => record::SCHEMA,
    }
}

/// One write of a batch, with its guard. A write without a value is a delete.
pub struct GuardedWrite {
    pub key: String,
    pub value: Option<Bytes>,
    pub filter: String,
    pub revision: u64,
}

impl GuardedWrite {
    pub fn own(
        volume: &VolumeKey,
        write: &Write,
        trail: Option<Trail>,
        revision: u64,
        trace: TraceContext,
    ) -> serde_json::Result<Self> {
        let trace_id = || Some(trace.trace_id());
        let (key, value) = match write {
            Write::PutSpec(spec) => (key::spec(volume), Some(record::write_spec(spec, trace_id()))),
            Write::DeleteSpec => (key::spec(volume), None),
            Write::PutClaim(alloc, claim) => {
                let value = match trail {
                    Some(trail) => record::write_claim(claim, trail),
                    None => record::write(claim, trace_id()),
                };
                (key::claim(volume, alloc), Some(value))
            }
            Write::DeleteClaim(alloc) => (key::claim(volume, alloc), None),
            Write::PutSnapshot(id, snapshot) => {
                let value = record::write_snapshot(snapshot, trace_id());
                (key::snapshot(volume, id), Some(value))
            }
            Write::DeleteSnapshot(id) => (key::snapshot(volume, id), None),
        };
        let value = value.transpose()?.map(Bytes::from);
        Ok(Self { key, value, filter: key::subtree(volume), revision })
    }

    pub fn beside(
        volume: &VolumeKey,
        write: &SideWrite,
        revision: u64,
        trace: TraceContext,
    ) -> serde_json::Result<Self> {
        let trace_id = || Some(trace.trace_id());
        let (key, value) = match write {
            SideWrite::Fence(other, spec) => {
                let spec = spec.as_ref().map(|spec| record::write_spec(spec, trace_id()));
                (key::spec(other), spec)
            }
            SideWrite::Free(handle) => (key::handle(handle), None),
            SideWrite::Quota(class, namespace, used) => {
                (key::quota(class, namespace), Some(record::write(used, trace_id())))
            }
            SideWrite::Own(handle) => {
                let VolumeKey { namespace, volume } = volume.clone();
                let owner = HandleOwner { namespace, volume };
                (key::handle(handle), Some(record::write(owner, trace_id())))
            }
        };
        let value = value.transpose()?.map(Bytes::from);
        Ok(Self { key, value, filter: write.filter(), revision })
    }
}
