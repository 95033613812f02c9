//! The states that features leave, each with the way that its page tells an operator to end it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use berth_client::scheduler::process_guard;
use berth_contract::verb::{self, NodeAndNamespace, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::plugin::NodeState;
use berth_domain::{AllocId, Namespace, NodeId, VolumeId, VolumeKey};
use berth_harness::nats::raw;
use berth_harness::wait;
use berth_integration::{Part, RECOVERY, System};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::cell_setup::CellSetup;
use crate::lost_bucket::{api, back_up, restore};

/// A state of the volume, of its node or of the bus, with an alloc that has the volume mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The claim's key was deleted by hand, and the node reports the mount.
    UnaccountedMount,
    /// The spec's key was deleted by hand.
    LostSpec,
    /// The bucket of volumes was deleted, and restored from a backup without the claim.
    RestoredBucket,
    /// A call of the volume's expansion hangs at the plugin.
    HalfMadeOperation,
    /// The process that guarded the alloc was killed a moment ago.
    DeadGuard,
    /// The node's agent was started with its state directory and another name.
    RenamedNode,
    /// The node is dead, fenced, and was declared gone.
    GoneNode,
    /// The volume is the last that its class allows.
    FullQuota,
    /// Another alloc waits for the volume.
    OpenWait,
}

/// How a state is undone.
pub enum Undo {
    Nothing,
    /// Writes back the lost value of the spec's key.
    Spec(Vec<u8>),
    /// Writes back the configuration of the agent.
    Agent(PathBuf, String),
    Wait(JoinHandle<()>),
}

impl State {
    /// Whether the verb is played in this state.
    pub fn makes_sense_of(self, step: &str) -> bool {
        match self {
            // A guard that has died cannot be named beside another one.
            Self::DeadGuard => step != "agent.guard",
            // The agent does not start under another name, so its node is as good as dead, and only
            // a false statement would declare it gone. `gone` tests one that runs.
            Self::RenamedNode => step != "node.gone",
            _ => true,
        }
    }

    /// Whether the bus has no identities: an agent under another name would need another one.
    pub fn is_plain(self) -> bool {
        self == Self::RenamedNode
    }

    pub fn has_class(self) -> bool {
        self == Self::FullQuota
    }

    /// Whether the state may end the holder's mount.
    pub fn ends_holder(self) -> bool {
        matches!(self, Self::DeadGuard | Self::GoneNode)
    }

    /// Whether the storage refuses writes of the holder's node.
    pub fn is_fenced(self) -> bool {
        self == Self::GoneNode
    }

    /// Prepares the state before the volume is mounted; returns a backup if it needs one.
    pub async fn prepare(self, system: &System) -> Option<PathBuf> {
        if self != Self::RestoredBucket {
            return None;
        }
        let backup = back_up(system).await;
        system.healthy().await;
        Some(backup)
    }

    /// Brings the state about.
    pub async fn enter(
        self,
        system: &Arc<System>,
        setup: &CellSetup,
        backup: Option<&Path>,
    ) -> Undo {
        match self {
            Self::UnaccountedMount => {
                let alloc = AllocId::new(&*setup.holder).unwrap();
                delete_key(system, &key::claim(&volume_key(setup), &alloc)).await;
                // The agent compares its mounts at its start, and then every minute.
                system.kill9_and_restart(Part::Agent(0)).await;
                is_reported(system, setup).await;
                Undo::Nothing
            }
            Self::LostSpec => {
                let key = key::spec(&volume_key(setup));
                let volumes = system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
                let value = volumes.get(&key).await.unwrap().unwrap().value.unwrap();
                delete_key(system, &key).await;
                Undo::Spec(value.to_vec())
            }
            Self::RestoredBucket => {
                let volumes = bucket::VOLUMES.name;
                assert_eq!(api(system, "DELETE", volumes).await["success"], true);
                restore(system, backup.unwrap(), volumes).await;
                system.healthy().await;
                Undo::Nothing
            }
            Self::HalfMadeOperation => {
                system.hold("ControllerExpandVolume");
                system.expand(&setup.volume, json!({"size": "2MiB"})).await.unwrap();
                system.under_way("ControllerExpandVolume").await;
                Undo::Nothing
            }
            Self::DeadGuard => {
                let mut guard = Command::new("sleep").arg("1000").spawn().unwrap();
                let set = set_guard(system, setup, &guard).await;
                guard.kill().unwrap();
                guard.wait().unwrap();
                set.unwrap();
                Undo::Nothing
            }
            Self::RenamedNode => {
                let agent = system.daemon(Part::Agent(0));
                agent.terminate().await;
                let file = system.dir().join("agent-1.toml");
                let text = fs::read_to_string(&file).unwrap();
                let renamed = text.replacen("node = \"n1\"", "node = \"m1\"", 1);
                assert_ne!(text, renamed);
                fs::write(&file, renamed).unwrap();
                agent.restart();
                is_down(system).await;
                Undo::Agent(file, text)
            }
            Self::GoneNode => {
                // What it never said of its mounts leaves nothing to go by (decision 0067).
                system.compared().await;
                system.kill9(Part::Agent(0));
                let seen = is_down(system).await;
                system.fence(0, true);
                let gone = json!({
                    "node": "n1", "kind": "storage-fenced", "by": "ada@console", "seen": seen,
                });
                system.persist::<Value>(&verb::NodeGone::subject(&()), &gone).await.unwrap();
                Undo::Nothing
            }
            Self::FullQuota => Undo::Nothing,
            Self::OpenWait => {
                let waiting = Arc::clone(system);
                let node = NodeId::new("n2").unwrap();
                let subject = verb::AgentMount::subject(&NodeAndNamespace::any_of(node));
                let body = json!({
                    "namespace": Namespace::default(), "alloc": setup.other,
                    "volume": setup.volume, "wait": true,
                });
                // The request ends with its alloc, with a grant, or at its deadline.
                let wait = tokio::spawn(async move {
                    drop(waiting.ask::<Value>(&subject, &body).await);
                });
                wait::until("the other alloc waits", RECOVERY, || async {
                    let claims = system.claims(&setup.volume).await.claims;
                    let is_waiting = claims.iter().any(|claim| claim.alloc.as_str() == setup.other);
                    if is_waiting { Ok(()) } else { Err(format!("{claims:?}")) }
                })
                .await;
                Undo::Wait(wait)
            }
        }
    }

