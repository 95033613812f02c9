//! The access with which a volume is in use. The first claim fixes it, a claim with another access
//! is refused before the plugin is called, and the last release clears it (B3).

use berth_contract::code::Code;
use berth_contract::message::volume::{VolumeStatus, Volumes};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::access::{AccessMode, AttachmentMode, Capability};
use berth_domain::volume::State;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, RECOVERY, System};
use serde_json::{Value, json};

const SHARED: &str = "multi-node-multi-writer";
const ALONE: &str = "single-node-writer";
const READ: &str = "multi-node-reader-only";

fn files(access: AccessMode) -> Capability {
    Capability { access, attachment: AttachmentMode::FileSystem }
}

/// Registers an alloc on a node (from 0) that requests the volume with this access.
async fn register(system: &System, alloc: &str, node: usize, access: Value) {
    let mut request = json!({"source": "data"});
    request.as_object_mut().unwrap().extend(access.as_object().unwrap().clone());
    let body = json!({"id": alloc, "node": format!("n{}", node + 1), "volumes": [request]});
    let subject = verb::AllocRegister::subject(&Namespace::default());
    system.persist::<Value>(&subject, &body).await.unwrap();
}

/// The capability with which the volume is in use, by its status and by the list.
async fn in_use(system: &System) -> Option<Capability> {
    let VolumeStatus { in_use, .. } = system.volume_status("data").await.unwrap();
    let list = verb::VolumeList::subject(&Namespace::default());
    let listed: Volumes = system.persist(&list, &json!({})).await.unwrap();
    assert_eq!(listed.volumes[0].in_use, in_use);
    in_use
}

/// The calls about the volume that have begun on any node, with their arguments.
fn plugin_calls(system: &System) -> Vec<Value> {
    let calls = system.calls();
    let is_begin = |call: &Value| call["entry"] == "begin" && call["volume_id"] == "data";
    calls.into_iter().filter(is_begin).collect()
}

/// Sends an alloc's mount request, which must be refused with these parts in the error. The plugin
/// is not called, and no claim is left.
async fn check_refused(system: &System, alloc: &str, node: usize, parts: &[&str]) -> Problem {
    let before = plugin_calls(system);
    let problem = system.mount(alloc, node, "data").await.unwrap_err();
    assert_eq!((problem.code, problem.retryable), (Code::AccessInUse, false), "{problem}");
    for part in parts {
        assert!(problem.message.contains(part), "{part}: {problem}");
    }
    assert_eq!(plugin_calls(system), before, "the plugin was called");
    let claims = system.claims("data").await.claims;
    assert!(claims.iter().all(|claim| claim.alloc.as_str() != alloc), "{claims:#?}");
    problem
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_claim_fixes_the_way_of_use_and_the_last_release_clears_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &[SHARED, ALONE, READ]).await;
    let shared = files(AccessMode::MultiNodeMultiWriter);
    assert_eq!(in_use(&system).await, None);

    register(&system, "first", 0, json!({"access": SHARED})).await;
    // A request alone does not hold the volume.
    assert_eq!(in_use(&system).await, None);
    system.mount("first", 0, "data").await.unwrap();
    assert_eq!(in_use(&system).await, Some(shared));

    // Refused on the holder's node and on another, for writing and for reading.
    register(&system, "alone", 0, json!({"access": ALONE})).await;
    register(&system, "reader", 1, json!({"access": READ, "read_only": true})).await;
    let by_first = [SHARED, "held by alloc first on node n1"];
    check_refused(&system, "alone", 0, &[ALONE, by_first[0], by_first[1]]).await;
    check_refused(&system, "reader", 1, &[READ, by_first[0], by_first[1]]).await;
    assert_eq!(in_use(&system).await, Some(shared));

    // A claim with the same access joins, and keeps that access in use when the first is gone.
    register(&system, "second", 1, json!({"access": SHARED})).await;
    system.mount("second", 1, "data").await.unwrap();
    system.stop("first").await;
    wait::until("the first is gone", RECOVERY, || async {
        match system.claims("data").await.claims.len() {
            1 => Ok(()),
            others => Err(format!("{others} claims")),
        }
    })
    .await;
    assert_eq!(in_use(&system).await, Some(shared));
    check_refused(&system, "alone", 0, &["held by alloc second on node n2"]).await;

    // A release that has begun has not cleared the access yet.
    system.plant(1, &json!([{"rpc": "NodeUnpublishVolume", "code": "UNAVAILABLE"}]));
    system.stop("second").await;
    wait::until("the last release is under way", RECOVERY, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume is free")?;
        match (claim.state, claim.tries) {
            (State::Unpublishing, tries) if tries > 0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(in_use(&system).await, Some(shared));
    // The plugin is working on the release meanwhile, so only its publishes are counted here.
    let problem = system.mount("alone", 0, "data").await.unwrap_err();
    assert_eq!(problem.code, Code::AccessInUse, "{problem}");
    let is_attach = |call: &&Value| call["rpc"] == "ControllerPublishVolume";
    assert_eq!(plugin_calls(&system).iter().filter(is_attach).count(), 2, "for first and second");

    system.plant(1, &json!([]));
    system.freed("data").await;
    assert_eq!(in_use(&system).await, None);
    system.mount("alone", 0, "data").await.unwrap();
    assert_eq!(in_use(&system).await, Some(files(AccessMode::SingleNodeWriter)));
    // Now the other access is in use.
    register(&system, "third", 0, json!({"access": SHARED})).await;
    check_refused(&system, "third", 0, &[SHARED, ALONE, "held by alloc alone on node n1"]).await;

    system.stop("alone").await;
    system.settle("data").await;
    assert_eq!(in_use(&system).await, None);
    let access_mode =
        |call: &Value| call["args"]["volume_capability"]["access_mode"]["mode"].clone();
    let access_modes: Vec<Value> =
        plugin_calls(&system).iter().filter(is_attach).map(access_mode).collect();
    let csi = |mode: &str| json!(mode.replace('-', "_").to_uppercase());
    assert_eq!(access_modes, [csi(SHARED), csi(SHARED), csi(ALONE)]);
}
