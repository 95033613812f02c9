//! Plugins and nodes: in a list, and one with its instances.

use berth_contract::message::registry::{
    Declared, InstanceStatus, NodeLeft, NodeStatus, PluginStatus,
};
use berth_domain::plugin::ControllerAbilities;
use berth_domain::proof::ProofKind;
use berth_domain::volume::HoldingProcess;
use berth_domain::{NodeId, PluginId, Timestamp};

use super::list::{Column, Listed, list};
use super::{health_word, listed, yes};
use crate::span::ago;
use crate::table::{Table, pairs};
use berth_explain::node_state;

impl Listed for PluginStatus {
    const COLUMNS: &'static [Column<Self>] = &[
        ("ID", |plugin, _| plugin.id.to_string()),
        ("PROVIDER", |plugin, _| plugin.provider.clone()),
        ("VERSION", |plugin, _| plugin.versions.join(", ")),
        ("CONTROLLERS", |plugin, _| controllers(plugin)),
        ("NODES", |plugin, _| plugin.nodes.to_string()),
        ("ATTACHES", |plugin, _| yes(plugin.attaches)),
    ];
    const NONE: &'static str = "no plugins: no agent has reported one";
}

impl Listed for NodeStatus {
    const COLUMNS: &'static [Column<Self>] = &[
        ("ID", |node, _| node.id.to_string()),
        ("STATE", |node, _| node_state(node).0),
        ("SINCE", |node, now| ago(node_state(node).1, now)),
        ("SKEW", |node, _| skew(node)),
        ("VERSION", |node, _| node.version.clone()),
        ("PLUGINS", |node, _| served(node)),
    ];
    const NONE: &'static str = "no nodes: no agent has reported";
}

/// One plugin.
pub fn plugin(plugin: &PluginStatus, now: Timestamp) -> String {
    let lines = [
        ("id", plugin.id.to_string()),
        ("provider", plugin.provider.clone()),
        ("versions", plugin.versions.join(", ")),
        ("controllers", controllers(plugin)),
        ("nodes", plugin.nodes.to_string()),
        ("attaches", yes(plugin.attaches)),
        ("can", abilities(plugin).join(", ")),
    ];
    let table = instances("NODE", &plugin.instances, |instance| instance.node.to_string(), now);
    format!("{}\n{table}{}", pairs(&lines), jobs(plugin, now))
}

/// What the plugin's controllers can do at the storage. One of them gets each call.
fn abilities(plugin: &PluginStatus) -> Vec<&'static str> {
    let can: Vec<ControllerAbilities> =
        plugin.instances.iter().filter_map(|one| one.controller).collect();
    let able = |has: fn(&ControllerAbilities) -> bool| can.iter().any(has);
    let expands = match (
        able(|controller| controller.expand_volume),
        able(|controller| controller.expand_offline_only),
    ) {
        (true, true) => "expand volumes that are not in use",
        _ => "expand volumes",
    };
    let abilities = [
        (able(|controller| controller.create_delete_volume), "create and delete volumes"),
        (able(|controller| controller.clone_volume), "copy volumes"),
        (able(|controller| controller.expand_volume), expands),
        (able(|controller| controller.modify_volume), "modify volumes"),
        (able(|controller| controller.create_delete_snapshot), "cut and restore snapshots"),
        (able(|controller| controller.group_snapshot), "cut snapshots of a group"),
        (able(|controller| controller.list_volumes), "list volumes"),
        (able(|controller| controller.list_snapshots), "list snapshots"),
        (able(|controller| controller.get_capacity), "say its capacity"),
        (able(|controller| controller.topology), "place volumes"),
    ];
    abilities.into_iter().filter_map(|(can, word)| can.then_some(word)).collect()
}

/// Plugin instances, one line each. The first column is the caller's.
fn instances(
    heading: &str,
    instances: &[InstanceStatus],
    name: impl Fn(&InstanceStatus) -> String,
    now: Timestamp,
) -> Table {
    let columns = [heading, "HALF", "HEALTH", "SINCE", "VERSION", "PROCESS", "DESCRIPTION"];
    let mut table = Table::new(columns);
    for instance in instances {
        table.row([
            name(instance),
            instance.half.to_string(),
            health_word(instance.healthy).to_owned(),
            ago(instance.since, now),
            instance.version.clone(),
            instance.process.as_ref().map(process).unwrap_or_default(),
            instance.description.clone(),
        ]);
    }
    table
}

/// `4712 (ebs-plugin)`
fn process(process: &HoldingProcess) -> String {
    format!("{} ({})", process.pid, process.command)
}

