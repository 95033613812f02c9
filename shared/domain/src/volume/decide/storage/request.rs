//! Requests that change a volume at its storage. Each writes what is to be done; the volumewatcher
//! then drives the calls (rule 14).

use std::collections::BTreeMap;

use crate::volume::storage::{Expansion, Operation, Stage, StorageLife, StorageProgress, Work};
use crate::volume::{Context, Refusal, Step, Volume, VolumeSpec};

/// Creates a volume: stores the spec, and what the plugin is to be asked for. The same request
/// again changes nothing, unless the volume is being deleted.
pub(in crate::volume) fn create(
    volume: &Volume,
    wanted: &VolumeSpec,
    context: &Context,
) -> Result<Step, Refusal> {
    if let Some(current) = &volume.spec {
        let doomed = Work::Create { doomed: true };
        let is_doomed = current.operation().is_some_and(|operation| operation.work == doomed);
        // It is about to be gone: that nothing had to change would promise that it stays.
        current.check_open()?;
        return match differing_fields(current, wanted) {
            fields if !fields.is_empty() => Err(Refusal::Exists { stage: current.stage(), fields }),
            _ if is_doomed || current.stage() == Stage::Deleting => {
                Err(Refusal::not_ready(current))
            }
            _ => Ok(Step::nothing()),
        };
    }
    // The new volume would take over the claims of the old one, which is another at the storage.
    if volume.holders().next().is_some() {
        return Err(Refusal::OtherVolumesClaims { holders: volume.holders().collect() });
    }
    let first_use = wanted.provision().is_some_and(|provision| provision.first_use);
    let work = Work::Create { doomed: false };
    let operation = (!first_use).then(|| Operation::new(work, context.now));
    let spec = VolumeSpec { closing: None, create_index: 0, ..wanted.clone() };
    let storage = StorageLife { operation, ..spec.life() };
    Ok(Step::put_spec(spec.living(storage)))
}

/// The fields in which a volume differs from a request to create it. What the plugin returned was
/// not requested, so it is not compared.
fn differing_fields(current: &VolumeSpec, wanted: &VolumeSpec) -> Vec<&'static str> {
    let (Some(theirs), Some(ours)) = (current.provision(), wanted.provision()) else {
        return vec!["external_id"];
    };
    let returned = ["external_id", "topology", "capacity_bytes", "context"];
    // An older version took all uses of a class for a request that named none.
    let is_of_class =
        theirs.class.is_some() && current.capabilities.starts_with(&wanted.capabilities);
    let mut fields = current.differing_fields(wanted);
    fields.retain(|field| !(returned.contains(field) || is_of_class && *field == "capability"));
    fields.extend(theirs.differing_fields(ours));
    fields
}

/// Deletes the volume at its storage (rules 20 and 21).
pub(in crate::volume) fn delete(
    volume: &Volume,
    reason: &str,
    context: &Context,
) -> Result<Step, Refusal> {
    let spec = volume.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
    if !volume.claims.is_empty() {
        return Err(Refusal::ClaimsLive { holders: volume.claims.iter().collect() });
    }
    if let Some(unfinished) = volume.unfinished_snapshot() {
        return Err(unfinished);
    }
    context.check_not_copied()?;
    // The volume of another registration would be destroyed.
    context.check_registered_once()?;
    // A workload whose claim was lost may write on.
    if spec.stage() != Stage::Deleting {
        context.check_unmounted()?;
    }
    let mut storage = spec.life();
    match (spec.stage(), &mut storage.operation) {
        (Stage::Unused | Stage::Failed, _) if spec.external_id.is_none() => {
            return Ok(Step::delete_spec());
        }
        (Stage::Deleting, _) => return Ok(Step::nothing()),
        (Stage::Creating, Some(Operation { work: Work::Create { doomed }, progress, .. })) => {
            if !progress.may_have_acted() {
                return Ok(Step::delete_spec());
            }
            if *doomed {
                return Ok(Step::nothing());
            }
            *doomed = true;
        }
        (_, operation) => {
            let before = operation.take();
            let progress = before.as_ref().map(|before| before.progress.replaced());
            let replaced = before.map(|before| Box::new(before.work));
            let work = Work::Delete { reason: reason.to_owned(), replaced };
            let progress = progress.unwrap_or_default();
            *operation = Some(Operation { progress, ..Operation::new(work, context.now) });
        }
    }
    Ok(Step::put_spec(spec.living(storage)))
}

