//! Two versions in a fleet: each replica reads records that a newer or older replica wrote.
//!
//! Both replicas here are of this version. The test writes the newer version's records itself,
//! under the same guard.

use std::time::Duration;

use berth_bus::{Bucket, Change, Guard, Write};
use berth_contract::code::Code;
use berth_contract::message::claim::{Checkpoint, Checkpointed, Release, Released};
use berth_contract::message::collect::{Force, Sweep};
use berth_contract::problem::Problem;
use berth_contract::record::{SCHEMA, SCHEMA_STORAGE};
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::volume::State;
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey, WorkerId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use berth_service::clock;
use serde_json::{Map, Value, json};

fn volume(id: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap())
}

fn alloc(id: &str) -> AllocId {
    AllocId::new(id).unwrap()
}

/// The keys of the volumes, as a claim service writes them.
struct Records(Bucket);

impl Records {
    async fn of(system: &System) -> Self {
        Self(system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap())
    }

    /// The value of a key, and its revision.
    async fn read(&self, key: &str) -> (u64, Map<String, Value>) {
        let entry = self.0.get(key).await.unwrap().unwrap();
        (entry.revision, serde_json::from_slice(&entry.value.unwrap()).unwrap())
    }

    /// Changes the record as another version would, and returns the new revision.
    async fn change(&self, id: &str, key: &str, change: impl Fn(&mut Map<String, Value>)) -> u64 {
        let subtree = key::subtree(&volume(id));
        let revision = self.0.head(&subtree).await.unwrap();
        let (_, mut fields) = self.read(key).await;
        change(&mut fields);
        let operation = clock::new_attempt();
        let write = Write {
            key,
            change: Change::Put(serde_json::to_vec(&fields).unwrap().into()),
            guard: Guard { filter: &subtree, revision },
            operation: operation.as_str(),
            trace: clock::begin_trace(),
        };
        self.0.commit(write).await.unwrap()
    }
}

/// A record as a newer version may have changed it.
fn newer(fields: &mut Map<String, Value>) {
    fields["schema"] = json!(SCHEMA_STORAGE + 1);
    fields.insert("mood".to_owned(), json!({"well": true}));
}

/// Reverts [`newer`], as if the newer version had finished and written only this version's fields.
fn as_it_was(fields: &mut Map<String, Value>) {
    fields["schema"] = json!(SCHEMA);
    fields.remove("mood");
}

/// Waits until the alloc on the second node gets the volume after its release on the first.
async fn handed_over(system: &System, to: &str, volume: &str) {
    wait::until("the second alloc has the volume", Duration::from_secs(30), || async {
        system.mount(to, 1, volume).await.map_err(|problem| problem.to_string())
    })
    .await;
}

/// Checks that each change of the volume `newer` is refused with the reason.
async fn is_left_alone(system: &System) {
    let namespace = Namespace::default();
    let schema = format!("schema {}", SCHEMA_STORAGE + 1);
    let check = |verb: &str, problem: Problem| {
        assert_eq!(problem.code, Code::NewerRecord, "{verb}: {problem}");
        assert!(problem.to_string().contains(&schema), "{verb}: {problem}");
    };
    let release = Release {
        alloc: alloc("a"),
        volume: VolumeId::new("newer").unwrap(),
        epoch: None,
        reason: "an operator says so".to_owned(),
    };
    let request = Checkpoint {
        alloc: alloc("a"),
        volume: VolumeId::new("newer").unwrap(),
        worker: WorkerId::new("test").unwrap(),
        report: None,
        report_only: false,
        early: false,
    };
    let released =
        system.persist::<Released>(&verb::ClaimRelease::subject(&namespace), &release).await;
    check("release", released.unwrap_err());
    let checkpoint =
        system.persist::<Checkpointed>(&verb::ClaimCheckpoint::subject(&namespace), &request).await;
    check("checkpoint", checkpoint.unwrap_err());
    check("take", system.mount("b", 1, "newer").await.unwrap_err());
    check("deregister by force", system.deregister("newer", true).await.unwrap_err());
    let update = json!({"id": "newer", "plugin": "dev.berth", "name": "another name",
        "capability": [{"access": "single-node-writer"}]});
    let updated =
        system.persist::<Value>(&verb::VolumeRegister::subject(&namespace), &update).await;
    check("update", updated.unwrap_err());
    let status = system.volume_status("newer").await.unwrap();
    assert!(status.hint.unwrap().contains("before berth-claim is upgraded"));
    let sweep = system.persist::<Sweep>(&verb::GcForce::subject(&()), &Force::default()).await;
    let kept = sweep.unwrap().kept;
    assert!(kept.iter().any(|line| line.contains("newer") && line.contains(&schema)), "{kept:?}");
}

