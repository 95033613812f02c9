//! Operations on a volume, sent as a user sends them: retried while the answer is "later".

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::MountedAll;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::{Namespace, NodeId, VolumeId, VolumeKey};
use berth_harness::proxy::Side::{self, After, Before};
use berth_harness::wait;
use berth_integration::{PLUGIN, Part, RECOVERY, System};
use serde_json::{Value, json};

use super::storage_flow::StorageFlow;
use super::sweep;

/// Deadline of a flow with any fault, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// An operation whose writes and calls are hit by faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// A volume is registered, changed, and deregistered.
    Register,
    /// An alloc is registered and gets its volume mounted.
    Claim,
    /// An alloc gets its two volumes in one call.
    Whole,
    /// An alloc gets none of its two volumes: another alloc holds the second.
    Undo,
    /// An alloc ends, and its claim is released.
    Release,
    /// An alloc ends, and an operator detaches its volume from the node during the release.
    Detach,
    /// An alloc ends, and an operator deregisters its volume by force before the release.
    Close,
    /// An alloc has ended while no watcher ran; the collector finds its claim.
    Collect,
    /// An ended alloc holds nothing; the collector removes its record, and then an alloc with the
    /// same id is registered.
    Forget,
    /// A node is down and empty; the collector removes it, and then it comes back.
    Leave,
    /// A node comes back.
    Join,
    /// A change of the storage.
    Storage(StorageFlow),
}

impl Flow {
    /// Subjects of the flow's writes and calls. Processes report their state to the registry all
    /// the time; those reports belong to a node's return only.
    pub fn subjects(self) -> Vec<String> {
        let subjects: &[&str] = match self {
            Self::Join => &[
                "$KV.berth-leases.node.n2",
                "$KV.berth-nodes.>",
                "$KV.berth-plugins.>",
                "berth.v1.node.>",
            ],
            Self::Leave => {
                &["$KV.berth-nodes.n2", "$KV.berth-plugins.>", "berth.v1.node.leave.*.*"]
            }
            _ => &[
                "$KV.berth-volumes.>",
                "$KV.berth-allocs.>",
                "$KV.berth-secrets.>",
                "berth.v1.volume.>",
                "berth.v1.snapshot.>",
                "berth.v1.alloc.>",
                "berth.v1.claim.>",
                "berth.v1.agent.>",
                "berth.v1.controller.>",
                "berth.v1.secret.>",
            ],
        };
        subjects.iter().map(ToString::to_string).collect()
    }

