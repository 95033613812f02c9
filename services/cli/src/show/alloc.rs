//! Allocs: in a list, and one with its claims.

use berth_contract::message::alloc::{AllocStatus, Allocs};
use berth_domain::Timestamp;
use berth_domain::alloc::VolumeRequest;

use super::{claims, last_refusal, within};
use crate::span::ago;
use crate::table::{Table, pairs};

/// The columns of a list of allocs.
pub const ALLOC_COLUMNS: [&str; 7] = ["ID", "STATE", "NODE", "SINCE", "VOLUMES", "CLAIMS", "NOTE"];

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
        ("volumes", requests(alloc)),
        ("note", alloc.note.clone().unwrap_or_default()),
    ];
    if let Some(refusal) = &alloc.last_refusal {
        lines.push(("last refusal", last_refusal(refusal, now)));
    }
    format!("{}\n{}", pairs(&lines), claims(&alloc.claims, now))
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
