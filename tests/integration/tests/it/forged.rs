//! Reports of what a node does not have: a controller that it may not host, and a place where it is
//! not. Neither changes who is called for a volume.

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

/// A node that was given no controller, and holds its lease.
async fn thief(system: &System, controllers: Vec<PluginId>) -> Bus {
    let role = Role::Node { node: node(THIEF), controllers };
    let bus = system.connect_as(&role, Actor::Node(node(THIEF))).await;
    let hold = Hold { holder: holder_of(THIEF), ttl_s: 60, over: None, renewal: None };
    send::<verb::NodeHold>(&bus, &(), &hold).await.unwrap();
    bus
}

/// Says that it has the plugin with a controller, and is where node `n2` is.
fn forged() -> NodeReport {
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

fn on(host: &str) -> Value {
    json!({"size": "1MiB", "topology": [{"host": host}]})
}

/// The thief counts as a node that has the plugin.
async fn is_counted(system: &System, halves: usize) {
    wait::until("the forged report is on record", RECOVERY, || async {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let known = nodes.iter().find(|known| known.id.as_str() == THIEF);
        let known = known.map(|known| (known.state.to_string(), known.instances.len()));
        let expected = Some(("ready".to_owned(), halves));
        if known == expected { Ok(()) } else { Err(format!("{known:?}")) }
    })
    .await;
}

/// Each driver answers the deletion of a volume that it does not know with OK.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_it_is_elsewhere_gets_no_call_and_diverts_none() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options()).await;
    let volumes = ["a", "b", "c", "d", "e", "f"];
    for volume in volumes {
        system.created(volume, on("h2")).await;
    }
    system.snapshot(&["f"], "s", json!({})).await.unwrap();
    system.snapshot_is("f", "s", SnapshotState::Ready).await;

    let bus = thief(&system, Vec::new()).await;
    let on_thief = PluginOnNode { plugin: plugin(), node: node(THIEF) };
    let shown = send::<verb::NodeHost>(&bus, &on_thief, &Host::default()).await.map(drop);
    assert_eq!(shown, Err(Code::NotAllowed), "it has no such right");
    let told = send::<verb::NodeReport>(&bus, &(), &forged()).await.unwrap();
    assert_eq!(told.unproven, [plugin()]);
    is_counted(&system, 1).await;

    // No creation waits for the controller that is not there, or goes to another place's.
    let new = ["new-1", "new-2", "new-3", "new-4"];
    for volume in new {
        system.created(volume, on("h2")).await;
        let made = system.volume_status(volume).await.unwrap().topologies;
        assert_eq!(json!(made), json!([{"host": "h2"}]));
    }
    system.created("new", on("h1")).await;
    for volume in new.into_iter().chain(["new"]) {
        system.deleted(volume).await;
    }
    for volume in volumes {
        system.deleted(volume).await;
    }
    system.snapshot_deleted("f", "s", false).await;
    let left = storage::volumes(&system.backend());
    assert!(left.is_empty(), "what is deleted is gone: {left:?}");
    system.assert_known().await;
    system.judge();
}

/// What the plugin answered at a registration, or listed, showed where it is: also without a
/// topology, for a snapshot whose volume is not registered then, and after the forged report.
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
    let bus = thief(&system, Vec::new()).await;
    send::<verb::NodeReport>(&bus, &(), &forged()).await.unwrap();
    is_counted(&system, 1).await;
    for volume in late {
        register_again(&system, volume).await;
    }

    for volume in early.into_iter().chain(late) {
        system.deleted(volume).await;
    }
    system.snapshot_deleted("cut", "s", false).await;
    let left = (storage::volumes(&system.backend()), storage::snapshots(&system.backend()));
    assert!(left.0.is_empty() && left.1.is_empty(), "what is deleted is gone: {left:?}");
    system.assert_known().await;
    system.judge();
}

/// Creates a volume at `h2`, forgets it, and registers it as its name says.
async fn register_again(system: &System, volume: &str) {
    system.created(volume, on("h2")).await;
    let external_id = system.volume_status(volume).await.unwrap().external_id.unwrap();
    let cut = if volume == "cut" { Some(forgotten_snapshot(system, volume).await) } else { None };
    system.deregister(volume, false).await.unwrap();
    if let Some(cut) = cut {
        run(system, &["snapshot", "adopt", PLUGIN, &cut, "cut@s"]).await;
    }
    if volume == "adopted" {
        return run(system, &["volume", "adopt", PLUGIN, &external_id, "--id", volume]).await;
    }
    let place = if volume.ends_with("nowhere") { json!([]) } else { json!([{"host": "h2"}]) };
    let document = json!({
        "id": volume, "plugin": PLUGIN, "external_id": external_id, "topology": place,
        "capability": [{"access": "single-node-writer"}],
    });
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &document).await.unwrap();
}

/// Cuts a snapshot that stays at the storage alone. Returns the plugin's id of it.
async fn forgotten_snapshot(system: &System, volume: &str) -> String {
    system.snapshot(&[volume], "s", json!({})).await.unwrap();
    system.snapshot_is(volume, "s", SnapshotState::Ready).await;
    let cut = system.snapshots(volume).await.remove(0).external_id.unwrap();
    let forget = json!({"volume": volume, "snapshot": "s", "forget": true});
    let subject = verb::SnapshotDelete::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &forget).await.unwrap();
    system.snapshot_deleted(volume, "s", false).await;
    cut
}

async fn run(system: &System, args: &[&str]) {
    let ran = system.berth().args(args).output().await.expect("berth runs");
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// A right to one plugin's controller is none to another's.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_counts_where_the_identity_may_host_it() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let other = PluginId::new("other.berth").unwrap();
    let bus = thief(&system, vec![other.clone()]).await;
    let show = async |plugin: &PluginId| {
        let on = PluginOnNode { plugin: plugin.clone(), node: node(THIEF) };
        send::<verb::NodeHost>(&bus, &on, &Host::default()).await.is_ok()
    };
    assert!(show(&other).await && !show(&plugin()).await);
    let mut both = forged();
    let of_other = both.instances.iter().cloned();
    let of_other = of_other.map(|half| ReportedInstance { plugin: other.clone(), ..half });
    let of_other: Vec<_> = of_other.collect();
    both.instances.extend(of_other);
    let told = send::<verb::NodeReport>(&bus, &(), &both).await.unwrap();
    assert_eq!(told.unproven, [plugin()]);
    is_counted(&system, 3).await;
}