    /// The turning points: a message before which, and a message after which, the rest of the flow
    /// depends on one process. Each has a side, a subject with `{}` for the volume, and the
    /// message's number on that subject, from 0.
    pub fn turns(self) -> [(Side, &'static str, usize); 2] {
        match self {
            Self::Register => [
                (Before, "$KV.berth-volumes.default.{}.spec", 0),
                (After, "$KV.berth-volumes.default.{}.spec", 0),
            ],
            Self::Claim | Self::Whole => [
                (Before, "$KV.berth-volumes.default.{}.claim.*", 0),
                (After, "berth.v1.agent.n1.controller.*.publish.*.*", 0),
            ],
            Self::Undo => [
                (Before, "berth.v1.claim.release.default.*.*", 0),
                (After, "berth.v1.claim.release.default.*.*", 0),
            ],
            Self::Release | Self::Detach => [
                (Before, "berth.v1.agent.n1.controller.*.unpublish.*.*", 0),
                (After, "berth.v1.agent.n1.detach.*.*", 0),
            ],
            // The spec is deleted with the last claim, in one batch with the key of its handle.
            Self::Close => [
                (Before, "$KV.berth-volumes.=handle.*.{}", 0),
                (After, "berth.v1.agent.n1.controller.*.unpublish.*.*", 0),
            ],
            Self::Collect => [
                (Before, "$KV.berth-volumes.default.{}.claim.*", 0),
                (After, "berth.v1.claim.release.default.*.*", 0),
            ],
            Self::Forget => [
                (Before, "$KV.berth-allocs.default.{}", 0),
                (After, "berth.v1.alloc.forget.default.*.*", 0),
            ],
            Self::Leave => {
                [(Before, "$KV.berth-nodes.n2", 0), (After, "berth.v1.node.leave.*.*", 0)]
            }
            Self::Storage(flow) => flow.turns(),
            Self::Join => {
                [(Before, "$KV.berth-nodes.n2", 0), (After, "$KV.berth-leases.node.n2", 0)]
            }
        }
    }

    /// Brings the system to the state in which the flow begins.
    pub async fn prepare(self, system: &System, volume: &str) {
        match self {
            Self::Storage(flow) => flow.prepare(system, volume).await,
            Self::Register => system.provision(volume),
            Self::Claim => drop(system.volume(volume, &["single-node-writer"]).await),
            Self::Whole | Self::Undo => {
                for id in [volume, &second(volume)] {
                    system.volume(id, &["single-node-writer"]).await;
                }
                if self == Self::Undo {
                    system.run(&holder(volume), 1, &second(volume)).await;
                }
            }
            Self::Release | Self::Detach | Self::Close | Self::Collect | Self::Forget => {
                system.volume(volume, &["single-node-writer"]).await;
                mount_and_write(system, volume).await;
                if matches!(self, Self::Close | Self::Collect) {
                    watchers(system).for_each(|part| system.kill9(part));
                }
                if self == Self::Forget {
                    system.stop(volume).await;
                    system.freed(volume).await;
                }
            }
            Self::Leave | Self::Join => {
                system.compared().await;
                system.daemon(Part::Agent(1)).terminate().await;
                await_nodes(system, 1).await;
                sweep::down(system, "n2").await;
            }
        }
    }

    /// Runs the flow.
    pub async fn run(self, system: &System, volume: &str) {
        match self {
            Self::Storage(flow) => flow.run(system, volume).await,
            Self::Register => register(system, volume).await,
            Self::Claim => mount_and_write(system, volume).await,
            Self::Whole => {
                let mounted = mount_all(system, volume).await.unwrap();
                std::fs::write(format!("{}/f", mounted.volumes[0].path), volume).unwrap();
            }
            Self::Undo => {
                let refused = mount_all(system, volume).await.unwrap_err();
                assert_eq!(refused.code, Code::Held, "{refused}");
                system.freed(volume).await;
            }
            Self::Release => {
                system.stop(volume).await;
                system.freed(volume).await;
            }
            Self::Detach => {
                system.stop(volume).await;
                let subject = verb::VolumeDetach::subject(&Namespace::default());
                let detach = json!({"id": volume, "node": "n1"});
                system.persist::<Value>(&subject, &detach).await.unwrap();
                system.freed(volume).await;
            }
            Self::Close => {
                system.stop(volume).await;
                system.deregister(volume, true).await.unwrap();
                watchers(system).for_each(|part| system.restart(part));
                await_gone(system, volume).await;
            }
            Self::Collect => {
                system.stop(volume).await;
                sweep::claims(system, volume).await;
                watchers(system).for_each(|part| system.restart(part));
                system.freed(volume).await;
            }
            Self::Forget => {
                sweep::alloc(system, volume).await;
                mount_and_write(system, volume).await;
            }
            Self::Leave | Self::Join => {
                if self == Self::Leave {
                    sweep::node(system, "n2").await;
                }
                system.restart(Part::Agent(1));
                await_nodes(system, 2).await;
            }
        }
    }

    /// Checks the end: all processes serve again, the other node can mount the volume with its
    /// data, and its release leaves no claim.
    pub async fn check_end(self, system: &System, volume: &str) {
        system.healthy().await;
        match self {
            Self::Storage(flow) => return flow.check_end(system, volume).await,
            Self::Register | Self::Close => {
                let missing = system.volume_status(volume).await.unwrap_err();
                assert_eq!(missing.code, Code::NoSuchVolume, "{missing}");
                assert_eq!(stored_keys(system, volume).await, Vec::<String>::new());
                return system.settle(volume).await;
            }
            Self::Claim | Self::Forget => {
                let forgotten = sweep::forgotten(system, volume).await;
                assert!(forgotten.is_err(), "{volume} runs, and its alloc has no record");
                system.stop(volume).await;
            }
            Self::Whole => {
                system.stop(volume).await;
                system.settle(&second(volume)).await;
            }
            Self::Undo => {
                for alloc in [volume, &holder(volume)] {
                    system.stop(alloc).await;
                }
                system.settle(&second(volume)).await;
            }
            Self::Release | Self::Detach | Self::Collect => {}
            Self::Leave | Self::Join => {
                drop(system.volume(volume, &["single-node-writer"]).await);
            }
        }
        system.settle(volume).await;
        let next = format!("{volume}-next");
        let mounted = system.run(&next, 1, volume).await;
        if !matches!(self, Self::Leave | Self::Join | Self::Undo) {
            let read = std::fs::read_to_string(format!("{}/f", mounted.path));
            assert_eq!(read.unwrap(), volume);
        }
        system.stop(&next).await;
        system.settle(volume).await;
        let spec = key::spec(&volume_key(volume));
        assert_eq!(stored_keys(system, volume).await, [spec], "only the spec is stored");
    }
}

/// The other volume of an alloc that wants two: it is taken after the first.
fn second(volume: &str) -> String {
    format!("{volume}-second")
}

/// The alloc that holds the other volume.
fn holder(volume: &str) -> String {
    format!("{volume}-holder")
}

/// Registers an alloc on the first node that requests two volumes, and has it mount both, or none.
async fn mount_all(system: &System, volume: &str) -> Result<MountedAll, Problem> {
    let register = verb::AllocRegister::subject(&Namespace::default());
    let volumes = json!([{"source": volume}, {"source": second(volume)}]);
    let alloc = json!({"id": volume, "node": "n1", "volumes": volumes});
    system.persist::<Value>(&register, &alloc).await.unwrap();
    let agent = verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap());
    let mount = verb::AgentMountAll::subject(&agent);
    system.persist(&mount, &json!({"namespace": "default", "alloc": volume})).await
}

