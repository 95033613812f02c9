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
            pid(instance).map(|pid| pid.to_string()).unwrap_or_default(),
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
    shown.extend(here.instances.iter().filter_map(process_and_log));
    if !here.faults.is_empty() {
        let mut table = Table::new(["NO PLUGIN COMES FROM", "BECAUSE"]);
        for fault in &here.faults {
            table.row([fault.source.clone(), fault.problem.clone()]);
        }
        shown = format!("{shown}\n{table}");
    }
    shown
}

/// The process that the agent runs, or else the one that listens at the socket.
fn pid(instance: &LocalInstance) -> Option<u32> {
    instance.pid.or_else(|| instance.listener.as_ref().map(|process| process.pid))
}

/// Which process listens at the socket, and the log of one that the agent runs.
fn process_and_log(instance: &LocalInstance) -> Option<String> {
    let listens = instance.listener.as_ref().map(|process| {
        format!("    listens: process {} ({})\n", process.pid, plain(&process.command))
    });
    // The agent keeps the output of a plugin's process in a log beside the plugin's socket.
    let dir = Path::new(&instance.socket).parent().filter(|_| instance.supervised);
    let log = dir.map(|dir| dir.join("output.log").display().to_string());
    let log = log.map(|log| format!("    log: {}\n", plain(&log)));
    let lines: String = [listens, log].into_iter().flatten().collect();
    let (plugin, key) = (&instance.plugin, &instance.instance);
    (!lines.is_empty()).then(|| format!("\n  {plugin} {key}\n{lines}"))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_instance_names_its_process_and_one_that_the_agent_runs_its_log() {
        let instance = |plugin: &str, more: serde_json::Value| {
            let mut instance = json!({
                "plugin": plugin, "instance": "3f2c9a10b4de", "source": "configuration",
                "socket": "/s/csi.sock", "serves": true, "healthy": true, "description": "ready",
                "since": "2026-01-01T00:00:00Z", "supervised": false, "mounts": 0,
            });
            let fields = instance.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            instance
        };
        let listener = json!({"pid": 4712, "command": "ebs\u{1b}-plugin"});
        let here: AgentPlugins = serde_json::from_value(json!({"node": "n1", "instances": [
            instance("a", json!({"listener": listener})),
            instance("b", json!({"listener": listener, "supervised": true, "pid": 4711})),
            instance("c", json!({})),
        ]}))
        .unwrap();
        let shown = plugins_here(&here, here.instances[0].since);
        let (table, below) = shown.split_once("\n\n").unwrap();
        let row = |plugin: &str| table.lines().find(|line| line.starts_with(plugin)).unwrap();
        assert!(row("a").contains("4712") && row("b").contains("4711"), "{table}");
        let name = plain("ebs\u{1b}-plugin");
        let expected = format!(
            "  a 3f2c9a10b4de\n    listens: process 4712 ({name})\n\n  b 3f2c9a10b4de\n    \
             listens: process 4712 ({name})\n    log: /s/output.log\n"
        );
        assert_eq!(below, expected);
    }
}
