//! The leases of owners: `owner.hold`, `owner.yield` and `owner.list`.
//!
//! **Owns** the keys `owner.<ns>.<owner>` in the bucket of leases.
//!
//! **Promises** that a holder may retry: a lease that the same process and identity hold is
//! renewed. Any replica answers; the guard of the write lets one of two requests pass. A request
//! past its deadline writes nothing: otherwise the lease that a later one took would end too early.
//!
//! **Never** takes a lease that another identity holds under the same name for the owner's.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::lease::{LeaseStore as _, LeaseTerms};
use berth_bus::{Entry, LeaseError};
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::lease::OwnerHolder;
use berth_contract::message::owner::{
    HoldOwner, ListOwners, OwnerHeld, OwnerStub, OwnerYielded, Owners, YieldOwner,
};
use berth_contract::message::query::LongPoll;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::{Namespace, OwnerId};
use berth_service::page::{Room, after, page};
use berth_service::{clock, deadline};
use serde_json::json;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::read::Reader;
use crate::store::owner_leases::{LeaseHolder, OwnerLeases, read_holder};
use crate::store::state::{State, StateInner};

/// How long a write may take. The holder retries for as long as it wants the lease.
const WRITE_WITHIN: Duration = Duration::from_secs(2);
/// Attempts to write a lease whose key changes meanwhile.
const TRIES_MAX: usize = 3;

/// Takes the lease, or renews it.
pub async fn hold(
    state: &State,
    namespace: &Namespace,
    request: HoldOwner,
    caller: &Caller,
) -> Result<OwnerHeld, Problem> {
    let faults = request.faults();
    if !faults.is_empty() {
        return Err(Problem::bad_input(faults));
    }
    let HoldOwner { owner, holder, ttl_s } = request;
    let mut wanted =
        OwnerHolder { owner: owner.clone(), by: caller.by(), holder, since: clock::now() };
    let mut terms = LeaseTerms {
        key: key::owner_lease(namespace, &owner),
        value: json!(wanted).to_string().into(),
        ttl: Duration::from_secs(ttl_s),
        trace: caller.trace,
    };
    let mut over = None;
    for _ in 0..TRIES_MAX {
        deadline::check(caller.deadline)?;
        let within = WRITE_WITHIN.min(caller.deadline.saturating_duration_since(Instant::now()));
        match state.owners.bucket.hold(&terms, over, within).await {
            Ok(revision) => return Ok(OwnerHeld { revision }),
            Err(LeaseError::Held { holder: entry, .. }) => {
                let present = check_own(&owner, &entry, &wanted)?;
                wanted.since = present.map_or(wanted.since, |present| present.since);
                terms.value = json!(wanted).to_string().into();
                over = Some(entry.revision);
            }
            Err(LeaseError::Lost { .. }) => over = None,
            Err(error) => return Err(Problem::from(error)),
        }
    }
    let message = format!("the lease of owner {owner} changes faster than it can be taken");
    Err(Problem::new(Code::OwnerHeld, message).retryable())
}

/// The present holder, if it is the process that asks; none for a value that no holder wrote, which
/// is overwritten.
fn check_own(
    owner: &OwnerId,
    entry: &Entry,
    wanted: &OwnerHolder,
) -> Result<Option<OwnerHolder>, Problem> {
    let Some(present) = read_holder(owner, entry.value.as_deref().unwrap_or_default()) else {
        return Ok(None);
    };
    if present.holder == wanted.holder && present.by == wanted.by {
        return Ok(Some(present));
    }
    let by = present.by.map(|by| format!(" of {by}")).unwrap_or_default();
    let message = format!(
        "the lease of owner {owner} is held by process {}{by} since {}",
        present.holder, present.since
    );
    Err(Problem::new(Code::OwnerHeld, message).retryable())
}

/// Deletes the lease, if the process that asks holds it.
pub async fn give_up(
    state: &State,
    namespace: &Namespace,
    request: YieldOwner,
    caller: &Caller,
) -> Result<OwnerYielded, Problem> {
    let YieldOwner { owner, holder } = request;
    let key = key::owner_lease(namespace, &owner);
    // A lease that stays although its owner was told that it ended would keep others out until it
    // expires.
    let entry = state.owners.bucket.get_surely(&key, caller.trace).await;
    let entry = entry?;
    let Some(entry) = entry.filter(|entry| entry.value.is_some()) else {
        return Ok(OwnerYielded {});
    };
    let by = caller.by();
    let wanted = OwnerHolder { owner: owner.clone(), by, holder, since: clock::now() };
    check_own(&owner, &entry, &wanted)?;
    let value = entry.value.unwrap_or_default();
    let terms = LeaseTerms { key, value, ttl: WRITE_WITHIN, trace: caller.trace };
    deadline::check(caller.deadline)?;
    let released = state.owners.bucket.release(&terms, entry.revision).await;
    released?;
    Ok(OwnerYielded {})
}

