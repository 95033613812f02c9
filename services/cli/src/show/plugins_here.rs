//! The plugins of one node, by its agent.

use std::path::Path;

use berth_contract::message::plugin::{Here, InstanceHere};
use berth_domain::Timestamp;

use super::health_word;
use crate::span::ago;
use crate::table::{Table, plain};

/// Each instance, and the faults of their sources.
pub fn plugins_here(here: &Here, now: Timestamp) -> String {
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
    for one in &here.instances {
        table.row([
            one.plugin.to_string(),
            one.instance.clone(),
            health_word(one.healthy).to_owned(),
            calls(one).to_owned(),
            one.version.clone().unwrap_or_default(),
            ago(one.since, now),
            one.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            if one.supervised { one.restarts.to_string() } else { String::new() },
            one.mounts.to_string(),
            one.source.clone(),
            one.description.clone(),
        ]);
    }
    let mut shown = if here.instances.is_empty() {
        format!("no plugins on {}\n", here.node)
    } else {
        table.to_string()
    };
    // The agent keeps what a command prints beside the socket that it gives to the command.
    let logs = here.instances.iter().filter(|one| one.supervised).filter_map(|one| {
        let dir = Path::new(&one.socket).parent()?;
        let log = dir.join("output.log").display().to_string();
        Some(format!("\n  {} {}\n    log: {}\n", one.plugin, one.instance, plain(&log)))
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

/// Whether the instance gets calls, and whether it stays.
fn calls(one: &InstanceHere) -> &'static str {
    match (one.serves, one.leaving) {
        (true, false) => "here",
        (true, true) => "here, leaving",
        (false, true) => "leaving",
        (false, false) => "",
    }
}
