//! `plugin.capacity`: how much room a plugin has (A16).

use std::collections::BTreeSet;

use berth_contract::decode::Fault;
use berth_contract::message::storage::{Capacities, CapacityAt, ListCapacities};
use berth_contract::message::storage_call::{Answered, Question};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::PluginId;
use berth_domain::class::Class;
use berth_domain::limits::LIST_MAX;
use berth_domain::plugin::{ControllerChoice, Half};
use berth_domain::volume::storage::Topology;
use tokio::time::Instant;

use super::ability::Ability;
use super::external::ask_controller;
use crate::store::room_table::VolumeKind;
use crate::store::state::State;

/// How much room a plugin has: in the requested topology, or in each topology of its nodes.
pub async fn list_capacities(
    state: &State,
    query: ListCapacities,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Capacities, Problem> {
    let class = match &query.class {
        Some(id) => Some(super::create::find_any_class(state, id).await?),
        None => None,
    };
    let plugin = name_plugin(&query, class.as_ref())?;
    let with_plugin_id = |problem: Problem| problem.plugin(&plugin);
    state.require(&plugin, Ability::GetCapacity).map_err(with_plugin_id)?;
    // `None` stands for the plugin's whole storage.
    let topologies_asked = match (query.topology, &class) {
        (Some(topology), _) => vec![Some(topology)],
        (None, Some(class)) if !class.topologies.is_empty() => {
            class.topologies.iter().cloned().map(Some).collect()
        }
        (None, _) => topologies(state, &plugin),
    };
    let kind = VolumeKind {
        plugin: plugin.clone(),
        capabilities: class.as_ref().map(|class| class.capabilities.clone()).unwrap_or_default(),
        parameters: class.as_ref().map(|class| class.parameters.clone()).unwrap_or_default(),
    };
    let mut capacities = Vec::new();
    for topology in topologies_asked.into_iter().take(LIST_MAX) {
        let answer = ask_capacity(state, &kind, topology.clone(), trace, deadline).await;
        let capacity = match answer {
            Ok(answer) => CapacityAt {
                topology,
                available_bytes: answer.available_bytes,
                max_volume_bytes: answer.max_volume_bytes,
                min_volume_bytes: answer.min_volume_bytes,
                error: None,
            },
            Err(problem) => CapacityAt {
                topology,
                available_bytes: None,
                max_volume_bytes: None,
                min_volume_bytes: None,
                error: Some(problem.to_string()),
            },
        };
        capacities.push(capacity);
    }
    Ok(Capacities { plugin, capacities })
}

/// How much room the plugin has for volumes of this kind, at one place or anywhere.
pub async fn ask_capacity(
    state: &State,
    kind: &VolumeKind,
    topology: Option<Topology>,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Answered, Problem> {
    let VolumeKind { plugin, capabilities, parameters } = kind.clone();
    // Where each node has a storage of its own, only its own controller knows it.
    let node = topology.as_ref().and_then(|topology| {
        let topologies = std::slice::from_ref(topology);
        state.with_plugin(&plugin, |plugin, _| match plugin.controller_of(topologies) {
            ControllerChoice::Only(node) => Some(node.clone()),
            ControllerChoice::Any | ControllerChoice::Unknown => None,
        })?
    });
    let question = Question::Capacity { capabilities, parameters, topology };
    ask_controller(state, &plugin, node.as_ref(), question, trace, deadline).await
}

/// The plugin that the request names, itself or by its class.
fn name_plugin(query: &ListCapacities, class: Option<&Class>) -> Result<PluginId, Problem> {
    let fault = |problem: String| {
        let fault = Fault { path: "plugin".to_owned(), problem, line: None };
        Problem::bad_input(vec![fault])
    };
    match (&query.plugin, class, &query.class) {
        (Some(plugin), Some(class), Some(id)) if *plugin != class.plugin => Err(fault(format!(
            "is {plugin}, and class {id} is of plugin {}; name one of the two",
            class.plugin
        ))),
        (Some(plugin), ..) => Ok(plugin.clone()),
        (None, Some(class), _) => Ok(class.plugin.clone()),
        (None, None, _) => Err(fault("is missing; name a plugin or a class".to_owned())),
    }
}

/// Each topology of the plugin's nodes, once; `None` if the plugin has no topology.
pub fn topologies(state: &State, plugin: &PluginId) -> Vec<Option<Topology>> {
    let node_topologies = state.with_plugin(plugin, |plugin, _| {
        let of_nodes = plugin.instances.iter().filter_map(|((_, half), instance)| {
            let abilities = instance.node.as_ref().filter(|_| *half == Half::Node)?;
            (!abilities.topology.is_empty()).then(|| abilities.topology.clone())
        });
        of_nodes.collect::<BTreeSet<Topology>>()
    });
    match node_topologies {
        Some(node_topologies) if !node_topologies.is_empty() => {
            node_topologies.into_iter().map(Some).collect()
        }
        _ => vec![None],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(query: &serde_json::Value, class: Option<&str>) -> Result<String, String> {
        let query: ListCapacities = serde_json::from_value(query.clone()).unwrap();
        let class = class.map(|plugin| -> Class {
            serde_json::from_value(json!({"plugin": plugin, "capabilities": []})).unwrap()
        });
        let named = name_plugin(&query, class.as_ref());
        named.map(|plugin| plugin.to_string()).map_err(|problem| problem.message)
    }

    #[test]
    fn a_class_names_the_plugin_and_must_agree_with_a_plugin_that_is_named() {
        assert_eq!(named(&json!({"plugin": "p"}), None), Ok("p".to_owned()));
        assert_eq!(named(&json!({"class": "fast"}), Some("p")), Ok("p".to_owned()));
        let plugin_and_class = json!({"plugin": "p", "class": "fast"});
        assert_eq!(named(&plugin_and_class, Some("p")), Ok("p".to_owned()));
        let message = named(&plugin_and_class, Some("q")).unwrap_err();
        assert!(message.contains("is p, and class fast is of plugin q"), "{message}");
    }
}
