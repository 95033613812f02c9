//! Allocs: in a list, and one with its claims.

use berth_contract::message::alloc::{AllocStatus, AllocStub};
use berth_contract::message::owner::Owners;
use berth_domain::alloc::VolumeRequest;
use berth_domain::volume::MountSummary;
use berth_domain::{Namespace, OwnerId, Timestamp, VolumeId};

use super::list::{Column, Listed, list};
use super::{flag_count, last_refusal};
use crate::span::ago;
use crate::table::{Table, pairs};

impl Listed for AllocStub {
    const COLUMNS: &'static [Column<Self>] = &[
        ("ID", |alloc, _| alloc.id.to_string()),
        ("STATE", |alloc, _| alloc.state.to_string()),
        ("NODE", |alloc, _| alloc.node.to_string()),
        ("SINCE", |alloc, now| ago(alloc.since, now)),
        ("OWNER", |alloc, now| owner(alloc.owner.as_ref(), alloc.unowned_since, now)),
        ("VOLUMES", |alloc, _| volumes(alloc)),
        ("CLAIMS", |alloc, _| alloc.claims.to_string()),
        ("NOTE", |alloc, _| alloc.note.clone().unwrap_or_default()),
    ];
    const NONE: &'static str = "no allocs";

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }
}

/// One alloc.
pub fn alloc(alloc: &AllocStatus, now: Timestamp) -> String {
    let mut lines = vec![
        ("id", alloc.id.to_string()),
        ("namespace", alloc.namespace.to_string()),
        ("state", format!("{} for {}", alloc.state, ago(alloc.since, now))),
        ("node", alloc.node.to_string()),
        ("revision", alloc.modify_index.to_string()),
        ("volumes", requests(alloc)),
        ("note", alloc.note.clone().unwrap_or_default()),
    ];
    if alloc.owner.is_some() {
        lines.push(("owner", owner(alloc.owner.as_ref(), alloc.unowned_since, now)));
    }
    if let Some(by) = &alloc.by {
        lines.push(("by", by.clone()));
    }
    if !alloc.meta.is_empty() {
        let labels = alloc.meta.iter().map(|(key, value)| format!("{key}={value}"));
        lines.push(("labels", labels.collect::<Vec<_>>().join(", ")));
    }
    if let Some(refusal) = &alloc.last_refusal {
        lines.push(("last refusal", last_refusal(refusal, now)));
    }
    format!("{}\n{}", pairs(&lines), list(&alloc.claims, None, now))
}

/// `scheduler-1`, and since when it has no lease.
fn owner(name: Option<&OwnerId>, unowned_since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(name) = name else { return String::new() };
    match unowned_since {
        Some(since) => format!("{name} (gone for {})", ago(since, now)),
        None => name.to_string(),
    }
}

/// Owners, one line each.
pub fn owners(owners: &Owners, now: Timestamp) -> String {
    if owners.owners.is_empty() {
        return "no owners\n".to_owned();
    }
    let mut table = Table::new(["OWNER", "BY", "LEASE", "HOLDER", "SINCE", "LIVE", "UNOWNED"]);
    for owner_status in &owners.owners {
        table.row([
            owner_status.name.to_string(),
            owner_status.by.clone().unwrap_or_default(),
            if owner_status.held { "held" } else { "none" }.to_owned(),
            owner_status.holder.clone().unwrap_or_default(),
            owner_status.since.map(|since| ago(since, now)).unwrap_or_default(),
            owner_status.live.to_string(),
            owner_status.unowned.to_string(),
        ]);
    }
    table.to_string()
}

/// `data (ext4, 1 mount flag), models`
fn volumes(alloc: &AllocStub) -> String {
    let with_options = |volume: &VolumeId| {
        let requests = alloc.mounts.iter().filter(|mount| mount.volume == *volume);
        let texts: Vec<String> = requests.filter_map(|request| options(&request.mount)).collect();
        if texts.is_empty() {
            return volume.to_string();
        }
        format!("{volume} ({})", texts.join("; "))
    };
    alloc.volumes.iter().map(with_options).collect::<Vec<_>>().join(", ")
}

/// The file system and the number of flags that a request names; none for neither.
fn options(mount: &MountSummary) -> Option<String> {
    let flags = (mount.mount_flags > 0).then(|| flag_count(mount.mount_flags));
    let parts: Vec<String> = mount.fs_type.iter().cloned().chain(flags).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `data, models (read, ext4, 1 mount flag), disk[2] as scratch`
fn requests(alloc: &AllocStatus) -> String {
    let request_text = |request: &VolumeRequest| {
        // A request without a valid volume was refused at the alloc's registration.
        let volume = request.volume(alloc.index).unwrap_or_else(|_| request.source.clone());
        let alias = request.alias.as_ref().map(|alias| format!(" as {alias}")).unwrap_or_default();
        let read = request.read_only.then(|| "read".to_owned());
        let marks: Vec<String> =
            read.into_iter().chain(options(&request.mount.summary())).collect();
        let marks =
            if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
        format!("{volume}{alias}{marks}")
    };
    alloc.volumes.iter().map(request_text).collect::<Vec<_>>().join(", ")
}
