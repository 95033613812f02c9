//! Records that this version cannot read. A request that needs such a record names its key in the
//! answer or the error. No answer is false, and nothing is written.

use std::time::Duration;

use berth_bus::{Bucket, Change, Guard, Write};
use berth_contract::bucket::{self, BucketSpec};
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::record::SCHEMA_STORAGE;
use berth_contract::verb::{self, Verb};
use berth_domain::plugin::Half;
use berth_domain::volume::State;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId, VolumeKey};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, System};
use berth_service::clock;
use serde_json::{Value, json};

/// Kinds of unreadable records, each with its code.
fn unreadable() -> [(&'static str, Vec<u8>, Code); 4] {
    let newer = json!({"schema": SCHEMA_STORAGE + 1, "mood": "well"}).to_string();
    [
        ("newer", newer.into_bytes(), Code::NewerRecord),
        ("damaged", b"{\"state\":\"tak".to_vec(), Code::DamagedRecord),
        (
            "of wrong types",
            b"{\"state\":7,\"plugin\":[],\"schema\":1}".to_vec(),
            Code::DamagedRecord,
        ),
        ("empty", Vec::new(), Code::DamagedRecord),
    ]
}

fn volume() -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap())
}

fn alloc() -> AllocId {
    AllocId::new("a").unwrap()
}

/// One key of a bucket.
struct RecordKey {
    bucket: Bucket,
    key: String,
    /// The subjects that guard a write.
    filter: String,
}

impl RecordKey {
    async fn of(system: &System, spec: &BucketSpec, key: String, filter: Option<String>) -> Self {
        let bucket = system.bus.bucket(spec, 1).await.unwrap();
        Self { bucket, filter: filter.unwrap_or_else(|| key.clone()), key }
    }

    async fn read(&self) -> Vec<u8> {
        let entry = self.bucket.get(&self.key).await.unwrap().unwrap();
        entry.value.unwrap().to_vec()
    }

    async fn put(&self, value: &[u8]) {
        let operation = clock::new_attempt();
        let write = Write {
            key: &self.key,
            change: Change::Put(value.to_vec().into()),
            guard: Guard {
                filter: &self.filter,
                revision: self.bucket.head(&self.filter).await.unwrap(),
            },
            operation: operation.as_str(),
            trace: clock::begin_trace(),
        };
        self.bucket.commit(write).await.unwrap();
    }
}