/// The jobs that provide a plugin; nothing for none.
fn jobs(plugin: &PluginStatus, now: Timestamp) -> String {
    if plugin.jobs.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["NAMESPACE", "JOB", "CONTROLLERS", "NODES", "SINCE"]);
    for job in &plugin.jobs {
        table.row([
            job.namespace.to_string(),
            job.job.to_string(),
            job.controllers.to_string(),
            job.nodes.to_string(),
            ago(job.since, now),
        ]);
    }
    format!("\n{table}")
}

/// One node.
pub fn node(node: &NodeStatus, now: Timestamp) -> String {
    let (state, since) = node_state(node);
    let lines = [
        ("id", node.id.to_string()),
        ("state", format!("{state} for {}", ago(since, now))),
        ("revision", node.revision.to_string()),
        ("clock skew", skew(node)),
        ("version", node.version.clone()),
        ("boot", node.boot_id.clone()),
        ("attributes", listed(&node.attributes)),
    ];
    let gone = node.gone.as_ref().map(|proof| ("gone", proof.to_string()));
    let keep = node.gone.as_ref().map(|proof| ("until it is back", kept_up(proof.kind).to_owned()));
    let back = node.back.filter(|_| node.gone.is_none()).map(|back| {
        let undone = "ago; it has undone all mounts from before, and a fence may be lifted";
        ("back", format!("{} {undone}", ago(back, now)))
    });
    let unaccounted = node.unaccounted.iter().map(|mount| ("without a claim", mount.to_string()));
    let lines = lines.into_iter().chain(gone).chain(keep).chain(back);
    let lines: Vec<_> = lines.chain(unaccounted).collect();
    let table = instances("PLUGIN", &node.instances, |instance| instance.plugin.to_string(), now);
    format!("{}\n{table}", pairs(&lines))
}

/// A node that was just declared gone.
pub fn declared(node: &NodeId, declared: &Declared, now: Timestamp) -> String {
    let Declared { proof, claims } = declared;
    let claims_text = match claims.as_deref() {
        None => format!(
            "which claims are left is not known: \
             `berth claim status --node {node} --namespace '*'` shows them\n"
        ),
        Some([]) => "no claim of the node is left\n".to_owned(),
        Some(claims) => format!("{CLAIMS_LEFT}\n{}", list(claims, None, now)),
    };
    format!(
        "{node} counts as gone: {proof}\nuntil it is back: {}\n{claims_text}",
        kept_up(proof.kind)
    )
}

/// The text above the claims of a node that was declared gone.
pub const CLAIMS_LEFT: &str = "claims that are left, each until its controller has detached the \
                               volume from the node:";

/// The conditions that must hold while the node counts as gone.
fn kept_up(kind: ProofKind) -> &'static str {
    match kind {
        ProofKind::PoweredOff => {
            "start no old workload there before its agent has undone all mounts"
        }
        ProofKind::StorageFenced => {
            "keep the fence until no mount is left there, or the host was rebooted; a mount that \
             is left writes what it has cached as soon as the fence is lifted"
        }
        ProofKind::Confirmed => "let nothing there write before its agent has undone all mounts",
    }
}

/// A node that has left.
pub fn departed(node: &NodeId, departed: &NodeLeft) -> String {
    let NodeLeft { known, instances, gone } = *departed;
    let went = match (known, instances) {
        (false, 0) => return format!("there is no node {node}\n"),
        (_, 0) => String::new(),
        (_, count) => {
            format!(", with {count} plugin instance{}", if count == 1 { "" } else { "s" })
        }
    };
    if gone {
        format!("{node} has left{went}; it stays on record as gone, to be told if it comes back\n")
    } else {
        format!("{node} has left{went}\n")
    }
}

fn controllers(plugin: &PluginStatus) -> String {
    plugin.controllers.map(|count| count.to_string()).unwrap_or_default()
}

fn skew(node: &NodeStatus) -> String {
    format!("{:+} ms", node.clock_skew_ms)
}

/// The plugins on a node, each once; one with an unhealthy half is marked.
fn served(node: &NodeStatus) -> String {
    let mut ids: Vec<_> = node.instances.iter().map(|instance| &instance.plugin).collect();
    ids.sort();
    ids.dedup();
    let mark = |id: &PluginId| {
        let mut halves = node.instances.iter().filter(|instance| instance.plugin == *id);
        let mark = if halves.all(|half| half.healthy) { "" } else { " (unhealthy)" };
        format!("{id}{mark}")
    };
    ids.into_iter().map(mark).collect::<Vec<_>>().join(", ")
}