impl StateInner {
    /// Whether this identity holds the owner's lease. That it does not is confirmed at a quorum,
    /// because its allocs then count as unowned.
    pub(super) async fn has_lease(
        &self,
        namespace: &Namespace,
        owner: &OwnerId,
        by: Option<&str>,
        trace: TraceContext,
    ) -> Result<bool, Problem> {
        let is_held = |holder: &OwnerHolder| holder.by.as_deref() == by;
        let is_mirrored =
            self.owners.mirror.read(|owners| owners.holder(namespace, owner).map(is_held));
        if is_mirrored == Some(true) {
            return Ok(true);
        }
        // The mirror may lag behind a lease that was just taken.
        let holder = self.surely_held_by(namespace, owner, trace).await?;
        Ok(matches!(holder, LeaseHolder::By(holder) if holder.as_deref() == by))
    }

    /// The holder of the lease. That there is none is confirmed at a quorum.
    pub(super) async fn surely_held_by(
        &self,
        namespace: &Namespace,
        owner: &OwnerId,
        trace: TraceContext,
    ) -> Result<LeaseHolder, Problem> {
        let key = key::owner_lease(namespace, owner);
        let entry = self.owners.bucket.get_surely(&key, trace).await;
        let entry = entry?;
        let holder = entry.and_then(|entry| read_holder(owner, &entry.value?));
        Ok(holder.map_or(LeaseHolder::None, |holder| LeaseHolder::By(holder.by)))
    }
}

/// Owners that hold a lease or have live allocs.
pub async fn list_owners(
    state: &State,
    namespace: &Namespace,
    query: ListOwners,
    caller: &Caller,
) -> Result<Owners, Problem> {
    let deadline = caller.deadline;
    let parse = |token: &str| {
        let (by, name) = token.split_once(' ')?;
        Some((OwnerId::new(name).ok()?, by.to_owned()))
    };
    let after = after(&query.page, parse)?;
    let reader = Reader::new(LongPoll::default(), deadline);
    let (allocs, leases) = tokio::join!(
        state.catch_up_with_leader(reader, &state.allocs, ">"),
        state.catch_up_with_leader(reader, &state.owners, OwnerLeases::FILTER),
    );
    allocs.and(leases)?;
    let owners = count_owners(state, namespace, &query.prefix);
    let later = |key: &&(OwnerId, String)| after.as_ref().is_none_or(|after| *key > after);
    let show = |key: &&(OwnerId, String)| owners.get(*key).cloned();
    let token = |key: &&(OwnerId, String)| format!("{} {}", key.1, key.0);
    let page = page(owners.keys().filter(later), Room::for_page(&query.page), show, token);
    Ok(Owners { owners: page.entries.into_iter().flatten().collect(), next: page.next })
}

/// The owners by name and identity. Two identities may use the same name.
fn count_owners(
    state: &State,
    namespace: &Namespace,
    prefix: &str,
) -> BTreeMap<(OwnerId, String), OwnerStub> {
    let mut owners: BTreeMap<(OwnerId, String), OwnerStub> = BTreeMap::new();
    let mut entry = |name: &OwnerId, by: &Option<String>, add: &dyn Fn(&mut OwnerStub)| {
        let key = (name.clone(), by.clone().unwrap_or_default());
        add(owners.entry(key).or_insert_with(|| OwnerStub {
            name: name.clone(),
            by: by.clone(),
            held: false,
            holder: None,
            since: None,
            live: 0,
            unowned: 0,
        }));
    };
    state.owners.mirror.read(|leases| {
        for (_, holder) in leases.iter().filter(|(their, _)| namespace.covers(their)) {
            entry(&holder.owner, &holder.by, &|stub| {
                stub.held = true;
                stub.holder = Some(holder.holder.clone());
                stub.since = Some(holder.since);
            });
        }
    });
    state.allocs.mirror.read(|allocs| {
        let live = allocs
            .iter()
            .filter(|(their, _, alloc)| namespace.covers(their) && !alloc.state.is_terminal());
        for (_, _, alloc) in live {
            let Some(owner) = &alloc.owner else { continue };
            entry(&owner.name, &alloc.by, &|stub| {
                stub.live += 1;
                stub.unowned += usize::from(owner.unowned_since.is_some());
            });
        }
    });
    owners.retain(|(name, _), _| name.as_str().starts_with(prefix));
    owners
}