/// A verb, its subject and its request.
type SampleRequest = (&'static str, String, Value);

fn claim<V: Verb<To = Namespace>>(body: Value) -> SampleRequest {
    (V::STEP, V::subject(&Namespace::default()), body)
}

fn global<V: Verb<To = ()>>(body: Value) -> SampleRequest {
    (V::STEP, V::subject(&()), body)
}

/// The verbs under test, each with its request.
fn requests() -> Vec<SampleRequest> {
    vec![
        claim::<verb::VolumeStatus>(json!({"id": "data"})),
        claim::<verb::VolumeList>(json!({})),
        claim::<verb::VolumePlacement>(json!({"volumes": [{"source": "data"}]})),
        claim::<verb::ClaimStatus>(json!({})),
        claim::<verb::AllocStatus>(json!({"id": "a"})),
        claim::<verb::AllocList>(json!({})),
        global::<verb::NodeStatus>(json!({"id": "n1"})),
        global::<verb::PluginStatus>(json!({"id": "dev.berth"})),
        claim::<verb::VolumeDetach>(json!({"id": "data", "node": "n1"})),
        claim::<verb::VolumeDeregister>(json!({"id": "data", "force": true})),
        claim::<verb::VolumeRegister>(json!({"id": "data", "plugin": "dev.berth", "name": "x",
                "capability": [{"access": "single-node-writer"}]})),
        claim::<verb::ClaimTake>(json!({"alloc": "a", "volume": "data", "node": "n1"})),
        claim::<verb::ClaimRelease>(json!({"alloc": "a", "volume": "data"})),
        claim::<verb::WorkCheckpoint>(json!({"owner": {"claim": "a"}, "volume": "data",
                "worker": "w", "report_only": true})),
        claim::<verb::AllocStop>(json!({"id": "a"})),
        claim::<verb::AllocForget>(json!({"id": "a", "before": "2100-01-01T00:00:00Z"})),
        global::<verb::GcForce>(json!({})),
    ]
}

/// The verbs that need a record of this kind.
fn needing(kind: &str) -> &'static [&'static str] {
    match kind {
        "spec" => &[
            "volume.status",
            "volume.list",
            "volume.placement",
            "volume.detach",
            "volume.deregister",
            "volume.register",
            "claim.take",
            "claim.release",
            "work.checkpoint",
            "gc.force",
        ],
        "claim" => &[
            "volume.status",
            "volume.list",
            "volume.placement",
            "claim.status",
            "alloc.status",
            "volume.detach",
            "volume.deregister",
            "volume.register",
            "claim.take",
            "claim.release",
            "work.checkpoint",
            "gc.force",
        ],
        "alloc" => &[
            "claim.status",
            "alloc.status",
            "alloc.list",
            "volume.detach",
            "claim.take",
            "alloc.stop",
            "alloc.forget",
            "gc.force",
        ],
        "node" => &["node.status", "volume.placement", "claim.take", "gc.force"],
        _ => panic!("{kind}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_that_needs_a_record_names_it_when_it_cannot_be_read() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    let subtree = || Some(key::subtree(&volume()));
    let node = NodeId::new("n1").unwrap();
    let (spec, claim) = (key::spec(&volume()), key::claim(&volume(), &alloc()));
    let alloc = key::alloc(&Namespace::default(), &alloc());
    let records = [
        ("spec", RecordKey::of(&system, &bucket::VOLUMES, spec, subtree()).await),
        ("claim", RecordKey::of(&system, &bucket::VOLUMES, claim, subtree()).await),
        ("alloc", RecordKey::of(&system, &bucket::ALLOCS, alloc, None).await),
        ("node", RecordKey::of(&system, &bucket::NODES, key::node(&node), None).await),
    ];
    for (kind, record) in &records {
        let whole = record.read().await;
        for (damage, bytes, code) in unreadable() {
            record.put(&bytes).await;
            // A replica that has read the record before, and a restarted one that has not.
            for replica in ["that read it before", "restarted"] {
                if replica == "restarted" {
                    if damage != "newer" && damage != "empty" {
                        continue;
                    }
                    system.kill9_and_restart(Part::Claim).await;
                    wait::until("the claim service answers", Duration::from_secs(30), || async {
                        system.volumes().await.map(drop).map_err(|problem| problem.to_string())
                    })
                    .await;
                }
                for (step, subject, body) in requests() {
                    if !needing(kind).contains(&step) {
                        continue;
                    }
                    let request =
                        format!("{step} with a {kind} that is {damage}, at a replica {replica}");
                    let answer = match system.ask::<Value>(&subject, &body).await {
                        Ok(answer) => answer.to_string(),
                        Err(problem) => {
                            assert_eq!(problem.code, code, "{request}: {problem}");
                            problem.to_string()
                        }
                    };
                    assert!(answer.contains(&record.key), "{request} names no key: {answer}");
                    let says_gone = answer.contains("\"gone\":true");
                    let fits = answer.contains("\"fits\":true");
                    assert!(!says_gone && !fits, "{request}: {answer}");
                }
                assert_eq!(record.read().await, bytes, "{kind} that is {damage} was written over");
                std::fs::write(format!("{}/f", mounted.path), "x").expect("the mount is unchanged");
            }
        }
        record.put(&whole).await;
        system.healthy().await;
    }
    system.stop("a").await;
    system.settle("data").await;
}

/// The output of a command: stdout and stderr.
fn berth(system: &System, command: &[&str]) -> [String; 2] {
    let berth = system
        .berth()
        .into_std()
        .args([&["--nats", &system.url()], command].concat())
        .output()
        .unwrap();
    [berth.stdout, berth.stderr].map(|text| String::from_utf8(text).unwrap())
}

/// The agent's next report replaces the unreadable record. Until then the status names it.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_node_names_plugin_instances_that_cannot_be_read() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let (node, plugin) = (NodeId::new("n1").unwrap(), PluginId::new(PLUGIN).unwrap());
    let key = key::instance(&plugin, &node, Half::Node);
    let record = RecordKey::of(&system, &bucket::PLUGINS, key, None).await;
    system.daemon(Part::Agent(0)).pause();
    record.put(b"{\"healthy\":tr").await;
    let status = system.ask::<Value>(&verb::NodeStatus::subject(&()), &json!({"id": "n1"})).await;
    let status = status.unwrap().to_string();
    assert!(status.contains(&record.key), "{status}");
    system.daemon(Part::Agent(0)).resume();
    system.healthy().await;
}

/// `berth node status NODE` combines several answers. It must print the unreadable records of each.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_of_a_node_names_records_that_cannot_be_read() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let claim = key::claim(&volume(), &alloc());
    let node = key::node(&NodeId::new("n1").unwrap());
    let records = [
        RecordKey::of(&system, &bucket::VOLUMES, claim, Some(key::subtree(&volume()))).await,
        RecordKey::of(&system, &bucket::NODES, node, None).await,
    ];
    for record in records {
        let whole = record.read().await;
        record.put(b"{\"state\":\"tak").await;
        let (key_field, key) = (format!("\"key\": \"{}\"", record.key), &record.key);
        let [table, stderr] = berth(&system, &["node", "status", "n1"]);
        assert!(stderr.contains(key), "{key}: {table} {stderr}");
        let [json, stderr] = berth(&system, &["node", "status", "n1", "--json"]);
        let is_refused = json.contains(Code::DamagedRecord.as_str()) && json.contains(key);
        assert!(json.contains(&key_field) || is_refused, "{key}: {json} {stderr}");
        if key.contains(".claim.") {
            let [tree, stderr] = berth(&system, &["trace", "data/a"]);
            assert!(stderr.contains(key), "the trace: {tree} {stderr}");
        }
        record.put(&whole).await;
    }
    system.stop("a").await;
    system.settle("data").await;
}

/// D9: a claim from before schema versions names no node; its alloc does.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_claim_without_a_node_gets_the_node_of_its_alloc() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let claim = key::claim(&volume(), &alloc());
    let record =
        RecordKey::of(&system, &bucket::VOLUMES, claim, Some(key::subtree(&volume()))).await;
    let mut fields: Value = serde_json::from_slice(&record.read().await).unwrap();
    for field in ["schema", "trace", "trail", "state", "mode", "controller", "node"] {
        fields.as_object_mut().unwrap().remove(field);
    }
    record.put(fields.to_string().as_bytes()).await;
    for part in [Part::Claim, Part::Watcher] {
        system.kill9_and_restart(part).await;
    }
    system.healthy().await;
    // While its workload runs, so that its mount is never one that no claim covers.
    wait::until("the claim has its node", Duration::from_secs(30), || async {
        let claim = system.claims("data").await.claims.remove(0);
        let node = claim.node.to_string();
        if node != "n1" {
            return Err(node);
        }
        assert_eq!(claim.state, State::Taken);
        Ok(())
    })
    .await;
    system.stop("a").await;
    system.settle("data").await;
}
