//! Forged reports of a node: a controller that it may not host, and the topology of another node.
//! Neither changes which controller is called for a volume.

use berth_access::Role;
use berth_bus::Bus;
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::node::Hold;
use berth_contract::message::registry::{Host, NodeReport, ReportedInstance};
use berth_contract::verb::{self, PluginOnNode, Verb as _};
use berth_domain::plugin::{ControllerAbilities, Half, Instance, NodeAbilities};
use berth_domain::volume::storage::SnapshotState;
use berth_domain::{Namespace, PluginId};
use berth_harness::root::or_skip;
use berth_harness::{storage, wait};
use berth_integration::{Options, PLUGIN, RECOVERY, System};
use berth_service::clock;
use serde_json::{Value, json};

use super::rogue::{holder_of, node, report_of, send};

const THIEF: &str = "n9";

fn plugin() -> PluginId {
    PluginId::new(PLUGIN).unwrap()
}

/// Connects as a node that may host these controllers, and takes its lease.
async fn connect_thief(system: &System, controllers: Vec<PluginId>) -> Bus {
    let role = Role::Node { node: node(THIEF), controllers };
    let bus = system.connect_as(&role, Actor::Node(node(THIEF))).await;
    let hold = Hold { holder: holder_of(THIEF), ttl_s: 60, over: None, renewal: None };
    send::<verb::NodeHold>(&bus, &(), &hold).await.unwrap();
    bus
}

/// A report of the plugin with a controller, and with the topology of node `n2`.
fn forged_report() -> NodeReport {
    let controller = ControllerAbilities {
        publish_unpublish_volume: true,
        create_delete_volume: true,
        ..ControllerAbilities::default()
    };
    let abilities = NodeAbilities {
        external_node: "external-n9".to_owned(),
        controller_service: true,
        topology: [("host".to_owned(), "h2".to_owned())].into(),
        ..NodeAbilities::default()
    };
    let instance = |controller, node| Instance {
        healthy: true,
        description: String::new(),
        provider: PLUGIN.to_owned(),
        version: "1".to_owned(),
        since: clock::now(),
        controller,
        node,
        id_since: None,
        process: None,
    };
    let half = |half, instance| ReportedInstance { plugin: plugin(), half, instance };
    let instances = vec![
        half(Half::Controller, instance(Some(controller), None)),
        half(Half::Node, instance(None, Some(abilities))),
    ];
    NodeReport { instances, ..report_of(THIEF) }
}

fn options() -> Options {
    let driver = |node| {
        let host = format!("host=h{}", node + 1);
        ["--bound", "--lenient", "--topology", &host].map(str::to_owned).to_vec()
    };
    Options { nodes: 2, driver, ..Options::default() }
}

fn volume_on(host: &str) -> Value {
    json!({"size": "1MiB", "topology": [{"host": host}]})
}

/// Waits until the thief is a ready node with this many plugin instances.
async fn await_counted(system: &System, instances: usize) {
    wait::until("the forged report is on record", RECOVERY, || async {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let thief = nodes.iter().find(|node| node.id.as_str() == THIEF);
        let thief = thief.map(|node| (node.state.to_string(), node.instances.len()));
        let expected = Some(("ready".to_owned(), instances));
        if thief == expected { Ok(()) } else { Err(format!("{thief:?}")) }
    })
    .await;
}

/// The drivers are lenient: each answers OK to the deletion of a volume that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_it_is_elsewhere_gets_no_call_and_diverts_none() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options()).await;
    let volumes = ["a", "b", "c", "d", "e", "f"];
    for volume in volumes {
        system.created(volume, volume_on("h2")).await;
    }
    system.snapshot(&["f"], "s", json!({})).await.unwrap();
    system.snapshot_is("f", "s", SnapshotState::Ready).await;

    let bus = connect_thief(&system, Vec::new()).await;
    let on_thief = PluginOnNode { plugin: plugin(), node: node(THIEF) };
    let refused = send::<verb::NodeHost>(&bus, &on_thief, &Host::default()).await.map(drop);
    assert_eq!(refused, Err(Code::NotAllowed));
    let reported = send::<verb::NodeReport>(&bus, &(), &forged_report()).await.unwrap();
    assert_eq!(reported.unproven, [plugin()]);
    await_counted(&system, 1).await;

    // No creation waits for the thief's controller, or goes to the controller of another topology.
    let new = ["new-1", "new-2", "new-3", "new-4"];
    for volume in new {
        system.created(volume, volume_on("h2")).await;
        let topologies = system.volume_status(volume).await.unwrap().topologies;
        assert_eq!(json!(topologies), json!([{"host": "h2"}]));
    }
    system.created("new", volume_on("h1")).await;
    for volume in new.into_iter().chain(["new"]) {
        system.deleted(volume).await;
    }
    for volume in volumes {
        system.deleted(volume).await;
    }
    system.snapshot_deleted("f", "s", false).await;
    let volumes = storage::volumes(&system.backend());
    assert!(volumes.is_empty(), "deleted volumes are at the storage: {volumes:?}");
    system.assert_known().await;
    system.judge();
}