/// D9: a volume with a record of a newer version stays unchanged, with all its mounts, while all
/// others are served. That holds for replicas that never read the older record, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_newer_replica_wrote_is_left_alone_and_all_else_is_served() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..Options::default() }).await;
    let records = Records::of(&system).await;
    for id in ["newer", "other"] {
        system.volume(id, &["single-node-writer"]).await;
    }
    let mounted = system.run("a", 0, "newer").await;
    system.alloc("b", 1, "newer", false).await;
    let key = key::claim(&volume("newer"), &alloc("a"));
    let written = records.change("newer", &key, newer).await;
    let (_, before) = records.read(&key).await;
    // From here on every process of this version would release the volume.
    system.stop("a").await;
    is_left_alone(&system).await;

    let all_parts = [
        Part::Claim,
        Part::SecondClaim,
        Part::Watcher,
        Part::SecondWatcher,
        Part::Gc,
        Part::Agent(0),
    ];
    for part in all_parts {
        system.kill9_and_restart(part).await;
    }
    system.healthy().await;
    is_left_alone(&system).await;

    for round in 0..2 {
        let name = format!("c{round}");
        system.run(&name, round, "other").await;
        system.stop(&name).await;
        system.freed("other").await;
    }
    assert_eq!(records.read(&key).await, (written, before), "the record was not written");
    std::fs::write(format!("{}/f", mounted.path), "x").expect("the mount is unchanged");

    // The newer version is finished or gone: the pending release begins.
    records.change("newer", &key, as_it_was).await;
    handed_over(&system, "b", "newer").await;
    system.stop("b").await;
    system.settle("newer").await;
}

/// D9: the same for a volume whose spec a newer version wrote, with nothing claimed yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_a_newer_replica_registered_is_claimed_through_no_older_one() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let records = Records::of(&system).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("a", 0, "data", false).await;
    let key = key::spec(&volume("data"));
    let written = records.change("data", &key, newer).await;
    for round in 0..2 {
        let refused = system.mount("a", 0, "data").await.unwrap_err();
        assert_eq!(refused.code, Code::NewerRecord, "{refused}");
        let refused = system.deregister("data", false).await.unwrap_err();
        assert_eq!(refused.code, Code::NewerRecord, "{refused}");
        if round == 0 {
            system.kill9_and_restart(Part::Claim).await;
            system.healthy().await;
        }
    }
    assert_eq!(records.read(&key).await.0, written, "the record was not written");
    records.change("data", &key, as_it_was).await;
    system.mount("a", 0, "data").await.unwrap();
    system.stop("a").await;
    system.settle("data").await;
}

/// D9: a claim from before schema versions, and one with an unknown field, are treated as any
/// claim: held, refused to others, released.
#[tokio::test(flavor = "multi_thread")]
async fn older_records_and_unknown_fields_go_the_whole_way() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..Options::default() }).await;
    let records = Records::of(&system).await;
    let older = |fields: &mut Map<String, Value>| {
        for field in ["schema", "trace", "trail", "state", "mode", "controller"] {
            fields.remove(field).unwrap();
        }
    };
    let wider = |fields: &mut Map<String, Value>| {
        fields.insert("mood".to_owned(), json!(["well"]));
    };
    for id in ["older", "wider"] {
        system.volume(id, &["single-node-writer"]).await;
        system.run(id, 0, id).await;
        let key = key::claim(&volume(id), &alloc(id));
        let (_, before) = records.read(&key).await;
        assert_eq!(before["state"], "taken", "{before:?}");
        if id == "older" {
            records.change(id, &key, older).await;
        } else {
            records.change(id, &key, wider).await;
        }
        for part in [Part::Claim, Part::SecondClaim] {
            system.kill9_and_restart(part).await;
        }
        system.healthy().await;
        let second = format!("{id}-2");
        system.alloc(&second, 1, id, false).await;
        let refused = system.mount(&second, 1, id).await.unwrap_err();
        assert_eq!(refused.code, Code::Held, "{refused}");
        let claim = &system.claims(id).await.claims[0];
        assert_eq!((claim.state, Some(claim.epoch)), (State::Taken, before["epoch"].as_u64()));
        system.stop(id).await;
        handed_over(&system, &second, id).await;
        system.stop(&second).await;
        system.settle(id).await;
    }
}
