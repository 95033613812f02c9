//! What is done to a volume, as a user does it: asked again while the answer is "later".

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::subject::{Global, Namespaced};
use berth_domain::Namespace;
use berth_domain::volume::State;
use berth_harness::wait;
use berth_integration::{PLUGIN, Part, System};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// A volume is registered, changed, and deregistered.
    Register,
    /// An alloc is registered and gets its volume mounted.
    Claim,
    /// An alloc ends, and its claim is released.
    Release,
    /// An alloc ends, and a person has its volume detached from the node, while it is released.
    Detach,
    /// An alloc has ended while nobody looked; the collector finds its claim.
    Collect,
    /// A node comes back.
    Join,
}

impl Flow {
    /// The writes and calls that belong to it, as subjects. Each process tells the registry how it
    /// is all the time; that belongs to a node's coming only.
    pub fn subjects(self) -> Vec<String> {
        let of: &[&str] = match self {
            Self::Join => &[
                "$KV.berth-leases.node.n2",
                "$KV.berth-nodes.>",
                "$KV.berth-plugins.>",
                "berth.v1.node.>",
            ],
            _ => &[
                "$KV.berth-volumes.>",
                "$KV.berth-allocs.>",
                "$KV.berth-secrets.>",
                "berth.v1.volume.>",
                "berth.v1.alloc.>",
                "berth.v1.claim.>",
                "berth.v1.agent.>",
                "berth.v1.controller.>",
                "berth.v1.secret.>",
            ],
        };
        of.iter().map(ToString::to_string).collect()
    }

    /// Brings the system to where the flow begins.
    pub async fn prepare(self, system: &System, volume: &str) {
        match self {
            Self::Register => system.provision(volume),
            Self::Claim => drop(system.volume(volume, &["single-node-writer"]).await),
            Self::Release | Self::Detach | Self::Collect => {
                system.volume(volume, &["single-node-writer"]).await;
                let mounted = system.run(volume, 0, volume).await;
                std::fs::write(format!("{}/f", mounted.path), volume).unwrap();
                if self == Self::Collect {
                    system.kill9(Part::Watcher);
                }
            }
            Self::Join => {
                system.daemon(Part::Agent(1)).terminate().await;
                ready(system, 1).await;
            }
        }
    }

    /// The flow itself.
    pub async fn run(self, system: &System, volume: &str) {
        match self {
            Self::Register => register(system, volume).await,
            Self::Claim => {
                let mounted = system.run(volume, 0, volume).await;
                std::fs::write(format!("{}/f", mounted.path), volume).unwrap();
            }
            Self::Release => {
                system.stop(volume).await;
                system.freed(volume).await;
            }
            Self::Detach => {
                system.stop(volume).await;
                let subject = Namespaced::VolumeDetach.subject(&Namespace::default());
                let detach = json!({"id": volume, "node": "n1"});
                system.persist::<Value>(&subject, &detach).await.unwrap();
                system.freed(volume).await;
            }
            Self::Collect => {
                system.stop(volume).await;
                collected(system, volume).await;
                system.restart(Part::Watcher);
                system.freed(volume).await;
            }
            Self::Join => {
                system.restart(Part::Agent(1));
                ready(system, 2).await;
            }
        }
    }

    /// What is to be so afterwards: the volume can be had, with what was written to it, on the
    /// other node too; and then nothing is left of it.
    pub async fn rest(self, system: &System, volume: &str) {
        match self {
            Self::Register => {
                let gone = system.volume_status(volume).await.unwrap_err();
                assert_eq!(gone.code, Code::NoSuchVolume, "{gone}");
                return;
            }
            Self::Claim => drop(system.stop(volume).await),
            Self::Release | Self::Detach | Self::Collect => {}
            Self::Join => drop(system.volume(volume, &["single-node-writer"]).await),
        }
        system.settle(volume).await;
        let next = format!("{volume}-next");
        let mounted = system.run(&next, 1, volume).await;
        if self != Self::Join {
            let read = std::fs::read_to_string(format!("{}/f", mounted.path));
            assert_eq!(read.unwrap(), volume);
        }
        system.stop(&next).await;
        system.settle(volume).await;
    }
}

async fn register(system: &System, volume: &str) {
    let subject = Namespaced::VolumeRegister.subject(&Namespace::default());
    for name in ["first", "second"] {
        let document = json!({
            "id": volume, "name": name, "plugin": PLUGIN,
            "capability": [{"access": "single-node-writer"}],
        });
        system.persist::<Value>(&subject, &document).await.unwrap();
        let status = system.volume_status(volume).await.unwrap();
        assert_eq!(status.name, name);
    }
    match system.deregister(volume, false).await {
        Ok(done) => assert!(done.gone, "{done:?}"),
        // It was, and the answer was lost.
        Err(problem) => assert_eq!(problem.code, Code::NoSuchVolume, "{problem}"),
    }
}

/// Waits until the collector has had the claim released, as far as that goes without a watcher.
async fn collected(system: &System, volume: &str) {
    wait::until("the claim is collected", PATIENCE, || async {
        let swept = system.ask::<Value>(&Global::GcForce.subject(), &json!({})).await;
        let claims = system.claims(volume).await.claims;
        match claims.first() {
            Some(claim) if claim.state == State::Taken => Err(format!("{swept:?}, {claim:?}")),
            _ => Ok(()),
        }
    })
    .await;
}

/// Waits until so many nodes serve the plugin, and its controller.
async fn ready(system: &System, nodes: usize) {
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
