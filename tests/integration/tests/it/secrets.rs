//! A1, A9 and Safety 6: secrets reach the plugin calls that need them, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::storage::{SnapshotState, Stage};
use berth_domain::{Namespace, NodeId};
use berth_harness::otlp::Collector;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System, Version};
use serde_json::{Value, json};

const SECRET: &str = "hunter2-correct-horse";
const OTHER: &str = "hunter3-battery-staple";

/// Registers the volume with this secret, as a user does.
async fn register(system: &System, secret: &str) -> std::process::Output {
    let text = format!(
        "id = 'data'\nplugin = 'dev.berth'\n[[capability]]\naccess = 'single-node-writer'\n\
         [secrets]\npassword = '{secret}'\n"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    system
        .berth()
        .args(["volume", "register", "--json", "--timeout", "20s"])
        .arg(file.path())
        .env("BERTH_NATS_URL", system.url())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("berth runs")
}

/// Files below a directory that contain one of the texts.
fn mentions(dir: &Path, texts: &[&str]) -> Vec<PathBuf> {
    let (mut to_read, mut matching, mut files_read) = (vec![dir.to_owned()], Vec::new(), 0);
    while let Some(path) = to_read.pop() {
        if path.is_dir() {
            to_read.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            files_read += 1;
            let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
            if texts.iter().any(|text| has(text)) {
                matching.push(path);
            }
        }
    }
    assert!(
        files_read > 2,
        "too few files to have read logs, journals and the bus's store: {files_read}"
    );
    matching
}

/// Waits until the collector has spans of these plugin calls.
async fn collected(collector: &Collector, rpcs: &[&str]) {
    wait::until("the collector has the calls", Duration::from_secs(30), || async {
        let spans = collector.spans();
        let missing: Vec<_> = rpcs.iter().filter(|rpc| spans.named(rpc).0.is_empty()).collect();
        let counted = !collector.metrics("berth.plugin.calls").is_empty();
        let is_complete = missing.is_empty() && counted;
        if is_complete { Ok(()) } else { Err(format!("without {missing:?}, counted: {counted}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn safety_6_secrets_reach_the_calls_that_need_them_and_nothing_else() {
    if !or_skip("real mounts") {
        return;
    }
    let collector = Collector::start().await;
    let otlp = collector.http().rsplit(':').next().and_then(|port| port.parse().ok());
    let system = System::start(Options { secret: Some(SECRET), otlp, ..Options::default() }).await;
    system.provision("data");

    // Without secrets, and with a wrong one, the plugin refuses; nothing is registered.
    let plain = json!({"id": "data", "plugin": "dev.berth",
        "capability": [{"access": "single-node-writer"}]});
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let refused = system.ask::<Value>(&subject, &plain).await.unwrap_err();
    assert!(refused.message.contains("UNAUTHENTICATED"), "{refused}");
    let wrong = register(&system, OTHER).await;
    assert!(!wrong.status.success(), "{wrong:?}");
    let stderr = String::from_utf8_lossy(&wrong.stderr);
    assert!(stderr.contains("UNAUTHENTICATED") && !stderr.contains(OTHER), "{stderr}");
    assert_eq!(system.volume_status("data").await.unwrap_err().code, Code::NoSuchVolume);

    // With the right secret everything works, even after every process was killed.
    let registered = register(&system, SECRET).await;
    assert!(registered.status.success(), "{registered:?}");
    let repeated = register(&system, SECRET).await;
    let repeated: Value = serde_json::from_slice(&repeated.stdout).unwrap();
    assert_eq!(repeated["changed"], false, "A4: a repetition changes nothing");
    for (round, node) in [(0, 0), (1, 1)] {
        let alloc = format!("a{round}");
        system.run(&alloc, node, "data").await;
        // A killed process never sends its buffered spans.
        collected(&collector, &["csi.v1.Node/NodeStageVolume", "csi.v1.Node/NodePublishVolume"])
            .await;
        collected(&collector, &["csi.v1.Controller/ControllerPublishVolume"]).await;
        for part in [Part::Claim, Part::Watcher, Part::Agent(node)] {
            system.kill9_and_restart(part).await;
        }
        system.healthy().await;
        system.stop(&alloc).await;
        system.settle("data").await;
    }

    // An update without secrets keeps the stored ones. A service without a part in the volume gets
    // none, and does not learn whether the volume exists.
    let renamed = json!({"id": "data", "name": "Data", "plugin": "dev.berth",
        "capability": [{"access": "single-node-writer"}]});
    system.persist::<Value>(&subject, &renamed).await.unwrap();
    let status = system.volume_status("data").await.unwrap();
    assert!(status.has_secrets && status.name == "Data", "{status:?}");
    let stranger = verb::SecretOpen::subject(&NodeId::new("stranger").unwrap());
    let open = json!({"namespace": "default", "volume": "data", "secrets": "guess", "to": "X"});
    let refused = system.ask::<Value>(&stranger, &open).await.unwrap_err();
    assert_eq!(refused.code, Code::SecretsUnavailable, "{refused}");
    // The volume's own nodes get none either, since no call is due there any more.
    let node = verb::SecretOpen::subject(&NodeId::new("n1").unwrap());
    let refused = system.ask::<Value>(&node, &open).await.unwrap_err();
    assert_eq!(refused.code, Code::SecretsUnavailable, "{refused}");

    // A deleted volume leaves no secrets.
    let deregister = verb::VolumeDeregister::subject(&Namespace::default());
    system.persist::<Value>(&deregister, &json!({"id": "data"})).await.unwrap();
    let bucket = system.bus.bucket(&berth_contract::bucket::SECRETS, 1).await.unwrap();
    assert_eq!(bucket.list(">").await.unwrap().entries, []);

    for dir in [system.dir().path(), &system.nats_dir()] {
        assert_eq!(mentions(dir, &[SECRET, OTHER]), Vec::<PathBuf>::new());
    }
    collected(&collector, &["csi.v1.Controller/ControllerUnpublishVolume"]).await;
    for secret in [SECRET, OTHER] {
        assert!(!collector.mentions(secret), "a span or metric mentions the secret");
    }
}

/// The secrets of a class reach the calls that create, grow, snapshot and delete: each call gets
/// its own secrets. They are deleted with the last record that needs them.
#[tokio::test(flavor = "multi_thread")]
async fn safety_6_secrets_of_a_class_reach_each_call_of_the_storage() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { secret: Some(SECRET), nodes: 1, ..Options::default() };
    let system = System::start(options).await;
    let calls = ["create", "delete", "publish", "stage", "expand", "snapshot"];
    let mut secrets = json!({"password": OTHER});
    for call in calls {
        secrets[format!("{call}/password")] = json!(SECRET);
    }
    system.class("safe", json!({"secrets": secrets})).await.unwrap();
    system.class("wrong", json!({"secrets": {"password": OTHER}})).await.unwrap();
    system.create("no", json!({"class": "wrong", "size": "1MiB"})).await.unwrap();
    let storage = system.staged_as("no", Stage::Failed).await;
    let error = storage.failure.expect("the creation is refused").failure.message;
    assert!(error.contains("UNAUTHENTICATED") && !error.contains(OTHER), "{error}");
    system.deleted("no").await;

    system.created("data", json!({"class": "safe", "size": "1MiB"})).await;
    // No volume may be created in the namespace in which the secrets of classes are stored.
    let class_namespace = verb::VolumeCreate::subject(&Namespace::new("=class").unwrap());
    let body = json!({"id": "safe", "class": "safe", "size": "1MiB"});
    let refused = system.ask::<Value>(&class_namespace, &body).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput, "{refused}");
    // The class may go: its secrets were copied.
    let delete = verb::ClassDelete::subject(&());
    let used = system.ask::<Value>(&delete, &json!({"id": "safe"})).await.unwrap_err();
    assert_eq!(used.code, Code::ClassInUse, "{used}");
    system.snapshot(&["data"], "s", json!({})).await.unwrap();
    system.snapshot_is("data", "s", SnapshotState::Ready).await;
    system.expand("data", json!({"size": "2MiB"})).await.unwrap();
    system.run("a", 0, "data").await;
    for part in [Part::Claim, Part::Watcher, Part::Agent(0)] {
        system.kill9_and_restart(part).await;
    }
    system.healthy().await;
    system.stop("a").await;
    system.settle("data").await;
    system.staged_as("data", Stage::Ready).await;
    system.deleted("data").await;
    system.snapshot_deleted("data", "s", false).await;
    system.assert_known().await;
    for class in ["safe", "wrong"] {
        system.persist::<Value>(&delete, &json!({"id": class})).await.unwrap();
    }
    let bucket = system.bus.bucket(&berth_contract::bucket::SECRETS, 1).await.unwrap();
    assert_eq!(bucket.list(">").await.unwrap().entries, [], "no secrets are left");
    for dir in [system.dir().path(), &system.nats_dir()] {
        assert_eq!(mentions(dir, &[SECRET, OTHER]), Vec::<PathBuf>::new());
    }
    system.judge();
}

/// Secrets change while the volume is claimed, and the release uses the new ones.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_may_change_under_a_claim() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { secret: Some(SECRET), ..Options::default() }).await;
    system.provision("data");
    assert!(register(&system, SECRET).await.status.success());
    system.run("a", 0, "data").await;
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let both = json!({"id": "data", "plugin": "dev.berth",
        "capability": [{"access": "single-node-writer"}],
        "secrets": {"password": SECRET, "user": OTHER}});
    let changed: Value = system.persist(&subject, &both).await.unwrap();
    assert_eq!(changed["changed"], true);
    let bucket = system.bus.bucket(&berth_contract::bucket::SECRETS, 1).await.unwrap();
    assert_eq!(bucket.list(">").await.unwrap().entries.len(), 1, "the old secrets are deleted");
    system.stop("a").await;
    system.settle("data").await;
}

/// As in `docs/access.md`: put the new key before the old one, seal every volume's secrets again,
/// and remove the old key.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_that_secrets_are_sealed_for_rotates() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, secret: Some(SECRET), ..Options::default() };
    let system = System::start(options).await;
    system.volume_with_secrets("data", SECRET).await;
    let key_file = system.dir().join("secrets.key");
    let old = std::fs::read_to_string(&key_file).unwrap();
    let (new, _) = berth_service::seal::new_seed().unwrap();
    let restart_with_keys = async |keys: String| {
        std::fs::write(&key_file, keys).unwrap();
        system.install(Part::Claim, Version::This).await;
        system.healthy().await;
    };
    let is_usable = async |alloc: &str| {
        system.run(alloc, 0, "data").await;
        system.stop(alloc).await;
        system.freed("data").await;
    };

    is_usable("old").await;
    restart_with_keys(format!("{new}\n{old}")).await;
    is_usable("both").await;
    assert!(register(&system, SECRET).await.status.success());
    restart_with_keys(new).await;
    is_usable("new").await;
    restart_with_keys(old).await;
    system.alloc("lost", 0, "data", false).await;
    let refused = system.try_mount("lost", 0, "data").await.unwrap_err();
    assert!(refused.to_string().contains("BERTH0117"), "{refused}");
}
