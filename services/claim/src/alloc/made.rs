//! What Docker's plugin may end: only what it made.
//!
//! **Promises** that the identity of one host's plugin ends no volume of others, and no alloc of
//! others on that host. What a plugin of the last release made is recognised by its name: those
//! records do not store who made them.

use std::fmt;

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::docker::{is_alloc_id, is_volume_title};
use berth_contract::problem::Problem;
use berth_domain::alloc::Alloc;
use berth_domain::volume::VolumeSpec;
use berth_domain::{AllocId, NodeId};

/// Refuses Docker's plugin a volume that it did not create.
pub fn check_made_volume(actor: Option<&Actor>, spec: &VolumeSpec) -> Result<(), Problem> {
    let Some(Actor::Docker(node)) = actor else { return Ok(()) };
    let is_own = spec.provision().is_some_and(|provision| match &provision.by {
        Some(by) => *by == plugin_of(node),
        None => is_volume_title(&spec.name, node),
    });
    let by = spec.provision().and_then(|provision| provision.by.as_deref());
    if is_own { Ok(()) } else { Err(not_made(node, "the volume", by)) }
}

/// Refuses Docker's plugin an alloc that it did not register.
pub fn check_made_alloc(actor: Option<&Actor>, id: &AllocId, alloc: &Alloc) -> Result<(), Problem> {
    let Some(Actor::Docker(node)) = actor else { return Ok(()) };
    let is_own = match &alloc.by {
        Some(by) if *by == plugin_of(node) => true,
        // Before the plugin was a process of its own, the node's agent registered its allocs.
        Some(by) => is_alloc_id(id) && *by == Actor::Node(node.clone()).tokens(),
        None => is_alloc_id(id) && alloc.node == *node,
    };
    if is_own {
        Ok(())
    } else {
        Err(not_made(node, format_args!("alloc {id}"), alloc.by.as_deref()))
    }
}

/// Refuses Docker's plugin an id that is not of its own form. Otherwise the refusal of a taken id
/// would tell it which allocs other nodes have; its own ids cannot be guessed.
pub fn check_own_id(actor: Option<&Actor>, id: &AllocId) -> Result<(), Problem> {
    let Some(Actor::Docker(node)) = actor else { return Ok(()) };
    if is_alloc_id(id) { Ok(()) } else { Err(not_made(node, format_args!("alloc {id}"), None)) }
}

fn plugin_of(node: &NodeId) -> String {
    Actor::Docker(node.clone()).tokens()
}

fn not_made(node: &NodeId, what: impl fmt::Display, by: Option<&str>) -> Problem {
    let by = by.map(|by| format!(": {by} did")).unwrap_or_default();
    let message = format!("Docker's plugin of node {node} did not make {what}{by}");
    let next = "have a user do it who may write or mount in the namespace";
    Problem::new(Code::NotAllowed, message).next(next)
}

#[cfg(test)]
mod tests {
    use berth_domain::alloc::AllocState;
    use berth_domain::volume::storage::{Provision, Reclaim, StorageLife};
    use berth_domain::{PluginId, Timestamp};

    use super::*;

    fn node(id: &str) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn created(name: &str, by: Option<&str>) -> VolumeSpec {
        let provision = Provision {
            name: "berth-data-1".to_owned(),
            requested: Timestamp::default(),
            by: by.map(str::to_owned),
            required_bytes: 1,
            limit_bytes: None,
            class: None,
            reclaim: Reclaim::Delete,
            first_use: false,
            requisite: Vec::new(),
            node: None,
            first_claim: None,
            growth: None,
            origin: None,
            for_alloc: None,
        };
        let life = StorageLife { provision: Some(provision), ..StorageLife::default() };
        let empty = VolumeSpec::empty(&PluginId::new("p").unwrap());
        VolumeSpec { name: name.to_owned().into(), storage: Some(Box::new(life)), ..empty }
    }

    #[test]
    fn dockers_plugin_ends_the_volumes_that_it_created_and_no_others() {
        let title = "Docker volume data of node n1";
        let registered =
            VolumeSpec { name: title.to_owned().into(), storage: None, ..created(title, None) };
        for (spec, expected) in [
            (created("", Some("docker.n1")), true),
            (created(title, Some("docker.n2")), false),
            (created(title, Some("user.anna")), false),
            (created(title, Some("node.n1")), false),
            // The last release stored no sender.
            (created(title, None), true),
            (created("Docker volume data of node n2", None), false),
            (created("", None), false),
            (registered, false),
        ] {
            let docker = Actor::Docker(node("n1"));
            let decided = check_made_volume(Some(&docker), &spec);
            assert_eq!(decided.is_ok(), expected, "{} {:?}", *spec.name, spec.provision());
            if let Err(problem) = decided {
                assert_eq!(problem.code, Code::NotAllowed);
            }
            for other_actor in [Some(Actor::user("anna")), Some(Actor::Node(node("n1"))), None] {
                assert!(check_made_volume(other_actor.as_ref(), &spec).is_ok());
            }
        }
    }

    #[test]
    fn dockers_plugin_ends_the_allocs_that_it_registered_and_no_others() {
        let docker = Actor::Docker(node("n1"));
        for (id, by, expected) in [
            ("docker/data/1", Some("docker.n1"), true),
            ("web", Some("docker.n1"), true),
            ("docker/data/1", Some("docker.n2"), false),
            ("docker/data/1", Some("user.bob"), false),
            ("docker/data/1", Some("node.n1"), true),
            ("web", Some("node.n1"), false),
            ("docker/data/1", None, true),
            ("web", None, false),
        ] {
            let alloc = Alloc {
                state: AllocState::Live,
                node: node("n1"),
                index: None,
                volumes: Vec::new(),
                since: Timestamp::default(),
                note: None,
                by: by.map(str::to_owned),
                owner: None,
                meta: std::collections::BTreeMap::new(),
            };
            let id = AllocId::new(id).unwrap();
            let decided = check_made_alloc(Some(&docker), &id, &alloc);
            assert_eq!(decided.is_ok(), expected, "{id} {by:?}");
            assert!(check_made_alloc(Some(&Actor::user("bob")), &id, &alloc).is_ok());
            let moved = Alloc { node: node("n2"), by: None, ..alloc };
            assert!(check_made_alloc(Some(&docker), &id, &moved).is_err());
        }
    }

    #[test]
    fn dockers_plugin_registers_its_own_ids_only() {
        for (id, actor, expected) in [
            ("docker/data/1", Actor::Docker(node("n1")), true),
            ("web", Actor::Docker(node("n1")), false),
            ("web", Actor::user("bob"), true),
        ] {
            let id = AllocId::new(id).unwrap();
            assert_eq!(check_own_id(Some(&actor), &id).is_ok(), expected, "{actor}: {id}");
        }
    }
}