/// Mounts the volume on the first node and writes to it.
async fn mount_and_write(system: &System, volume: &str) {
    let mounted = system.run(volume, 0, volume).await;
    std::fs::write(format!("{}/f", mounted.path), volume).unwrap();
}

fn watchers(system: &System) -> impl Iterator<Item = Part> {
    let is_watcher = |part: &Part| matches!(part, Part::Watcher | Part::SecondWatcher);
    Part::all(system.options).filter(is_watcher)
}

fn volume_key(volume: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(volume).unwrap())
}

/// The keys of a volume in the bucket.
pub async fn stored_keys(system: &System, volume: &str) -> Vec<String> {
    let replicas = if system.options.servers == 1 { 1 } else { 3 };
    let volumes = system.bus.bucket(&bucket::VOLUMES, replicas).await.unwrap();
    // A server that was killed a moment ago may not answer yet.
    wait::until("the keys are listed", RECOVERY, || async {
        let listed = volumes.list(&key::subtree(&volume_key(volume))).await;
        let listed = listed.map_err(|error| error.to_string())?;
        Ok::<_, String>(listed.entries.into_iter().map(|entry| entry.key).collect())
    })
    .await
}

async fn register(system: &System, volume: &str) {
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    for name in ["first", "second"] {
        let document = json!({
            "id": volume, "name": name, "plugin": PLUGIN,
            "capability": [{"access": "single-node-writer"}],
            "secrets": {"password": name},
        });
        system.persist::<Value>(&subject, &document).await.unwrap();
        let status = system.volume_status(volume).await.unwrap();
        assert_eq!(status.name, name);
    }
    match system.deregister(volume, false).await {
        Ok(deregistered) => assert!(deregistered.gone, "{deregistered:?}"),
        // The first request succeeded, and its response was lost.
        Err(problem) => assert_eq!(problem.code, Code::NoSuchVolume, "{problem}"),
    }
}

/// Waits until a closing volume is gone.
async fn await_gone(system: &System, volume: &str) {
    wait::until(&format!("{volume} is gone"), PATIENCE, || async {
        match system.volume_status(volume).await {
            Err(problem) if problem.code == Code::NoSuchVolume => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Waits until this many nodes serve the plugin and its controller.
async fn await_nodes(system: &System, nodes: usize) {
    wait::until(&format!("{nodes} nodes are healthy"), PATIENCE, || async {
        let plugins = system.plugins().await.map_err(|problem| problem.to_string())?.plugins;
        let plugin = plugins.first().ok_or("no plugin")?;
        let controllers = plugin.controllers.map_or(0, |count| count.healthy);
        if (plugin.nodes.healthy, controllers) == (nodes, nodes) {
            return Ok(());
        }
        Err(format!("{plugin:?}"))
    })
    .await;
}
