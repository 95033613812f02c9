//! Drivers spread over several processes and hosts.

use std::process::Command;
use std::time::Duration;

use berth_contract::code::Code;
use berth_domain::plugin::Half;
use berth_harness::process::binary;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};

use super::{SOON, await_instance, await_rest, call_count, provision, register, use_on};

/// Each node is its own storage system, which its topology shows.
const BOUND: fn(usize) -> Vec<String> =
    |node| ["--bound".to_owned(), format!("--topology=host=n{}", node + 1)].into();
/// The controller on the first node, the node service on the second.
const SPLIT: fn(usize) -> Vec<String> =
    |node| ["--serve", if node == 0 { "controller" } else { "node" }].map(str::to_owned).into();

/// A monolith's controller knows only the volumes of its own node, and reports their topology.
#[tokio::test(flavor = "multi_thread")]
async fn a_monolith_bound_to_its_node_is_asked_there_and_nowhere_else() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { driver: BOUND, ..Options::default() }).await;
    for node in [1, 2] {
        let (id, external_node) = (format!("d{node}"), format!("external-n{node}"));
        provision(&system, &id, &["--node", &external_node]);
        let topology = json!({"topology": [{"HOST": format!("n{node}")}]});
        register(&system, &id, topology).await.expect("one controller knows the volume");
    }
    use_on(&system, 0, "d1").await;
    use_on(&system, 1, "d2").await;
    assert_eq!([0, 1].map(|node| call_count(&system, node, "ControllerPublishVolume")), [1, 1]);
    assert_eq!([0, 1].map(|node| call_count(&system, node, "ControllerUnpublishVolume")), [1, 1]);

    // A claim on another node is refused before any plugin call.
    system.alloc("astray", 1, "d1", false).await;
    let refused = system.mount("astray", 1, "d1").await.unwrap_err();
    assert_eq!(refused.code, Code::OutOfReach, "{refused}");
    assert!(refused.message.contains("reached in HOST=n1"), "{refused}");
    system.stop("astray").await;
    assert_eq!(call_count(&system, 1, "ControllerPublishVolume"), 1);
}

/// The driver may be down when the volume is to be detached. Then no other driver is called,
/// because it would know nothing of the volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_bound_monolith_that_is_away_is_waited_for() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { driver: BOUND, ..Options::default() }).await;
    provision(&system, "data", &["--node", "external-n1"]);
    register(&system, "data", json!({"topology": [{"host": "n1"}]})).await.unwrap();
    system.run("a", 0, "data").await;
    system.plant(0, &json!([{"rpc": "NodeUnstageVolume", "when": "after", "crash": true}]));
    system.stop("a").await;
    wait::until("the driver has ended", Duration::from_secs(30), || async {
        if call_count(&system, 0, "NodeUnstageVolume") > 0 { Ok(()) } else { Err("it runs") }
    })
    .await;
    let waiting = wait::until("the release waits", Duration::from_secs(30), || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the claim was freed")?;
        if claim.tries > 0 { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    assert!(waiting.failure.is_some(), "the claim shows the reason: {waiting:?}");
    system.plant(0, &json!([]));
    system.kill9_and_restart(Part::Driver(0)).await;
    await_rest(&system, "data").await;
    assert_eq!(call_count(&system, 1, "ControllerUnpublishVolume"), 0);
}

/// A client that registers a volume need not know its location: controllers are tried until one
/// knows it.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_one_of_many_monoliths_is_found() {
    if !or_skip("real mounts") {
        return;
    }
    let bound: fn(usize) -> Vec<String> = |_| vec!["--bound".to_owned()];
    let options = Options { nodes: 3, driver: bound, ..Options::default() };
    let system = System::start(options).await;
    for node in 0..3 {
        let (id, external_node) = (format!("d{node}"), format!("external-n{}", node + 1));
        provision(&system, &id, &["--node", &external_node]);
        // Once per controller that the bus may choose.
        for _ in 0..3 {
            register(&system, &id, json!({}))
                .await
                .expect("one of the controllers knows the volume");
        }
        use_on(&system, node, &id).await;
    }
    let unknown = super::try_register(&system, "nowhere", json!({})).await.unwrap_err();
    assert_eq!(unknown.code, Code::PluginFailed, "{unknown}");
    assert!(unknown.message.contains("3 of 3 controllers"), "{unknown}");
    assert!(unknown.next.contains("topology"), "{unknown:?}");
}

