//! `berth volume expand`, `berth volume modify`

use berth_contract::message::storage::{Expand, Modify, StorageChanged, StorageWait};
use berth_contract::message::volume::VolumeStatus;
use berth_contract::verb;
use berth_domain::size::Size;

use super::change::{Following, deadline};
use super::new_volume::ArgFaults;
use crate::args::{Global, VolumeExpand, VolumeModify};
use crate::failure::Failure;
use crate::session::Session;
use crate::size;
use crate::storage::StorageGoal;

/// Makes a volume larger.
pub async fn expand(args: &VolumeExpand, global: &Global) -> Result<(), Failure> {
    let (size, limit) = read_sizes(args)?;
    let session = &Session::open(global).await?;
    let until = deadline(session);
    let body = Expand { id: args.id.clone(), size, limit, when_free: args.when_free };
    let changed = session.ask_service::<verb::VolumeExpand>(&session.namespace, &body).await?;
    let goal = StorageGoal::Expanded { bytes: size.bytes() };
    let namespace = &session.namespace;
    let following = Following { session, namespace, goal: &goal, wait: args.wait, until };
    following.finish(&args.id, changed, expanded_text).await
}

fn read_sizes(args: &VolumeExpand) -> Result<(Size, Option<Size>), Failure> {
    let mut faults = ArgFaults::default();
    let size = faults.size("SIZE", &args.size);
    let limit = args.limit.as_ref().and_then(|limit| faults.size("--limit", limit));
    if let (Some(size), Some(limit)) = (size, limit)
        && limit < size
    {
        faults.add("--limit", "is smaller than the new size");
    }
    faults.check("volume expand")?;
    // Both texts were checked as sizes already.
    let read = |bytes: u64| Size::new(bytes).map_err(|fault| Failure::usage(fault, "see --help"));
    Ok((read(size.unwrap_or_default())?, limit.map(read).transpose()?))
}

fn expanded_text(changed: &StorageChanged, volume: Option<&VolumeStatus>) -> String {
    let StorageChanged { id, namespace, changed, .. } = changed;
    let name = format!("volume {namespace}/{id}");
    let Some(volume) = volume else { return format!("{name} is being expanded") };
    let size = volume.capacity_bytes.map(size::short).unwrap_or_default();
    let operation = volume.storage.as_ref().and_then(|it| it.operation.as_ref());
    let waits_for = operation.and_then(|operation| operation.waits_for);
    if waits_for == Some(StorageWait::NextStaging) {
        let to = operation.and_then(|operation| operation.to_bytes).map(size::short);
        let to = to.map(|to| format!(" to {to}")).unwrap_or_default();
        return format!("{name} grows{to} at its next mount");
    }
    let waits_for = waits_for
        .map(|waits_for| format!(" at its storage; it waits for {}", waits_for.describe()));
    let waits_for = waits_for.unwrap_or_default();
    match changed {
        true => format!("{name} has {size} now{waits_for}"),
        false => format!("{name} has {size} already{waits_for}"),
    }
}

/// Changes mutable parameters of a volume.
pub async fn modify(args: &VolumeModify, global: &Global) -> Result<(), Failure> {
    let mut faults = ArgFaults::default();
    let parameters = faults.pairs("parameter", &args.parameters);
    faults.check("volume modify")?;
    let session = &Session::open(global).await?;
    let until = deadline(session);
    let body = Modify { id: args.id.clone(), parameters: parameters.clone() };
    let changed = session.ask_service::<verb::VolumeModify>(&session.namespace, &body).await?;
    let goal = StorageGoal::Modified(parameters);
    let namespace = &session.namespace;
    let following = Following { session, namespace, goal: &goal, wait: args.wait, until };
    following.finish(&args.id, changed, modified_text).await
}

fn modified_text(changed: &StorageChanged, volume: Option<&VolumeStatus>) -> String {
    let StorageChanged { id, namespace, changed, .. } = changed;
    match (volume, changed) {
        (None, _) => format!("volume {namespace}/{id} is being changed"),
        (Some(_), true) => format!("volume {namespace}/{id} is changed"),
        (Some(_), false) => format!("volume {namespace}/{id} was so already"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(size: &str, limit: Option<&str>) -> Result<(u64, Option<u64>), String> {
        let args = VolumeExpand {
            id: berth_domain::VolumeId::new("data").unwrap(),
            size: size.to_owned(),
            limit: limit.map(str::to_owned),
            when_free: false,
            wait: crate::args::WaitArgs::default(),
        };
        let read = read_sizes(&args);
        read.map(|(size, limit)| (size.bytes(), limit.map(Size::bytes)))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn both_sizes_are_read_and_all_their_faults_told() {
        assert_eq!(sizes("2KiB", Some("3KiB")), Ok((2048, Some(3072))));
        let refusal = sizes("-1GiB", Some("7")).unwrap_err();
        assert!(refusal.contains("SIZE -1GiB is less than 0"), "{refusal}");
        assert!(refusal.contains("--limit 7 has no unit"), "{refusal}");
        let refusal = sizes("2KiB", Some("1KiB")).unwrap_err();
        assert!(refusal.contains("--limit is smaller than the new size"), "{refusal}");
    }
}
