//! Allocs: in a list, and one with its claims.

use berth_contract::message::alloc::{AllocStatus, AllocStub};
use berth_contract::message::owner::Owners;
use berth_domain::alloc::VolumeRequest;
use berth_domain::{Namespace, OwnerId, Timestamp};

use super::last_refusal;
use super::list::{Column, Listed, list};
use crate::span::ago;
use crate::table::{Table, pairs};

impl Listed for AllocStub {
    const COLUMNS: &'static [Column<Self>] = &[
        ("ID", |alloc, _| alloc.id.to_string()),
        ("STATE", |alloc, _| alloc.state.to_string()),
        ("NODE", |alloc, _| alloc.node.to_string()),
        ("SINCE", |alloc, now| ago(alloc.since, now)),
        ("OWNER", |alloc, now| owner(alloc.owner.as_ref(), alloc.unowned_since, now)),
        ("VOLUMES", |alloc, _| {
            alloc.volumes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }),
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

/// `data, models (read), disk[2] as scratch`
fn requests(alloc: &AllocStatus) -> String {
    let request_text = |request: &VolumeRequest| {
        // A request without a valid volume was refused at the alloc's registration.
        let volume = request.volume(alloc.index).unwrap_or_else(|_| request.source.clone());
        let alias = request.alias.as_ref().map(|alias| format!(" as {alias}")).unwrap_or_default();
        format!("{volume}{alias}{}", if request.read_only { " (read)" } else { "" })
    };
    alloc.volumes.iter().map(request_text).collect::<Vec<_>>().join(", ")
}