    /// Undoes the state, as an operator would.
    pub async fn leave(self, system: &System, setup: &CellSetup, undo: Undo) {
        match undo {
            Undo::Nothing => {}
            Undo::Spec(value) => {
                // A volume that was created under the name meanwhile stays.
                if system.volume_status(&setup.volume).await.is_err() {
                    let key = key::spec(&volume_key(setup));
                    put_key(system, &key, &value).await;
                }
            }
            Undo::Agent(file, text) => {
                let agent = system.daemon(Part::Agent(0));
                agent.kill9();
                fs::write(&file, text).unwrap();
                // The record of m1 keeps the plugin's id of the node.
                let leave = json!({"node": "m1"});
                system.persist::<Value>(&verb::NodeLeave::subject(&()), &leave).await.unwrap();
                agent.restart();
            }
            Undo::Wait(wait) => wait.abort(),
        }
        match self {
            Self::HalfMadeOperation => system.let_go(),
            Self::GoneNode => {
                system.fence(0, false);
                system.restart(Part::Agent(0));
                wait::until("n1 is back", RECOVERY, || async {
                    let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
                    let is_back = nodes.iter().any(|node| {
                        node.id.as_str() == "n1"
                            && node.state == NodeState::Ready
                            && node.gone.is_none()
                    });
                    if is_back { Ok(()) } else { Err(format!("{nodes:?}")) }
                })
                .await;
            }
            _ => {}
        }
        system.healthy().await;
    }
}

fn volume_key(setup: &CellSetup) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(&*setup.volume).unwrap())
}

/// Deletes a key as `nats kv del` does.
async fn delete_key(system: &System, key: &str) {
    let subject = format!("$KV.{}.{key}", bucket::VOLUMES.name);
    let stored = raw::ask(&system.servers()[0], &subject, &[("KV-Operation", "DEL")], b"").await;
    assert!(stored["seq"].is_u64(), "{stored}");
}

/// Writes a key as `nats kv put` does.
async fn put_key(system: &System, key: &str, value: &[u8]) {
    let subject = format!("$KV.{}.{key}", bucket::VOLUMES.name);
    let stored = raw::ask(&system.servers()[0], &subject, &[], value).await;
    assert!(stored["seq"].is_u64(), "{stored}");
}

async fn is_reported(system: &System, setup: &CellSetup) {
    wait::until("the mount is reported", RECOVERY, || async {
        let status = system.volume_status(&setup.volume).await;
        let status = status.map_err(|problem| problem.to_string())?;
        if status.unaccounted.is_empty() { Err(format!("{status:?}")) } else { Ok(()) }
    })
    .await;
}

/// Waits until `n1` is down; returns the revision of its record.
async fn is_down(system: &System) -> u64 {
    wait::until("n1 is down", RECOVERY, || async {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let node = nodes.iter().find(|node| node.id.as_str() == "n1");
        let down = node.filter(|node| node.state == NodeState::Down);
        down.map(|node| node.revision).ok_or_else(|| format!("{nodes:?}"))
    })
    .await
}

async fn set_guard(
    system: &System,
    setup: &CellSetup,
    guard: &Child,
) -> Result<Value, berth_contract::problem::Problem> {
    let guard = process_guard(guard.id()).unwrap();
    let body = json!({
        "namespace": Namespace::default(), "alloc": setup.holder, "owner": setup.owner,
        "guard": guard,
    });
    let node = NodeId::new("n1").unwrap();
    let reply =
        system.persist(&verb::AgentGuard::subject(&NodeAndNamespace::any_of(node)), &body).await;
    // The agent checks guards twice a second.
    tokio::time::sleep(Duration::from_millis(100)).await;
    reply
}