/// The plugin knows the volume's location. A registration with another topology is refused, because
/// the volume could be mounted nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_topology_that_contradicts_where_the_plugin_has_the_volume_is_refused() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { driver: BOUND, ..Options::default() }).await;
    provision(&system, "data", &["--node", "external-n1"]);
    // Each registration may reach another controller first.
    for _ in 0..3 {
        let topology = json!({"topology": [{"host": "n2"}]});
        let refused = super::try_register(&system, "data", topology).await.unwrap_err();
        assert_eq!(refused.code, Code::BadInput, "{refused}");
        assert_eq!(refused.faults[0].path, "topology", "{refused:?}");
        for part in ["has the volume on node n1", "host=n1", "does not know it on node n2"] {
            assert!(refused.faults[0].problem.contains(part), "{refused:?}");
        }
    }
    // Topologies that the plugin does not contradict are accepted: the right one, several or none.
    for topology in [json!([{"host": "n1"}]), json!([{"host": "n2"}, {"host": "n1"}]), json!([])] {
        register(&system, "data", json!({ "topology": topology })).await.unwrap();
    }
    use_on(&system, 0, "data").await;
}

/// One host runs the controller only, and another host the node service only.
#[tokio::test(flavor = "multi_thread")]
async fn controller_and_node_are_on_different_hosts() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { driver: SPLIT, healthy: Some((1, 1)), ..Options::default() };
    let system = System::start(options).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.unwrap();
    use_on(&system, 1, "data").await;
    assert_eq!(call_count(&system, 0, "ControllerPublishVolume"), 1);
    assert_eq!(call_count(&system, 1, "NodeStageVolume"), 1);

    system.alloc("astray", 0, "data", false).await;
    // The claim waits, and its caller gets the reason; on a busy machine, at a later retry.
    wait::until("the error names what is missing", SOON, || async {
        let refused = system.try_mount("astray", 0, "data").await.unwrap_err();
        let names_it = refused.message.contains("no instance on node n1");
        if names_it { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    system.stop("astray").await;
}

/// A plugin without a controller and without staging: it can only publish.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_service_that_can_only_publish() {
    if !or_skip("real mounts") {
        return;
    }
    let bare: fn(usize) -> Vec<String> =
        |_| vec!["--without=stage,mount-group,expand-node".to_owned()];
    let options = Options { controller: false, driver: bare, ..super::one_node() };
    let system = super::use_with(options).await;
    let node = await_instance(&system, "n1", Half::Node, |_| true).await;
    let driver = Command::new(binary("berth-csi-dev")).arg("--version").output().unwrap();
    let version = String::from_utf8(driver.stdout).unwrap();
    assert_eq!(node["version"].as_str(), version.split_whitespace().nth(1), "{node}");
    assert_eq!(call_count(&system, 0, "NodeStageVolume"), 0);
}

/// The node's driver does not know that the controller attaches. No call could name the node to
/// detach from.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_half_without_an_id_gets_no_claim_where_another_host_attaches() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { driver: SPLIT, healthy: Some((1, 1)), ..Options::default() };
    let system = System::start(options).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    system.plant(1, &json!([{"rpc": "NodeGetInfo", "answer": {"node_id": ""}}]));
    system.kill9_and_restart(Part::Driver(1)).await;
    let says_so = |node: &Value| {
        let description = node["description"].as_str().unwrap_or_default();
        node["healthy"] == false && description.contains("gives this one no id")
    };
    await_instance(&system, "n2", Half::Node, says_so).await;
    system.alloc("a", 1, "data", false).await;
    let refused = wait::until("the claim is refused", SOON, || async {
        let refused = system.try_mount("a", 1, "data").await.unwrap_err();
        // The agent may not know yet that its node is registered.
        if refused.code == Code::NodeReturning { Err(refused.to_string()) } else { Ok(refused) }
    })
    .await;
    assert_eq!(refused.code, Code::PluginUnhealthy, "{refused}");
    assert!(refused.message.contains("gives this one no id"), "{refused}");
    assert_eq!(call_count(&system, 0, "ControllerPublishVolume"), 0);
    assert!(system.claims("data").await.claims.is_empty());
    system.stop("a").await;
    system.plant(1, &json!([]));
    system.kill9_and_restart(Part::Driver(1)).await;
    await_instance(&system, "n2", Half::Node, |node| node["healthy"] == true).await;
    use_on(&system, 1, "data").await;
}
