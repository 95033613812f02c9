//! Volumes: in a list, and one with its claims.

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::volume::{Health, Placements, VolumeDemand, VolumeStatus, VolumeStub};
use berth_domain::volume::storage::Stage;
use berth_domain::{Namespace, Timestamp};

use super::list::{Column, Listed, list};
use super::storage::storage_lines;
use super::{health_word, last_refusal, listed, mounted_as};
use crate::size;
use crate::span::ago;
use crate::table::{Table, pairs};

impl Listed for VolumeStub {
    const COLUMNS: &'static [Column<Self>] = &[
        ("ID", |volume, _| volume.id.to_string()),
        ("PLUGIN", |volume, _| volume.plugin.to_string()),
        ("CLASS", |volume, _| volume.class.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("SIZE", |volume, _| volume.capacity_bytes.map(size::short).unwrap_or_default()),
        ("STAGE", |volume, _| stage(volume)),
        ("HEALTH", |volume, _| listed_health(volume)),
        ("IN USE AS", |volume, _| volume.in_use.map(|mode| mode.to_string()).unwrap_or_default()),
        ("READ", |volume, _| volume.readers.to_string()),
        ("WRITE", |volume, _| volume.writers.to_string()),
        ("RELEASING", |volume, _| volume.releasing.to_string()),
        ("WAITING", |volume, _| volume.waiting.to_string()),
        ("NAME", |volume, _| volume.name.clone()),
    ];
    const NONE: &'static str = "no volumes";

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }
}

/// A volume that is being deregistered takes no claim, however far its life at its storage is.
pub fn stage(volume: &VolumeStub) -> String {
    match volume.stage {
        None if volume.closing => "deregistering".to_owned(),
        stage => stage.unwrap_or(Stage::Ready).to_string(),
    }
}

fn listed_health(volume: &VolumeStub) -> String {
    if volume.registered_twice {
        return "registered twice".to_owned();
    }
    judged(volume.healthy, "", volume.abnormal.as_deref())
}

/// A volume that its plugin calls abnormal is not called healthy.
fn judged(healthy: bool, description: &str, abnormal: Option<&str>) -> String {
    let health = health_word(healthy);
    let of_plugin = match description {
        "" => health.to_owned(),
        said if said == health => health.to_owned(),
        said => format!("{health}: {said}"),
    };
    match abnormal {
        None => of_plugin,
        Some(words) if healthy => format!("abnormal: {words}"),
        Some(words) => format!("{of_plugin}; abnormal: {words}"),
    }
}

/// One volume.
pub fn volume(volume: &VolumeStatus, now: Timestamp) -> String {
    let capabilities: Vec<String> = volume.capabilities.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        ("id", volume.id.to_string()),
        ("namespace", volume.namespace.to_string()),
        ("name", volume.name.clone()),
        ("plugin", plugin(volume)),
        ("external id", volume.external_id.clone().unwrap_or_default()),
    ];
    lines.extend(storage_lines(volume, now));
    lines.extend([
        ("health", health(&volume.health)),
        ("offers", capabilities.join(", ")),
        ("in use as", volume.in_use.map(|capability| capability.to_string()).unwrap_or_default()),
    ]);
    if !volume.registered_twice.is_empty() {
        lines.push(("registered twice", format!("as {}", volume.registered_twice.join(", "))));
    }
    lines.extend(volume.unaccounted.iter().map(|mount| ("without a claim", mount.clone())));
    let silent = volume.mounts.iter().filter(|doubt| !doubt.is_mounted());
    lines.extend(silent.map(|doubt| ("not known", doubt.to_string())));
    if let Some(exhausted) = &volume.exhausted {
        lines.push(("no room", exhausted.clone()));
    }
    if let Some(hint) = &volume.hint {
        lines.push(("what to do", hint.clone()));
    }
    if let Some(refusal) = &volume.last_refusal {
        lines.push(("last refusal", last_refusal(refusal, now)));
    }
    if let Some(closing) = &volume.closing {
        let since = ago(closing.since, now);
        lines.push(("deregistering", format!("for {since}: {}", closing.reason)));
    }
    let requested = volume.storage.as_ref().and_then(|storage| storage.requested_bytes);
    match (volume.capacity_bytes, requested) {
        (Some(bytes), _) => lines.push(("size", size::exact(bytes))),
        (None, Some(bytes)) => lines.push(("requested size", size::exact(bytes))),
        (None, None) => {}
    }
    if volume.fs_type.is_some() || volume.mount_flags > 0 {
        lines.push(("mounted as", mounted_as(volume.fs_type.as_deref(), volume.mount_flags)));
    }
    if let Some(group) = &volume.mount_group {
        lines.push(("mounted for", format!("group {group}")));
    }
    for segments in &volume.topologies {
        lines.push(("reachable in", listed(segments)));
    }
    for (label, map) in [("parameters", &volume.parameters), ("context", &volume.context)] {
        if !map.is_empty() {
            lines.push((label, listed(map)));
        }
    }
    if volume.has_secrets {
        lines.push(("secrets", "given, sealed".to_owned()));
    }
    let more = match volume.claim_count.saturating_sub(volume.claims.len()) {
        0 => String::new(),
        more => format!(
            "and {more} more: berth claim status --volume {}{}\n",
            quoted(volume.id.as_str()),
            namespace_option(&volume.namespace)
        ),
    };
    format!("{}\n{}{more}", pairs(&lines), list(&volume.claims, None, now))
}

/// The plugin; and the provider's name for itself, where that is another one.
fn plugin(volume: &VolumeStatus) -> String {
    let VolumeStatus { plugin, provider, .. } = volume;
    if provider.is_empty() || provider == plugin.as_str() {
        return plugin.to_string();
    }
    format!("{plugin} ({provider})")
}

/// Nodes, and for each that cannot host the volumes a line per reason.
pub fn placements(placements: &Placements) -> String {
    if placements.nodes.is_empty() {
        return "no nodes: no agent has reported\n".to_owned();
    }
    let mut table = Table::new(["NODE", "FITS", "VOLUME", "CODE", "WHY NOT"]);
    for node in &placements.nodes {
        if node.obstacles.is_empty() {
            let none = String::new;
            table.row([node.node.to_string(), "yes".to_owned(), none(), none(), none()]);
        }
        for obstacle in &node.obstacles {
            table.row([
                node.node.to_string(),
                if node.fits_later { "later" } else { "no" }.to_owned(),
                obstacle.volume.to_string(),
                obstacle.code.to_string(),
                obstacle.message.clone(),
            ]);
        }
    }
    let demand = |one: &VolumeDemand| {
        let VolumeDemand { volume, holding, waiting, abnormal } = one;
        let held = (holding + waiting > 0)
            .then(|| format!("volume {volume}: held by {holding}, {waiting} in line\n"));
        let abnormal =
            abnormal.as_ref().map(|words| format!("volume {volume}: abnormal: {words}\n"));
        held.into_iter().chain(abnormal)
    };
    let demands: String = placements.volumes.iter().flat_map(demand).collect();
    format!("{table}{demands}")
}

fn health(health: &Health) -> String {
    let Health { healthy, description, controllers, nodes, abnormal } = health;
    let controllers = controllers.map(|count| format!("controllers {count}, ")).unwrap_or_default();
    let health = judged(*healthy, description, abnormal.as_deref());
    format!("{health} ({controllers}nodes {nodes})")
}
