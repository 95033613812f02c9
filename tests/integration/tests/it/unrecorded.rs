//! A restored `berth-nodes` lacks a node, and the backup also lacks the claim of the node's mount.
//! The volume is granted nowhere else, whether or not the node's agent held a lease all the time.

use std::time::Duration;

use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, NodeId};
use berth_harness::dirs::Dir;
use berth_harness::nats::raw;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::{Value, json};

use crate::restored::admin_done;

const PATIENCE: Duration = Duration::from_secs(60);
const SECOND: Part = Part::Agent(1);

/// The second node has the volume mounted, and the backup has neither that claim nor the node.
struct Fleet {
    system: System,
    backup: Dir,
}

impl Fleet {
    async fn start() -> Self {
        let driver = |_| vec!["--lenient".to_owned()];
        let system = System::start(Options { driver, ..Options::default() }).await;
        system.volume("data", &["single-node-writer"]).await;
        system.alloc("b", 0, "data", false).await;
        system.kill9(SECOND);
        put(&system, bucket::NODES.name, "n2", ("KV-Operation", "DEL"), b"").await;
        wait::until("n2 is not on record", PATIENCE, || async {
            let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
            if nodes.len() == 1 { Ok(()) } else { Err(format!("{nodes:?}")) }
        })
        .await;
        let fleet = Self { system, backup: Dir::new("backup") };
        admin_done(&fleet.system, &["bus", "backup", fleet.dir()]).await;
        fleet.system.restart(SECOND);
        fleet.system.healthy().await;
        fleet.system.run("a", 1, "data").await;
        fleet
    }

    fn dir(&self) -> &str {
        self.backup.path().to_str().expect("a path in UTF-8")
    }

    /// Restores the backup while the claim service is down, so that it remembers nothing.
    async fn restore(&self) {
        self.system.kill9(Part::Claim);
        admin_done(&self.system, &["bus", "restore", self.dir(), "--yes"]).await;
        self.system.restart(Part::Claim);
    }

    /// Requests the volume for the first node until it is refused with this code and this word.
    async fn is_refused(&self, code: Code, word: &str) {
        let subject = verb::ClaimTake::subject(&Namespace::default());
        let body = json!({"alloc": "b", "volume": "data", "node": "n1"});
        wait::until(&format!("{code:?}, {word}"), RECOVERY, || async {
            match self.system.ask::<Value>(&subject, &body).await {
                Ok(grant) => panic!("granted beside the mount on n2: {grant}"),
                Err(problem) if problem.code == code && problem.message.contains(word) => Ok(()),
                Err(problem) => Err(problem.to_string()),
            }
        })
        .await;
    }
}

async fn put(system: &System, bucket: &str, key: &str, header: (&str, &str), value: &[u8]) {
    let subject = format!("$KV.{bucket}.{key}");
    let stored = raw::ask(&system.servers()[0], &subject, &[header], value).await;
    assert!(stored["seq"].is_u64(), "{stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_lease_that_restored_records_lack_counts_as_one_that_has_not_reported() {
    if !or_skip("real mounts") {
        return;
    }
    let fleet = Fleet::start().await;
    let system = &fleet.system;
    let lease = key::node_lease(&NodeId::new("n2").unwrap());
    let leases = system.bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let stored = leases.get(&lease).await.unwrap().and_then(|entry| entry.value).unwrap();
    // The node reports nothing, and has its lease.
    system.kill9(SECOND);
    fleet.restore().await;
    put(system, bucket::LEASES.name, &lease, ("Nats-TTL", "300s"), &stored).await;
    fleet.is_refused(Code::MountsUnreported, "n2").await;
    system.restart(SECOND);
    fleet.is_refused(Code::MountUnaccounted, "n2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_lease_ended_over_a_restore_has_time_to_get_it_back() {
    if !or_skip("real mounts") {
        return;
    }
    let fleet = Fleet::start().await;
    let system = &fleet.system;
    let leases = system.bus.bucket(&bucket::LEASES, 1).await.unwrap();
    system.daemon(SECOND).pause();
    wait::until("the lease of n2 has ended", PATIENCE, || async {
        let lease = leases.get("node.n2").await.map_err(|error| error.to_string())?;
        if lease.as_ref().is_none_or(|entry| entry.value.is_none()) {
            Ok(())
        } else {
            Err(format!("{lease:?}"))
        }
    })
    .await;
    fleet.restore().await;
    fleet.is_refused(Code::MountsUnreported, "come back").await;
    system.daemon(SECOND).resume();
    fleet.is_refused(Code::MountUnaccounted, "n2").await;
}
