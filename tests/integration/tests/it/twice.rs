//! A volume of a plugin is registered once. If an older version registered it twice, neither
//! registration is granted, and a release of one does not detach the other's node.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::{Bucket, Change, Guard, Write};
use berth_contract::code::Code;
use berth_contract::key::VolumeEntry;
use berth_contract::message::volume::Registered;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::volume::{Handle, State};
use berth_domain::{AllocId, Namespace, PluginId, VolumeId, VolumeKey};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use berth_service::clock;
use serde_json::{Value, json};

use crate::why::{YOU, tells};

const SOON: Duration = Duration::from_secs(30);
const PLUGIN: &str = "dev.berth";
const VALIDATE: &str = "ValidateVolumeCapabilities";
const UNPUBLISH: &str = "ControllerUnpublishVolume";

fn volume(id: &str) -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap())
}

fn handle(external_id: &str) -> String {
    let plugin = PluginId::new(PLUGIN).unwrap();
    key::handle(&Handle { plugin, external_id: external_id.to_owned() })
}

fn document(id: &str, external_id: &str) -> Value {
    json!({"id": id, "plugin": PLUGIN, "external_id": external_id,
        "capability": [{"access": "single-node-writer"}]})
}

/// Registers a volume under a name; repeats the request until the volume is registered or refused.
async fn register(system: &System, id: &str, external_id: &str) -> Result<Registered, Problem> {
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    system.persist(&subject, &document(id, external_id)).await
}

/// How many calls of an RPC have begun.
fn count(system: &System, rpc: &str) -> usize {
    let calls = system.calls();
    calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc).count()
}

async fn records(system: &System) -> Bucket {
    system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap()
}

/// Writes a key without its companion keys, as an older version would, under the volume's guard.
async fn write(records: &Bucket, key: &str, filter: &str, value: &Value) -> u64 {
    let revision = records.head(filter).await.unwrap();
    let operation = clock::new_attempt();
    let write = Write {
        key,
        change: Change::Put(serde_json::to_vec(value).unwrap().into()),
        guard: Guard { filter, revision },
        operation: operation.as_str(),
        trace: clock::begin_trace(),
    };
    records.commit(write).await.unwrap()
}

/// Registers a volume as an older version would.
async fn register_as_before(records: &Bucket, id: &str, external_id: &str) {
    let spec = json!({"plugin": PLUGIN, "external_id": external_id, "schema": 1,
        "capabilities": [{"access": "single-node-writer", "attachment": "file-system"}]});
    let volume = volume(id);
    write(records, &key::spec(&volume), &key::subtree(&volume), &spec).await;
}

