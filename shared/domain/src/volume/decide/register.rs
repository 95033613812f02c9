//! Registering and deregistering: rule 15, A3 to A5.

use crate::NodeId;
use crate::volume::storage::Stage;
use crate::volume::{Closing, Context, Refusal, Step, Volume, VolumeSpec};

/// Fields that may change while the volume is claimed. They take effect at the next claim, or are
/// for people only. Secrets take effect at the next call: after a password change the operator must
/// be able to store the new one, or no claim could be released.
const SAFE_WHILE_CLAIMED: [&str; 3] = ["name", "capacity_bytes", "secrets"];

/// Fields that the plugin determined when it created the volume.
const RETURNED: [&str; 6] =
    ["plugin", "external_id", "topology", "capacity_bytes", "parameters", "context"];

/// Fields that may say at which storage the volume is.
const SAYS_WHERE: [&str; 3] = ["topology", "parameters", "context"];

/// Registers a volume. Idempotent for the same spec (A4). An update writes no claim: claims are
/// other keys under the same guard.
///
/// A handle that another volume has is refused. A volume that is already registered twice may be
/// updated as long as its handle stays.
pub(super) fn register(
    volume: &Volume,
    spec: &VolumeSpec,
    context: &Context,
) -> Result<Step, Refusal> {
    let has_handle = |current: &VolumeSpec| {
        current.plugin == spec.plugin && current.external_id == spec.external_id
    };
    // The life at the storage is not the caller's to change. Another handle is another life.
    let known = volume.spec.as_ref().filter(|current| has_handle(current));
    let storage = known.and_then(|current| current.storage.clone());
    let home = home_after(known, spec);
    let spec = &VolumeSpec { storage, ..spec.clone() }.at_home(home);
    if !context.handle.others.is_empty() && !volume.spec.as_ref().is_some_and(has_handle) {
        return Err(Refusal::HandleTaken { others: context.handle.others.clone() });
    }
    let Some(current) = &volume.spec else {
        // A claim that an earlier version wrote does not say of which volume it is. Its
        // registration may be restored: that is the way out.
        let own = context.handle.own.as_ref();
        if volume.holders().any(|(_, claim)| claim.is_of_other_than(own)) {
            return Err(volume.other_volumes_claims(context));
        }
        return Ok(Step::put_spec(VolumeSpec { closing: None, create_index: 0, ..spec.clone() }));
    };
    current.check_open()?;
    // Under its other name it could be deleted meanwhile.
    if !has_handle(current) {
        if let Some(unfinished) = volume.unfinished_snapshot() {
            return Err(unfinished);
        }
        context.check_not_copied()?;
        context.check_unmounted()?;
    }
    let mut fields = current.differing_fields(spec);
    // It is about to be gone: that nothing had to change would promise that it stays.
    if fields.is_empty() && current.stage() != Stage::Deleting {
        return Ok(Step::nothing());
    }
    if current.stage() != Stage::Ready {
        return Err(Refusal::not_ready(current));
    }
    let returned: Vec<_> =
        fields.iter().copied().filter(|field| RETURNED.contains(field)).collect();
    if !returned.is_empty() {
        if current.provision().is_some() {
            return Err(Refusal::Provisioned { fields: returned });
        }
        // Its next call would change another volume at the storage than the one it began with.
        if let Some(operation) = volume.operation_at_storage(context) {
            return Err(Refusal::under_way(operation));
        }
    }
    if !volume.claims.is_empty() {
        fields.retain(|field| !SAFE_WHILE_CLAIMED.contains(field));
        if !fields.is_empty() {
            return Err(Refusal::UnsafeUpdate { fields, holders: volume.claims.iter().collect() });
        }
    }
    Ok(Step::put_spec(VolumeSpec {
        closing: None,
        create_index: current.create_index,
        ..spec.clone()
    }))
}

/// The home of a volume that is registered so: what the plugin's answers showed now. If they showed
/// nothing, the known one stays, as long as nothing says that the volume is elsewhere. The home of
/// a volume that Berth created stays.
fn home_after(known: Option<&VolumeSpec>, spec: &VolumeSpec) -> Option<NodeId> {
    let shown = spec.home();
    let moves = |known: &VolumeSpec| {
        known.differing_fields(spec).iter().any(|field| SAYS_WHERE.contains(field))
    };
    let kept = known.filter(|known| !moves(known)).and_then(VolumeSpec::home);
    let is_created = known.is_some_and(|known| known.provision().is_some());
    if is_created { kept } else { shown.or(kept) }.cloned()
}

/// Stores the spec again, so that the key of its handle is written: an older version wrote none.
/// Two registrations of one handle are never granted, so neither gets the key.
pub(super) fn reserve(volume: &Volume, context: &Context) -> Result<Step, Refusal> {
    let spec = volume.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
    context.check_registered_once()?;
    Ok(Step::put_spec(spec.clone()))
}

/// Deregisters a volume that nothing uses. With claims it is refused, and the refusal names them.
/// With `force` the volume closes instead: it takes no new claims, and is deregistered once its
/// last claim is gone and it is mounted nowhere. The claims stay until their allocs end.
pub(super) fn deregister(
    volume: &Volume,
    force: bool,
    reason: &str,
    context: &Context,
) -> Result<Step, Refusal> {
    let spec = volume.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
    if !force {
        check_unneeded(volume, context)?;
    }
    // The other registration of a volume keeps its mounts from other nodes.
    let is_kept_by_other = force && !context.handle.others.is_empty();
    let may_be_mounted = !context.mounts.is_empty() && !is_kept_by_other;
    if volume.claims.is_empty() && !may_be_mounted {
        // Even by force: registered again, the volume could be claimed beside that call.
        if let Some(busy) = volume.busy_at_storage(context.now, &context.policy) {
            return Err(busy.refusal(None));
        }
        return Ok(Step::delete_spec());
    }
    if spec.closing.is_some() {
        return Ok(Step::nothing());
    }
    if !force {
        context.check_unmounted()?;
        return Err(Refusal::ClaimsLive { holders: volume.claims.iter().collect() });
    }
    let closing = Some(Box::new(Closing { since: context.now, reason: reason.to_owned() }));
    Ok(Step::put_spec(VolumeSpec { closing, ..spec.clone() }))
}

/// Refuses to forget a volume that a change at its storage needs, also one that is closing. Force
/// overrides this.
fn check_unneeded(volume: &Volume, context: &Context) -> Result<(), Refusal> {
    // What the operation leaves at the storage would be on no record.
    if let Some(operation) = volume.operation_at_storage(context) {
        return Err(Refusal::under_way(operation));
    }
    // Under another name the source could be deleted meanwhile.
    if let Some(unfinished) = volume.unfinished_snapshot() {
        return Err(unfinished);
    }
    context.check_not_copied()
}
