//! Checks a command to one volume against other records, decided with it from one mirror; pure.
//!
//! **Owns** the checks against a class, its quota and the source of a copy.
//!
//! **Promises** that what was checked still holds at the moment of the write: the batch also writes
//! the source of a copy unchanged, under its guard, and the guard of the quota.

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_domain::class::ClassRefusal;
use berth_domain::volume::storage::{Origin, SnapshotState, Stage};
use berth_domain::volume::{CallOwner, Command, Step, Volume, VolumeSpec, Write};
use berth_domain::{ClassId, Namespace, VolumeKey};
use berth_service::projection::Volumes;

use crate::store::handle::SideWrite;

/// Volumes that are being created as copies of what the command deletes, deregisters or renames.
pub fn copies_of(volumes: &Volumes, volume: &VolumeKey, command: &Command) -> Vec<String> {
    let snapshot = match command {
        Command::Delete { .. } | Command::Deregister { .. } | Command::Register(_) => None,
        Command::Begin(begin) if begin.owner == CallOwner::Volume => None,
        Command::DeleteSnapshot { snapshot, .. } => Some(snapshot.clone()),
        _ => return Vec::new(),
    };
    volumes.copies().copies_of(&(volume.clone(), snapshot))
}

/// Refuses a creation or an expansion that the class, its quota or the source does not allow.
pub fn check_command(
    volumes: &Volumes,
    volume: &VolumeKey,
    now: &Volume,
    command: &Command,
) -> Result<(), Problem> {
    match command {
        // A repeated request gets the earlier answer.
        Command::Create(spec) if now.spec.is_none() => {
            if let Some(origin) = spec.provision().and_then(|provision| provision.origin.as_ref()) {
                check_origin(volumes, &volume.namespace, origin)?;
            }
            let bytes = spec.provision().map_or(0, |provision| provision.required_bytes);
            check_quota(volumes, volume, spec, 1, bytes)
        }
        Command::Expand { required_bytes, .. } => {
            let Some(spec) = &now.spec else { return Ok(()) };
            let class = spec.provision().and_then(|provision| provision.class.as_ref());
            let class_found =
                class.and_then(|id| Some((id, volumes.classes().get(id)?.class.as_ref().ok()?)));
            if let Some((id, class_record)) = class_found {
                let checked = class_record.size(Some(*required_bytes));
                checked.map_err(|refusal| refuse_by_class(id, &volume.namespace, &refusal))?;
            }
            let more = required_bytes.saturating_sub(spec.counted_bytes());
            check_quota(volumes, volume, spec, 0, more)
        }
        _ => Ok(()),
    }
}

fn check_origin(volumes: &Volumes, namespace: &Namespace, origin: &Origin) -> Result<(), Problem> {
    let source = VolumeKey::new(namespace.clone(), origin.volume.clone());
    let source_volume = volumes.get(&source).map(|subtree| &subtree.volume);
    let is_same = |source_volume: &Volume| match &origin.snapshot {
        None => source_volume.spec.as_ref().is_some_and(|spec| {
            spec.stage() == Stage::Ready && spec.external_id(&source.volume) == origin.external_id
        }),
        Some(id) => source_volume.snapshots.get(id).is_some_and(|snapshot| {
            snapshot.state == SnapshotState::Ready
                && snapshot.external_id.as_ref() == Some(&origin.external_id)
        }),
    };
    if source_volume.is_some_and(is_same) {
        return Ok(());
    }
    let name = match &origin.snapshot {
        None => source.to_string(),
        Some(snapshot) => format!("{source}@{snapshot}"),
    };
    let message = format!("the source {name} was deleted or changed at the same time");
    Err(Problem::new(Code::Changed, message).retryable())
}

fn check_quota(
    volumes: &Volumes,
    volume: &VolumeKey,
    spec: &VolumeSpec,
    more_volumes: u64,
    more: u64,
) -> Result<(), Problem> {
    let class = spec.provision().and_then(|provision| provision.class.as_ref());
    let Some(id) = class.filter(|_| more_volumes > 0 || more > 0) else { return Ok(()) };
    let Some(class) = volumes.classes().get(id) else { return Ok(()) };
    let class = class.class.as_ref().map_err(UnreadableRecord::problem)?;
    if class.quota.is_unlimited() {
        return Ok(());
    }
    let used = volumes.index().class_use(id, &volume.namespace);
    let checked = class.check_quota(used, more_volumes, more);
    checked.map_err(|refusal| refuse_by_class(id, &volume.namespace, &refusal))
}

/// The problem of a request that the class does not allow.
pub fn refuse_by_class(id: &ClassId, namespace: &Namespace, refusal: &ClassRefusal) -> Problem {
    let status = format!(
        "`berth class status {}{}`",
        hint::quoted(id.as_str()),
        hint::namespace_option(namespace)
    );
    let (code, next) = match refusal {
        ClassRefusal::Quota { .. } => (
            Code::QuotaExceeded,
            format!(
                "delete volumes that are not needed, or ask the fleet's operator for more; \
                 {status} shows what is used"
            ),
        ),
        ClassRefusal::Namespace | ClassRefusal::Size { .. } => {
            (Code::ClassRefused, format!("see what it allows with {status}"))
        }
    };
    Problem::new(code, format!("class {id}: {refusal}")).next(next)
}

/// The writes beside a creation or an expansion: its source unchanged, and the guard of its quota.
pub fn quota_guard(
    volumes: &Volumes,
    volume: &VolumeKey,
    command: &Command,
    step: &Step,
) -> Option<SideWrite> {
    let (Command::Create(_) | Command::Expand { .. }, Some(Write::PutSpec(spec))) =
        (command, &step.write)
    else {
        return None;
    };
    let id = spec.provision()?.class.as_ref()?;
    let class = volumes.classes().get(id)?.class.as_ref().ok()?;
    let namespace = volume.namespace.clone();
    let used = volumes.index().class_use(id, &namespace);
    (!class.quota.is_unlimited()).then(|| SideWrite::Quota(id.clone(), namespace, used))
}

#[cfg(test)]
mod tests {
    use berth_domain::class::{ClassUse, SizeLimits};

    use super::*;

    #[test]
    fn a_refusal_by_a_class_names_the_command_that_shows_the_class() {
        let (id, namespace) = ("very fast".parse().unwrap(), "team-a".parse().unwrap());
        let limits = SizeLimits { max_bytes: Some(1 << 20), ..SizeLimits::default() };
        let size = ClassRefusal::Size { required: 1 << 30, limits };
        let problem = refuse_by_class(&id, &namespace, &size);
        assert_eq!(problem.code, Code::ClassRefused);
        let command = "`berth class status 'very fast' --namespace team-a`";
        assert!(problem.next.contains(command), "{problem:?}");
        let (used, quota) = (ClassUse::default(), berth_domain::class::Quota::default());
        let quota = ClassRefusal::Quota { used, quota, more: 1 };
        let problem = refuse_by_class(&id, &namespace, &quota);
        assert_eq!(problem.code, Code::QuotaExceeded);
        assert!(problem.next.contains(command), "{problem:?}");
    }
}
