//! Classes, and how much room a plugin has.

use berth_contract::message::class::ClassStatus;
use berth_contract::message::storage::Capacities;
use berth_domain::Namespace;
use berth_domain::class::{Class, ClassUse, Quota, SizeLimits, TopologyPolicy};
use berth_domain::volume::MountSummary;
use berth_domain::volume::storage::Reclaim;

use super::list::{Column, Listed};
use super::{listed, mounted_as};
use crate::size;
use crate::table::{Table, pairs};

impl Listed for ClassStatus {
    const COLUMNS: &'static [Column<Self>] = &[
        ("CLASS", |class, _| class.id.to_string()),
        ("PLUGIN", |class, _| class.class.plugin.to_string()),
        ("SIZES", |class, _| sizes(class.class.size)),
        ("DEFAULT", |class, _| class.class.size.default_bytes.map(size::short).unwrap_or_default()),
        ("RECLAIM", |class, _| reclaim(&class.class).to_owned()),
        ("PLACE", |class, _| policy(&class.class).to_owned()),
        ("USED", |class, _| use_text(&class.used)),
        ("QUOTA", |class, _| quota(class.class.quota)),
    ];
    const NONE: &'static str = "no classes that the namespace may use";
}

/// One class.
pub fn class(status: &ClassStatus) -> String {
    let ClassStatus { id, class, has_secrets, used, index } = status;
    let capabilities: Vec<String> = class.capabilities.iter().map(ToString::to_string).collect();
    let namespaces: Vec<&str> = class.namespaces.iter().map(Namespace::as_str).collect();
    let none = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
    let mut lines = vec![
        ("class", id.to_string()),
        ("plugin", class.plugin.to_string()),
        ("sizes", none(sizes(class.size), "any")),
        ("default size", class.size.default_bytes.map(size::short).unwrap_or_default()),
        ("offers", capabilities.join(", ")),
        ("reclaim", reclaim(class).to_owned()),
        ("place", policy(class).to_owned()),
    ];
    lines.extend(class.topologies.iter().map(|segments| ("may be in", listed(segments))));
    if !class.mount.is_empty() {
        let MountSummary { fs_type, mount_flags, .. } = class.mount.summary();
        lines.push(("mounted as", mounted_as(fs_type.as_deref(), mount_flags)));
    }
    lines.extend(class.mount.group.as_ref().map(|group| ("mounted for", format!("group {group}"))));
    for (label, map) in [("parameters", &class.parameters), ("mutable", &class.mutable_parameters)]
    {
        if !map.is_empty() {
            lines.push((label, listed(map)));
        }
    }
    if *has_secrets {
        lines.push(("secrets", "are given to its volumes; never shown".to_owned()));
    }
    lines.push(("namespaces", none(namespaces.join(", "), "all")));
    lines.push(("used here", use_text(used)));
    lines.push(("quota of each", none(quota(class.quota), "none")));
    lines.push(("revision", index.to_string()));
    pairs(&lines)
}

/// How much room there is, by place.
pub fn capacities(capacities: &Capacities) -> String {
    let mut table = Table::new(["PLACE", "FREE", "LARGEST", "SMALLEST", "NOT KNOWN BECAUSE"]);
    let shown = |bytes: Option<u64>| bytes.map(size::short).unwrap_or_default();
    for capacity in &capacities.capacities {
        table.row([
            capacity.topology.as_ref().map_or_else(|| "everywhere".to_owned(), listed),
            shown(capacity.available_bytes),
            shown(capacity.max_volume_bytes),
            shown(capacity.min_volume_bytes),
            capacity.error.clone().unwrap_or_default(),
        ]);
    }
    format!("plugin {}\n{table}", capacities.plugin)
}

/// `1GiB to 1TiB`; nothing for any size.
fn sizes(limits: SizeLimits) -> String {
    match (limits.min_bytes.map(size::short), limits.max_bytes.map(size::short)) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("from {min}"),
        (None, Some(max)) => format!("up to {max}"),
        (None, None) => String::new(),
    }
}

fn reclaim(class: &Class) -> &'static str {
    match class.reclaim {
        Reclaim::Delete => "delete",
        Reclaim::Retain => "retain",
    }
}

fn policy(class: &Class) -> &'static str {
    match class.topology_policy {
        TopologyPolicy::Immediate => "immediate",
        TopologyPolicy::FirstUse => "first-use",
    }
}

/// `3 volumes, 30GiB`
fn use_text(used: &ClassUse) -> String {
    format!("{}, {}", count(used.volumes, "volume"), size::short(used.bytes))
}

/// `1 volume`, `3 volumes`
fn count(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

/// `10 volumes, 1TiB`; nothing for no bound.
fn quota(quota: Quota) -> String {
    let volumes = quota.volumes.map(|volumes| count(volumes, "volume"));
    let bounds = [volumes, quota.bytes.map(size::short)];
    bounds.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
