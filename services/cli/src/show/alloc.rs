//! Allocs: in a list, and one with its claims.

use berth_contract::message::alloc::{AllocStatus, Allocs};
use berth_contract::message::many::ChangedAllocs;
use berth_contract::message::owner::Owners;
use berth_domain::alloc::VolumeRequest;
use berth_domain::{OwnerId, Timestamp};

use super::{claims, last_refusal, within};
use crate::span::ago;
use crate::table::{Table, pairs};

/// The columns of a list of allocs.
pub const ALLOC_COLUMNS: [&str; 8] =
    ["ID", "STATE", "NODE", "SINCE", "OWNER", "VOLUMES", "CLAIMS", "NOTE"];

/// Allocs, one line each, sorted by this column.
pub fn allocs(allocs: &Allocs, sort: Option<&str>, now: Timestamp) -> String {
    if allocs.allocs.is_empty() {
        return "no allocs\n".to_owned();
    }
    let mut table = Table::new(ALLOC_COLUMNS);
    let name = within(allocs.allocs.iter().map(|alloc| &alloc.namespace));
    for alloc in &allocs.allocs {
        table.row([
            name(&alloc.namespace, &alloc.id),
            alloc.state.to_string(),
            alloc.node.to_string(),
            ago(alloc.since, now),
            owner(alloc.owner.as_ref(), alloc.unowned_since, now),
            alloc.volumes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            alloc.claims.to_string(),
            alloc.note.clone().unwrap_or_default(),
        ]);
    }
    table.sort(sort);
    table.to_string()
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
    format!("{}\n{}", pairs(&lines), claims(&alloc.claims, now))
}

/// `scheduler-1`, and since when it has no lease.
fn owner(name: Option<&OwnerId>, unowned_since: Option<Timestamp>, now: Timestamp) -> String {
    let Some(name) = name else { return String::new() };
    match unowned_since {
        Some(since) => format!("{name} (gone for {})", ago(since, now)),
        None => name.to_string(),
    }
}

/// Allocs that were changed together.
pub fn changed_allocs(changed: &ChangedAllocs, now: Timestamp) -> String {
    let allocs = changed.allocs.clone();
    let list = Allocs { index: 0, allocs, next: None, unreadable: Vec::new() };
    self::allocs(&list, None, now)
}

/// Owners, one line each.
pub fn owners(owners: &Owners, now: Timestamp) -> String {
    if owners.owners.is_empty() {
        return "no owners\n".to_owned();
    }
    let mut table = Table::new(["OWNER", "BY", "LEASE", "HOLDER", "SINCE", "LIVE", "UNOWNED"]);
    for one in &owners.owners {
        table.row([
            one.name.to_string(),
            one.by.clone().unwrap_or_default(),
            if one.held { "held" } else { "none" }.to_owned(),
            one.holder.clone().unwrap_or_default(),
            one.since.map(|since| ago(since, now)).unwrap_or_default(),
            one.live.to_string(),
            one.unowned.to_string(),
        ]);
    }
    table.to_string()
}

/// `data, models (read), disk[2] as scratch`
fn requests(alloc: &AllocStatus) -> String {
    let one = |request: &VolumeRequest| {
        // A request without a valid volume was refused when the alloc was registered.
        let volume = request.volume(alloc.index).unwrap_or_else(|_| request.source.clone());
        let alias = request.alias.as_ref().map(|alias| format!(" as {alias}")).unwrap_or_default();
        format!("{volume}{alias}{}", if request.read_only { " (read)" } else { "" })
    };
    alloc.volumes.iter().map(one).collect::<Vec<_>>().join(", ")
}
