//! Services, plugins and the bus are down; records are unreadable; no alloc can get a volume.

use berth_contract::bucket;
use berth_harness::nats::raw;
use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};

use super::{NOBODY, OPERATOR, YOU, berth, tells};

const CLAIM_KEY: &str = "default.data.claim.a";

/// Writes a key as `nats kv put` does.
async fn put(system: &System, value: &[u8]) {
    let subject = format!("$KV.{}.{CLAIM_KEY}", bucket::VOLUMES.name);
    let stored = raw::ask(&system.servers()[0], &subject, &[], value).await;
    assert!(stored["seq"].is_u64(), "{stored}");
}

/// S7, S11, S12, a damaged record, a refused attach, and the bus.
#[tokio::test(flavor = "multi_thread")]
async fn why_tells_what_is_away_and_what_cannot_be_read() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, call_timeout_ms: 1_500, ..Options::default() };
    let system = System::start(options).await;
    for volume in ["data", "free", "refused"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.run("a", 0, "data").await;

    // S11: the volume is in use, and the state names its holder.
    system.deregister("data", false).await.unwrap_err();
    let used = tells(&system, "data", "nothing", NOBODY, "nothing to do").await;
    assert_eq!(used["state"], "taken by a on n1, mounted");

    // S12: the plugin is unhealthy. Existing mounts stay, and no new one begins.
    let down = |rpc: &str| json!({"rpc": rpc, "code": "UNAVAILABLE"});
    system.plant(0, &json!([down("GetPluginInfo"), down("Probe")]));
    let sentence = "the controller of plugin dev.berth on node n1 is unhealthy";
    for name in ["dev.berth", "volume/free", "n1"] {
        tells(&system, name, "plugin-down", OPERATOR, sentence).await;
    }
    system.plant(0, &json!([]));
    system.healthy().await;

    let attach =
        json!({"rpc": "ControllerPublishVolume", "volume": "refused", "code": "NOT_FOUND"});
    system.plant(0, &json!([attach]));
    system.alloc("r", 0, "refused", false).await;
    let sentence = "plugin dev.berth on node n1 answers ControllerPublishVolume with NOT_FOUND: …";
    let findings = async {
        tells(&system, "refused", "plugin-refuses", OPERATOR, sentence).await;
        tells(&system, "alloc/r", "plugin-refuses", OPERATOR, sentence).await;
    };
    tokio::select! {
        mounted = system.mount("r", 0, "refused") => panic!("{mounted:?}"),
        () = findings => {}
    }
    // No request follows: the claim is undone, and the error of its refusal stays visible.
    system.freed("refused").await;
    let sentence = "the last request for it was refused … ago: …NOT_FOUND…";
    tells(&system, "refused", "refused", OPERATOR, sentence).await;
    tells(&system, "alloc/r", "refused", OPERATOR, sentence).await;
    system.plant(0, &json!([]));
    system.stop("r").await;

    let records = system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
    let whole = records.get(CLAIM_KEY).await.unwrap().unwrap().value.unwrap();
    put(&system, b"{\"state\":\"tak").await;
    let finding = tells(&system, "data", "record-unreadable", YOU, "a record is damaged, …").await;
    assert_eq!(finding["next"][0], format!("nats kv get berth-volumes {CLAIM_KEY} --raw"));
    tells(&system, "alloc/a", "record-unreadable", YOU, "a record is damaged, …").await;
    put(&system, &whole).await;
    tells(&system, "data", "nothing", NOBODY, "nothing to do").await;

    // S7: the only watcher is killed.
    system.kill9(Part::Watcher);
    system.stop("a").await;
    let sentence = "no berth-volumewatcher answers, …";
    tells(&system, "data", "nobody-works", YOU, sentence).await;
    tells(&system, "alloc/a", "nobody-works", YOU, sentence).await;
    system.restart(Part::Watcher);
    system.freed("data").await;
    tells(&system, "data", "nothing", NOBODY, "nobody claims it, …").await;

    system.kill9(Part::Claim);
    let away = tells(&system, "data", "service-away", YOU, "no berth-claim answers, …").await;
    assert_eq!(away["next"][0], "nats micro ping berth-claim");
    tells(&system, "n1", "nothing", NOBODY, "its agent answers, …").await;
    system.restart(Part::Claim);
    system.healthy().await;

    // The only node is down.
    system.kill9(Part::Agent(0));
    tells(&system, "free", "node-down", YOU, "node n1 is down for …").await;
    system.restart(Part::Agent(0));
    system.healthy().await;
    system.settle("data").await;

    let (code, _) = berth(&system, &["why", "nothing-of-this-name"]).await;
    assert_eq!(code, Some(3));

    system.kill9(Part::Nats);
    let (code, out) = berth(&system, &["--json", "--timeout", "1s", "why", "data"]).await;
    let finding: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &finding["diagnoses"][0]["cause"]), (Some(4), &json!("bus-away")), "{out}");
    system.servers()[0].restart().await;
}
