//! The request of each verb, with the fields that do the most harm.
//!
//! Each is about the volume that an alloc has on `n1`: the request deletes it, takes it elsewhere,
//! registers it again, or stops its alloc.

use std::process::Command;
use std::thread;

use berth_client::scheduler::process_guard;
use berth_contract::verb::{self, NodeAndNamespace, Verb as _};
use berth_domain::volume::storage::SnapshotState;
use berth_domain::{Namespace, NodeId};
use berth_integration::{PLUGIN, System};
use berth_service::clock;
use serde_json::{Value, json};

use super::cell_setup::CellSetup;

/// How a verb is played.
struct Play {
    step: &'static str,
    /// Whether the request may end the holder's mount.
    ends_holder: bool,
    request: fn(&CellSetup) -> (String, Value),
}

const fn play(step: &'static str, request: fn(&CellSetup) -> (String, Value)) -> Play {
    Play { step, ends_holder: false, request }
}

const fn ending(step: &'static str, request: fn(&CellSetup) -> (String, Value)) -> Play {
    Play { step, ends_holder: true, request }
}

/// Starts a process that ends after the cell has checked the mount: while it lives, the alloc's
/// volumes are not released.
fn start_guard() -> u32 {
    let mut guard = Command::new("sleep").arg("15").spawn().unwrap();
    let pid = guard.id();
    thread::spawn(move || drop(guard.wait()));
    pid
}

fn default_namespace() -> Namespace {
    Namespace::default()
}

