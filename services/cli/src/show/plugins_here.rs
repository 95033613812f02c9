//! The plugins of one node, by its agent.

use std::path::Path;

use berth_contract::message::plugin::{AgentPlugins, LocalInstance};
use berth_domain::Timestamp;

use super::health_word;
use crate::span::ago;
use crate::table::{Table, plain};

/// Each instance, and the faults of their sources.
pub fn plugins_here(here: &AgentPlugins, now: Timestamp) -> String {
    let columns = [
        "PLUGIN",
        "INSTANCE",
        "HEALTH",
        "CALLS",
        "VERSION",
        "SINCE",
        "PID",
        "RESTARTS",
        "MOUNTS",
        "SOURCE",
        "DESCRIPTION",
    ];
    let mut table = Table::new(columns);
    for instance in &here.instances {
        table.row([
            instance.plugin.to_string(),
            instance.instance.clone(),
            health_word(instance.healthy).to_owned(),
            calls(instance).to_owned(),
            instance.version.clone().unwrap_or_default(),
            ago(instance.since, now),
            instance.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            if instance.supervised { instance.restarts.to_string() } else { String::new() },
            instance.mounts.to_string(),
            instance.source.clone(),
            instance.description.clone(),
        ]);
    }
    let mut shown = if here.instances.is_empty() {
        format!("no plugins on {}\n", here.node)
    } else {
        table.to_string()
    };
    // The agent keeps the output of a plugin's process in a log beside the plugin's socket.
    let logs =
        here.instances.iter().filter(|instance| instance.supervised).filter_map(|instance| {
            let dir = Path::new(&instance.socket).parent()?;
            let log = dir.join("output.log").display().to_string();
            Some(format!(
                "\n  {} {}\n    log: {}\n",
                instance.plugin,
                instance.instance,
                plain(&log)
            ))
        });
    shown.extend(logs);
    if !here.faults.is_empty() {
        let mut table = Table::new(["NO PLUGIN COMES FROM", "BECAUSE"]);
        for fault in &here.faults {
            table.row([fault.source.clone(), fault.problem.clone()]);
        }
        shown = format!("{shown}\n{table}");
    }
    shown
}

/// Whether the instance gets calls, and whether it is kept.
fn calls(instance: &LocalInstance) -> &'static str {
    match (instance.serves, instance.leaving) {
        (true, false) => "here",
        (true, true) => "here, leaving",
        (false, true) => "leaving",
        (false, false) => "",
    }
}