/// Expansions that may be replaced one by another before the plugin has done the first.
const EXPANSIONS_MAX: usize = 8;

/// What is known of the plugin when an expansion is requested.
pub(in crate::volume) struct ExpansionWish {
    pub required_bytes: u64,
    pub limit_bytes: Option<u64>,
    pub offline: bool,
    pub node_only: bool,
    pub when_free: bool,
}

/// Expands the volume (rule 22). A volume that is large enough is left as it is.
pub(in crate::volume) fn expand(
    volume: &Volume,
    wish: &ExpansionWish,
    context: &Context,
) -> Result<Step, Refusal> {
    let spec = volume.ready_spec()?;
    context.check_registered_once()?;
    let required_bytes = wish.required_bytes;
    let mut storage = spec.life();
    // The plugin may have made it larger than was required.
    let is_same = match &storage.operation {
        Some(Operation { work: Work::Expand(now), .. }) => {
            now.required_bytes == required_bytes
                && now.limit_bytes == wish.limit_bytes
                && now.node_only == wish.node_only
        }
        Some(_) => false,
        None => storage.expanded_for == Some(required_bytes),
    };
    if is_same {
        return Ok(Step::nothing());
    }
    if let Some(capacity) = spec.capacity_bytes.filter(|capacity| *capacity > required_bytes) {
        return Err(Refusal::Shrinks { capacity, required: required_bytes });
    }
    let mut progress = StorageProgress::default();
    let (mut node, mut replaced) = (None, None);
    match &storage.operation {
        // A larger size replaces a smaller one. Each node is asked again for the larger one.
        Some(Operation { work: Work::Expand(now), progress: known, .. })
            if (now.required_bytes < required_bytes || now.node_only != wish.node_only)
                && now.required_bytes <= required_bytes
                && now.all_replaced().count() < EXPANSIONS_MAX =>
        {
            progress = known.replaced();
            // Rule 3: the node that is called.
            node.clone_from(&now.node);
            replaced = Some(Box::new(now.clone()));
        }
        Some(operation) => return Err(Refusal::under_way(operation)),
        None if spec.capacity_bytes == Some(required_bytes) => return Ok(Step::nothing()),
        None => {}
    }
    if wish.offline && !wish.when_free && volume.holders().next().is_some() {
        return Err(Refusal::InUse { holders: volume.holders().collect() });
    }
    let work = Work::Expand(Expansion {
        required_bytes,
        limit_bytes: wish.limit_bytes,
        offline: wish.offline,
        node_only: wish.node_only,
        replaced,
        node,
        ..Expansion::default()
    });
    storage.operation = Some(Operation { progress, ..Operation::new(work, context.now) });
    Ok(Step::put_spec(spec.living(storage)))
}

/// Changes the mutable parameters of the volume. Parameters that already have these values are left
/// as they are.
pub(in crate::volume) fn modify(
    volume: &Volume,
    parameters: &BTreeMap<String, String>,
    context: &Context,
) -> Result<Step, Refusal> {
    let spec = volume.ready_spec()?;
    context.check_registered_once()?;
    let mut storage = spec.life();
    match &storage.operation {
        Some(Operation { work: Work::Modify { parameters: now, .. }, .. }) if now == parameters => {
            return Ok(Step::nothing());
        }
        Some(operation) if volume.expansion_at_next_mount(context).is_none() => {
            return Err(Refusal::under_way(operation));
        }
        Some(_) | None => {}
    }
    if parameters.iter().all(|(key, value)| storage.mutable.get(key) == Some(value)) {
        return Ok(Step::nothing());
    }
    let replaced = volume.expansion_at_next_mount(context).cloned().map(Box::new);
    let work = Work::Modify { parameters: parameters.clone(), replaced };
    storage.operation = Some(Operation::new(work, context.now));
    Ok(Step::put_spec(spec.living(storage)))
}