/// The plugin's answer to a registration, or its list, shows which controller knows the volume.
/// That holds without a topology, for a snapshot of an unregistered volume, and after the forged
/// report.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_registered_or_adopted_stays_at_its_own_controller_too() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options()).await;
    let (early, late) = (["a", "b", "adopted", "nowhere", "cut"], ["late", "late-nowhere"]);
    for volume in early {
        register_again(&system, volume).await;
    }
    let bus = connect_thief(&system, Vec::new()).await;
    send::<verb::NodeReport>(&bus, &(), &forged_report()).await.unwrap();
    await_counted(&system, 1).await;
    for volume in late {
        register_again(&system, volume).await;
    }

    for volume in early.into_iter().chain(late) {
        system.deleted(volume).await;
    }
    system.snapshot_deleted("cut", "s", false).await;
    let (volumes, snapshots) =
        (storage::volumes(&system.backend()), storage::snapshots(&system.backend()));
    assert!(volumes.is_empty() && snapshots.is_empty(), "{volumes:?} {snapshots:?}");
    system.assert_known().await;
    system.judge();
}

/// Creates a volume at `h2`, deregisters it, and registers it again in the way that its id names.
async fn register_again(system: &System, volume: &str) {
    system.created(volume, volume_on("h2")).await;
    let external_id = system.volume_status(volume).await.unwrap().external_id.unwrap();
    let cut = if volume == "cut" { Some(forgotten_snapshot(system, volume).await) } else { None };
    system.deregister(volume, false).await.unwrap();
    if let Some(cut) = cut {
        run(system, &["snapshot", "adopt", PLUGIN, &cut, "cut@s"]).await;
    }
    if volume == "adopted" {
        return run(system, &["volume", "adopt", PLUGIN, &external_id, "--id", volume]).await;
    }
    let topology = if volume.ends_with("nowhere") { json!([]) } else { json!([{"host": "h2"}]) };
    let document = json!({
        "id": volume, "plugin": PLUGIN, "external_id": external_id, "topology": topology,
        "capability": [{"access": "single-node-writer"}],
    });
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &document).await.unwrap();
}

/// Cuts a snapshot and deletes its record only. Returns the plugin's id of the snapshot.
async fn forgotten_snapshot(system: &System, volume: &str) -> String {
    system.snapshot(&[volume], "s", json!({})).await.unwrap();
    system.snapshot_is(volume, "s", SnapshotState::Ready).await;
    let external_id = system.snapshots(volume).await.remove(0).external_id.unwrap();
    let forget = json!({"volume": volume, "snapshot": "s", "forget": true});
    let subject = verb::SnapshotDelete::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &forget).await.unwrap();
    system.snapshot_deleted(volume, "s", false).await;
    external_id
}

async fn run(system: &System, args: &[&str]) {
    let ran = system.berth().args(args).output().await.expect("berth runs");
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// The right to host one plugin's controller is no right to host another's.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_counts_where_the_identity_may_host_it() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let other = PluginId::new("other.berth").unwrap();
    let bus = connect_thief(&system, vec![other.clone()]).await;
    let may_host = async |plugin: &PluginId| {
        let on = PluginOnNode { plugin: plugin.clone(), node: node(THIEF) };
        send::<verb::NodeHost>(&bus, &on, &Host::default()).await.is_ok()
    };
    assert!(may_host(&other).await && !may_host(&plugin()).await);
    let mut both = forged_report();
    let of_other = both.instances.iter().cloned();
    let of_other = of_other.map(|half| ReportedInstance { plugin: other.clone(), ..half });
    let of_other: Vec<_> = of_other.collect();
    both.instances.extend(of_other);
    let reported = send::<verb::NodeReport>(&bus, &(), &both).await.unwrap();
    assert_eq!(reported.unproven, [plugin()]);
    await_counted(&system, 3).await;
}