fn node(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

fn on_node(id: &str) -> NodeAndNamespace {
    NodeAndNamespace::any_of(node(id))
}

const PLAYS: &[Play] = &[
    play("agent.mount", |setup| {
        let (alloc, volume) = (&setup.other, &setup.volume);
        let body = json!({"namespace": default_namespace(), "alloc": alloc, "volume": volume});
        (verb::AgentMount::subject(&on_node("n2")), body)
    }),
    play("agent.mount-all", |setup| {
        let body = json!({"namespace": default_namespace(), "alloc": setup.other});
        (verb::AgentMountAll::subject(&on_node("n2")), body)
    }),
    play("agent.guard", |setup| {
        let guard = process_guard(start_guard()).unwrap();
        let body = json!({
            "namespace": default_namespace(), "alloc": setup.holder, "owner": setup.owner,
            "guard": guard,
        });
        (verb::AgentGuard::subject(&on_node("n1")), body)
    }),
    play("agent.republish", |setup| {
        let body = json!({"namespace": default_namespace(), "volume": setup.volume});
        (verb::AgentRepublish::subject(&node("n1")), body)
    }),
    ending("agent.unmount", |setup| {
        let body = json!({"namespace": default_namespace(), "volume": setup.volume});
        (verb::AgentUnmount::subject(&node("n1")), body)
    }),
    play("agent.plugin-stop", |_| {
        let body = json!({"plugin": PLUGIN, "even_with_mounts": true, "by": "ada@console"});
        (verb::AgentPluginStop::subject(&node("n1")), body)
    }),
    play("agent.plugin-start", |_| {
        (verb::AgentPluginStart::subject(&node("n1")), json!({"plugin": PLUGIN}))
    }),
    play("alloc.register", |setup| {
        let body = json!(setup.register(&setup.third, "n2"));
        (verb::AllocRegister::subject(&default_namespace()), body)
    }),
    play("alloc.register-many", |setup| {
        let body = json!({"allocs": [setup.register(&setup.third, "n2")]});
        (verb::AllocRegisterMany::subject(&default_namespace()), body)
    }),
    ending("alloc.stop", |setup| {
        (verb::AllocStop::subject(&default_namespace()), json!(setup.stop(&setup.holder)))
    }),
    ending("alloc.stop-many", |setup| {
        let body = json!({"stops": [setup.stop(&setup.holder)]});
        (verb::AllocStopMany::subject(&default_namespace()), body)
    }),
    ending("alloc.stop-owned", |setup| {
        (verb::AllocStopOwned::subject(&default_namespace()), json!({"owner": setup.owner}))
    }),
    play("alloc.adopt", |setup| {
        let body = json!({"from": setup.owner, "owner": format!("{}-next", setup.owner)});
        (verb::AllocAdopt::subject(&default_namespace()), body)
    }),
    play("alloc.forget", |setup| {
        let body = json!({"id": setup.holder, "before": clock::now()});
        (verb::AllocForget::subject(&default_namespace()), body)
    }),
    play("owner.hold", |setup| {
        let body = json!({"owner": setup.owner, "holder": "p1", "ttl_s": 5});
        (verb::OwnerHold::subject(&default_namespace()), body)
    }),
    play("owner.yield", |setup| {
        let body = json!({"owner": setup.owner, "holder": "p1"});
        (verb::OwnerYield::subject(&default_namespace()), body)
    }),
    play("claim.take", |setup| {
        let body = json!({"alloc": setup.other, "volume": setup.volume, "node": "n2"});
        (verb::ClaimTake::subject(&default_namespace()), body)
    }),
    ending("claim.release", |setup| {
        let body = json!({"alloc": setup.holder, "volume": setup.volume, "reason": "by hand"});
        (verb::ClaimRelease::subject(&default_namespace()), body)
    }),
    play("class.put", |setup| {
        let body = json!({
            "id": setup.class, "plugin": PLUGIN, "quota_volumes": 1,
            "capability": [{"access": "single-node-writer"}],
        });
        (verb::ClassPut::subject(&()), body)
    }),
    play("class.delete", |setup| (verb::ClassDelete::subject(&()), json!({"id": setup.class}))),
    play("gc.force", |_| (verb::GcForce::subject(&()), json!({"grace_ms": 0}))),
    play("level.hold", |_| (verb::LevelHold::subject(&()), json!({"hold": true}))),
    play("plugin.expect", |setup| {
        let body = json!({"plugin": PLUGIN, "job": setup.owner, "controllers": 2, "nodes": 2});
        (verb::PluginExpect::subject(&()), body)
    }),
    play("plugin.delete", |_| (verb::PluginDelete::subject(&()), json!({"id": PLUGIN}))),
    play("node.leave", |_| (verb::NodeLeave::subject(&()), json!({"node": "n1"}))),
    // `request` sets `seen` to the node's revision, if the node can be read.
    play("node.gone", |_| {
        let body = json!({"node": "n1", "kind": "confirmed", "by": "ada@console", "seen": 0});
        (verb::NodeGone::subject(&()), body)
    }),
    play("snapshot.create", |setup| {
        let body = json!({"volumes": [setup.volume], "snapshot": "played"});
        (verb::SnapshotCreate::subject(&default_namespace()), body)
    }),
    play("snapshot.delete", |setup| {
        let body = json!({"volume": setup.volume, "snapshot": "before"});
        (verb::SnapshotDelete::subject(&default_namespace()), body)
    }),
    play("snapshot.adopt", |setup| {
        let body = json!({
            "volume": setup.second, "snapshot": "adopted", "plugin": PLUGIN,
            "external_id": format!("snap-of-{}", setup.volume),
        });
        (verb::SnapshotAdopt::subject(&default_namespace()), body)
    }),
    // The same name: if its record is lost, this creates a second volume.
    play("volume.create", |setup| {
        let body = json!({
            "id": setup.volume, "plugin": PLUGIN, "size": "1MiB",
            "capability": [{"access": "single-node-writer"}],
        });
        (verb::VolumeCreate::subject(&default_namespace()), body)
    }),
    play("volume.delete", |setup| {
        (verb::VolumeDelete::subject(&default_namespace()), json!({"id": setup.volume}))
    }),
    play("volume.expand", |setup| {
        (
            verb::VolumeExpand::subject(&default_namespace()),
            json!({"id": setup.volume, "size": "3MiB"}),
        )
    }),
    play("volume.modify", |setup| {
        let body = json!({"id": setup.volume, "parameters": {"tier": "gold"}});
        (verb::VolumeModify::subject(&default_namespace()), body)
    }),
    // The same volume of the plugin under another name.
    play("volume.register", |setup| {
        let body = json!({
            "id": setup.second, "plugin": PLUGIN, "external_id": setup.external_id,
            "capability": [{"access": "single-node-writer"}],
        });
        (verb::VolumeRegister::subject(&default_namespace()), body)
    }),
    play("volume.register-many", |setup| {
        let body = json!({"volumes": [{
            "id": setup.second, "plugin": PLUGIN, "external_id": setup.external_id,
            "capability": [{"access": "single-node-writer"}],
        }]});
        (verb::VolumeRegisterMany::subject(&default_namespace()), body)
    }),
    play("volume.deregister-many", |setup| {
        let body = json!({"volumes": [{"id": setup.volume}]});
        (verb::VolumeDeregisterMany::subject(&default_namespace()), body)
    }),
    play("volume.deregister", |setup| {
        (verb::VolumeDeregister::subject(&default_namespace()), json!({"id": setup.volume}))
    }),
    play("volume.detach", |setup| {
        (
            verb::VolumeDetach::subject(&default_namespace()),
            json!({"id": setup.volume, "node": "n1"}),
        )
    }),
];

fn find(step: &str) -> Option<&'static Play> {
    PLAYS.iter().find(|play| play.step == step)
}

pub fn is_played(step: &str) -> bool {
    find(step).is_some()
}

/// Whether the verb may end the holder's mount.
pub fn ends_holder(step: &str) -> bool {
    find(step).is_some_and(|play| play.ends_holder)
}

/// Creates the snapshot or class that the verb is about.
pub async fn prepare(system: &System, setup: &CellSetup, step: &str) {
    if step == "snapshot.delete" {
        system.snapshot(&[&setup.volume], "before", json!({})).await.unwrap();
        system.snapshot_is(&setup.volume, "before", SnapshotState::Ready).await;
    }
    if step == "class.delete" {
        system.class(&setup.class, json!({"quota_volumes": 1})).await.unwrap();
    }
}

/// The subject and the body of the verb's request.
pub async fn request(system: &System, setup: &CellSetup, step: &str) -> (String, Value) {
    let play = find(step).unwrap_or_else(|| panic!("{step} is not played"));
    let (subject, mut body) = (play.request)(setup);
    if step == "node.gone" {
        let nodes = system.nodes().await.map_or_else(|_| Vec::new(), |nodes| nodes.nodes);
        let seen = nodes.iter().find(|node| node.id.as_str() == "n1").map(|node| node.revision);
        body["seen"] = json!(seen.unwrap_or_default());
    }
    (subject, body)
}