async fn owner(records: &Bucket, external_id: &str) -> Option<String> {
    let value = records.get(&handle(external_id)).await.unwrap()?.value?;
    let owner: Value = serde_json::from_slice(&value).unwrap();
    Some(owner["volume"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_name_for_a_volume_of_the_plugin_is_refused() {
    if !or_skip("real mounts") {
        return;
    }
    for attach in [true, false] {
        let system = System::start(Options { attach, ..Options::default() }).await;
        system.volume("data", &["single-node-writer"]).await;
        let validations = count(&system, VALIDATE);
        let refused = register(&system, "copy", "data").await.unwrap_err();
        assert_eq!(refused.code, Code::HandleTaken, "{refused}");
        assert!(refused.message.contains("volume data"), "{refused}");
        // In another namespace the refusal does not name the holder.
        let other = Namespace::new("other").unwrap();
        let subject = verb::VolumeRegister::subject(&other);
        let refused = system.ask::<Registered>(&subject, &document("copy", "data")).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, Code::HandleTaken, "{refused}");
        assert!(refused.message.contains("a volume of another namespace"), "{refused}");
        assert!(!refused.message.contains("volume data"), "{refused}");
        assert_eq!(count(&system, VALIDATE), validations, "the plugin was not called");
        assert_eq!(system.volumes().await.unwrap().volumes.len(), 1, "nothing was written");

        // The handle is free once its volume is deregistered or gets another external id.
        system.deregister("data", false).await.unwrap();
        register(&system, "copy", "data").await.unwrap();
        let records = records(&system).await;
        assert_eq!(owner(&records, "data").await.as_deref(), Some("copy"));
        system.provision("more");
        register(&system, "copy", "more").await.unwrap();
        assert_eq!(owner(&records, "data").await, None);
        assert_eq!(owner(&records, "more").await.as_deref(), Some("copy"));
        register(&system, "data", "data").await.unwrap();
        system.run("a", 0, "copy").await;
        system.run("b", 1, "data").await;
        // A volume that is deregistered by force closes, and is removed with its last claim.
        system.stop("b").await;
        system.deregister("data", true).await.unwrap();
        wait::until("the handle is free", SOON, || async {
            owner(&records, "data").await.map_or(Ok(()), Err)
        })
        .await;
        register(&system, "anew", "data").await.unwrap();
        system.stop("a").await;
        system.freed("copy").await;
        system.judge();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_register_one_volume_at_once_one_wins() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    system.provision("data");
    let records = records(&system).await;
    for round in 0..4 {
        let names: Vec<String> = (0..24).map(|number| format!("v{round}-{number}")).collect();
        let requests = names.iter().map(|name| register(&system, name, "data"));
        let answers = futures_util::future::join_all(requests).await;
        let winners: Vec<&String> = names
            .iter()
            .zip(&answers)
            .filter_map(|(name, answer)| answer.is_ok().then_some(name))
            .collect();
        assert_eq!(winners.len(), 1, "{answers:#?}");
        let refusals = answers.iter().filter_map(|answer| answer.as_ref().err());
        let codes: BTreeSet<Code> = refusals.map(|problem| problem.code).collect();
        assert_eq!(codes, BTreeSet::from([Code::HandleTaken]), "{answers:#?}");
        assert_eq!(owner(&records, "data").await.as_ref(), Some(winners[0]));
        assert_eq!(system.volumes().await.unwrap().volumes.len(), 1);
        system.deregister(winners[0], false).await.unwrap();
    }
}

/// Checks that every spec has the key of its handle, and every such key its spec. Returns the
/// external ids.
async fn check_handles(records: &Bucket) -> BTreeSet<String> {
    let (mut specs, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for entry in records.list(">").await.unwrap().entries {
        let value = entry.value.unwrap();
        let value: Value = serde_json::from_slice(&value).unwrap();
        match key::parse_volume(&entry.key).unwrap() {
            VolumeEntry::Spec(volume) => {
                let external = value["external_id"].as_str().unwrap().to_owned();
                specs.insert((external, volume.volume.to_string()));
            }
            VolumeEntry::Handle(handle) => {
                keys.insert((handle.external_id, value["volume"].as_str().unwrap().to_owned()));
            }
            _ => {}
        }
    }
    assert_eq!(specs, keys);
    specs.into_iter().map(|(external, _)| external).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_volumes_are_registered_nothing_is_left_by_half() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    let records = records(&system).await;
    for id in 0..12 {
        system.provision(&format!("d{id}"));
    }
    for (round, part) in
        [Part::Claim, Part::Nats, Part::SecondClaim, Part::Nats].into_iter().enumerate()
    {
        // Two names are requested for each volume, and some are deregistered again.
        let work = (0..24).map(|number| {
            let (id, external) = (format!("r{round}-{number}"), format!("d{}", number / 2));
            let system = &system;
            async move {
                let registered = register(system, &id, &external).await;
                if registered.is_ok() && number % 4 < 2 {
                    system.deregister(&id, true).await.unwrap();
                }
                registered.is_ok()
            }
        });
        let kill = async {
            tokio::time::sleep(Duration::from_millis(40 + 30 * round as u64)).await;
            system.kill9_and_restart(part).await;
        };
        let (outcomes, ()) = tokio::join!(futures_util::future::join_all(work), kill);
        assert!(outcomes.iter().any(|registered| *registered), "round {round}");
        let registered_ids = check_handles(&records).await;
        assert!(!registered_ids.is_empty(), "round {round}");
        for volume in system.volumes().await.unwrap().volumes {
            system.deregister(volume.id.as_str(), true).await.unwrap();
        }
        assert!(check_handles(&records).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_version_registered_gets_its_key_and_a_key_without_a_volume_goes() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let records = records(&system).await;
    for id in ["old", "lost", "quick"] {
        system.provision(id);
    }
    // Registered without its key: another name is refused even before a repair.
    register_as_before(&records, "before", "old").await;
    let refused = register(&system, "copy", "old").await.unwrap_err();
    assert_eq!(refused.code, Code::HandleTaken, "{refused}");
    // A key that names an absent volume blocks no registration.
    let orphan = json!({"namespace": "default", "volume": "nobody", "schema": 1});
    write(&records, &handle("lost"), &handle("lost"), &orphan).await;
    register(&system, "copy", "lost").await.unwrap();
    assert_eq!(owner(&records, "lost").await.as_deref(), Some("copy"));
    // A claim writes the key itself, and does not wait for a repair.
    register_as_before(&records, "hasty", "quick").await;
    system.run("a", 0, "hasty").await;
    assert_eq!(owner(&records, "quick").await.as_deref(), Some("hasty"));
    write(&records, &handle("gone"), &handle("gone"), &orphan).await;
    system.kill9_and_restart(Part::Claim).await;
    wait::until("both keys are repaired", SOON, || async {
        let owners = (owner(&records, "old").await, owner(&records, "gone").await);
        if owners == (Some("before".to_owned()), None) {
            Ok(())
        } else {
            Err(format!("{owners:?}"))
        }
    })
    .await;
    system.stop("a").await;
    system.freed("hasty").await;
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_volume_that_was_registered_twice_neither_is_granted_nor_the_others_node_detached() {
    if !or_skip("real mounts") {
        return;
    }
    for attach in [true, false] {
        let system = System::start(Options { attach, ..Options::default() }).await;
        let records = records(&system).await;
        system.volume("data", &["single-node-writer"]).await;
        let mounted = system.run("a", 0, "data").await;
        // An older version registered a second name, and the plugin refused its publish.
        register_as_before(&records, "copy", "data").await;
        system.alloc("b", 0, "copy", false).await;
        let claim = json!({"state": "publishing", "tries": 1, "node": "n1", "mode": "write",
            "since": "2026-01-01T00:00:00Z", "access": "single-node-writer",
            "attachment": "file-system", "controller": attach, "external_node": "external-n1",
            "schema": 1});
        let copy = volume("copy");
        let key = key::claim(&copy, &AllocId::new("b").unwrap());
        write(&records, &key, &key::subtree(&copy), &claim).await;

        for (id, other) in [("data", "volume copy"), ("copy", "volume data")] {
            let status = system.volume_status(id).await.unwrap();
            assert_eq!(status.registered_twice, [other], "{status:?}");
            assert!(status.hint.unwrap().contains("berth volume deregister"));
            let alloc = format!("new-{id}");
            system.alloc(&alloc, 1, id, false).await;
            let refused = system.mount(&alloc, 1, id).await.unwrap_err();
            assert_eq!(refused.code, Code::RegisteredTwice, "{refused}");
            assert!(refused.to_string().contains(other), "{refused}");
            system.stop(&alloc).await;
        }
        let sentence = "it is the same volume of its plugin as volume …, so neither is granted";
        tells(&system, "data", "registered-twice", YOU, sentence).await;
        // A repeated request for an earlier grant is refused too.
        let refused = system.mount("b", 0, "copy").await.unwrap_err();
        assert_eq!(refused.code, Code::RegisteredTwice, "{refused}");
        let listed = system.volumes().await.unwrap().volumes;
        assert!(listed.iter().all(|volume| volume.registered_twice), "{listed:?}");
        let log = || system.daemon(Part::Claim).log();
        wait::until("the log warns", Duration::from_secs(60), || async {
            let has_warned = log().contains("registered more than once");
            if has_warned { Ok(()) } else { Err("the log has no warning") }
        })
        .await;

        // The second claim is released, and the node stays attached for the first.
        system.stop("b").await;
        if attach {
            let waiting = wait::until("the release waits for the other claim", SOON, || async {
                let claim = system.claims("copy").await.claims.pop().ok_or("the claim is gone")?;
                match &claim.waits_for {
                    Some(why) if why.contains("alloc a on volume data") => Ok(claim),
                    other => Err(format!("{:?} {other:?}", claim.state)),
                }
            })
            .await;
            assert_eq!(waiting.state, State::NodeDetached);
            assert!(waiting.hint.unwrap().contains("`berth alloc stop a`"));
            tokio::time::sleep(Duration::from_secs(4)).await;
            assert_eq!(count(&system, UNPUBLISH), 0, "the first claim's node was detached");
            assert_eq!(system.claims("copy").await.claims.len(), 1);
        }
        let file = std::path::Path::new(&mounted.path).join("file");
        std::fs::write(&file, "written").unwrap();
        system.stop("a").await;
        system.freed("data").await;
        system.freed("copy").await;
        assert_eq!(system.in_use("data"), None);

        // After one registration is deregistered, the other works normally.
        system.deregister("copy", false).await.unwrap();
        system.run("c", 1, "data").await;
        assert!(system.volume_status("data").await.unwrap().registered_twice.is_empty());
        assert_eq!(owner(&records, "data").await.as_deref(), Some("data"));
        system.stop("c").await;
        system.settle("data").await;
    }
}
