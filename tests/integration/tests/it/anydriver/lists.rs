//! What drivers say that they have: lists in pages, and `ControllerGetVolume`.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use berth_contract::message::snapshot::SnapshotsChanged;
use berth_contract::message::storage::{ExternalVolume, Externals, Registration};
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::storage::SnapshotState;
use berth_harness::root::or_skip;
use berth_integration::{Options, PLUGIN, System};
use serde_json::{Value, json};

use super::{call_count, one_node, provision, register};

/// Volumes that a test registers.
const IDS: [&str; 9] = ["v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"];

async fn provisioned(options: Options) -> System {
    let system = System::start(options).await;
    for id in IDS {
        provision(&system, id, &[]);
        register(&system, id, json!({})).await.expect("the volume is registered");
    }
    system
}

async fn page(system: &System, query: &Value) -> Externals {
    let subject = verb::VolumeExternal::subject(&Namespace::default());
    system.persist(&subject, query).await.expect("the plugin's list")
}

/// The pages from this request on.
async fn pages(system: &System, mut query: Value) -> Vec<Externals> {
    let mut pages = Vec::new();
    loop {
        let page = page(system, &query).await;
        query["after"] = json!(page.next);
        let is_last = page.next.is_none();
        pages.push(page);
        assert!(pages.len() < 100, "the list ends");
        if is_last {
            return pages;
        }
    }
}

fn ids(pages: &[Externals], registration: Registration) -> BTreeSet<&str> {
    let entries = pages.iter().flat_map(|page| &page.volumes);
    let matching = entries.filter(|entry| entry.registration == registration);
    matching.map(|entry| entry.listed.external_id.as_str()).collect()
}

/// The list lacks nothing and says that it lacks nothing.
fn assert_whole(pages: &[Externals]) {
    assert_eq!(ids(pages, Registration::Known), BTreeSet::from(IDS), "{pages:?}");
    assert_eq!(ids(pages, Registration::NotListed), BTreeSet::new(), "{pages:?}");
    assert!(pages.iter().all(|page| !page.truncated && page.not_asked.is_empty()), "{pages:?}");
}

fn list_calls(system: &System) -> [usize; 2] {
    [0, 1].map(|node| call_count(system, node, "ListVolumes"))
}

/// The node (from 0) whose controller the page's `next` names.
fn node_of(page: &Externals) -> usize {
    let cursor: Value = serde_json::from_str(page.next.as_deref().unwrap()).unwrap();
    let node = cursor["listed"]["position"]["node"].as_str().unwrap().to_owned();
    ["n1", "n2"].iter().position(|name| *name == node).unwrap()
}

/// vsphere-csi#2079: the driver keeps its list in the process that began it.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_read_to_its_end_at_the_controller_that_began_it() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--list-pages=process".to_owned()];
    let system = provisioned(Options { driver, ..Options::default() }).await;
    let mut before = list_calls(&system);
    for _ in 0..6 {
        let pages = pages(&system, json!({"plugin": PLUGIN, "limit": 2})).await;
        assert_whole(&pages);
        let now = list_calls(&system);
        let made = [now[0] - before[0], now[1] - before[1]];
        assert!(made.contains(&0), "one controller is asked: {made:?}");
        assert_eq!(made[0] + made[1], 5, "each page is asked for once");
        before = now;
    }
}

/// A volume that is registered and not listed is told at the end, whatever the pages.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_listed_is_told_after_all_pages() {
    if !or_skip("real mounts") {
        return;
    }
    let system = provisioned(Options::default()).await;
    let volumes = system.backend().join("volumes");
    for gone in ["v3", "v7"] {
        std::fs::remove_dir_all(volumes.join(gone)).expect("it is removed without Berth");
    }
    provision(&system, "x1", &[]);
    for limit in [1, 3, 8, 100] {
        let pages = pages(&system, json!({"plugin": PLUGIN, "limit": limit})).await;
        let missing = ids(&pages, Registration::NotListed);
        assert_eq!(missing, BTreeSet::from(["v3", "v7"]), "limit {limit}: {pages:?}");
        assert_eq!(ids(&pages, Registration::Known).len(), IDS.len() - 2, "{pages:?}");
        assert_eq!(ids(&pages, Registration::NotRegistered), BTreeSet::from(["x1"]));
    }
}

/// The node goes away, or its plugin forgets the token.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_begins_again_when_its_controller_cannot_go_on() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--list-pages=process".to_owned()];
    let system = provisioned(Options { driver, ..Options::default() }).await;
    for code in ["ABORTED", "UNAVAILABLE"] {
        let query = json!({"plugin": PLUGIN, "limit": 2});
        let first = page(&system, &query).await;
        let node = node_of(&first);
        system.plant(node, &json!([{"rpc": "ListVolumes", "when": "before", "code": code}]));
        let before = list_calls(&system)[1 - node];
        let rest = json!({"plugin": PLUGIN, "limit": 2, "after": first.next});
        let rest = pages(&system, rest).await;
        assert!(list_calls(&system)[1 - node] > before, "the other controller is asked");
        let all: Vec<Externals> = [first].into_iter().chain(rest).collect();
        assert_whole(&all);
        system.plant(node, &json!([]));
    }
    // No controller can go on: the list says what it lacks.
    let first = page(&system, &json!({"plugin": PLUGIN, "limit": 2})).await;
    for node in [0, 1] {
        system.plant(node, &json!([{"rpc": "ListVolumes", "when": "before", "code": "INTERNAL"}]));
    }
    let rest = json!({"plugin": PLUGIN, "limit": 2, "after": first.next});
    let rest = pages(&system, rest).await;
    assert!(rest.iter().any(|page| !page.not_asked.is_empty()), "{rest:?}");
    assert_eq!(ids(&rest, Registration::NotListed), BTreeSet::new(), "{rest:?}");
}

/// A `next` comes from the client.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_position_in_a_list_is_refused_or_ends() {
    if !or_skip("real mounts") {
        return;
    }
    let system = provisioned(one_node()).await;
    let subject = verb::VolumeExternal::subject(&Namespace::default());
    for after in ["x", "{}", r#"["known","v1",""]"#, r#"{"listed":{"position":{"node":"*"}}}"#] {
        let query = json!({"plugin": PLUGIN, "after": after});
        let refused = system.ask::<Value>(&subject, &query).await.unwrap_err();
        assert_eq!(refused.faults[0].path, "after", "{refused:?}");
    }
    let forged = |node: &str, token: &str| {
        let position = json!({"node": node, "token": token, "skip": u64::MAX, "pages": u64::MAX,
            "restarts": u64::MAX});
        let tally = json!({"has_gaps": false, "known": 0});
        json!({"listed": {"position": position, "tally": tally}}).to_string()
    };
    for after in [forged("n1", "no such token"), forged("n1", ""), forged("no-such-node", "a")] {
        let query = json!({"plugin": PLUGIN, "after": after});
        let pages = pages(&system, query).await;
        assert!(ids(&pages, Registration::Known).is_empty(), "{pages:?}");
        assert_eq!(ids(&pages, Registration::NotListed), BTreeSet::new(), "{pages:?}");
    }
}

/// Upstream's hostpath driver ends its list with the first page.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_page_without_a_token_is_asked_for_with_more_room() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--list-pages=cut".to_owned()];
    let system = provisioned(Options { driver, ..one_node() }).await;
    for limit in [2, 3, 9, 100] {
        assert_whole(&pages(&system, json!({"plugin": PLUGIN, "limit": limit})).await);
    }
    for snapshot in ["a", "b", "c"] {
        system.snapshot(&["v1"], snapshot, json!({})).await.unwrap();
        system.snapshot_is("v1", snapshot, SnapshotState::Ready).await;
    }
    let snapshots = json!({"plugin": PLUGIN, "snapshots": true, "limit": 2});
    let snapshots = pages(&system, snapshots).await;
    let listed: usize = snapshots.iter().map(|page| page.snapshots.len()).sum();
    assert_eq!(listed, 3, "{snapshots:?}");
}

fn bound(more: &[&str]) -> Vec<String> {
    [&["--bound", "--get-anything"], more].concat().into_iter().map(str::to_owned).collect()
}

fn place(node: usize) -> String {
    format!("--topology=host=h{}", node + 1)
}

/// Each host has its own storage, and upstream's hostpath driver answers OK about any id.
async fn adopts_at_its_host(driver: fn(usize) -> Vec<String>) {
    let system = System::start(Options { driver, ..Options::default() }).await;
    for node in [1, 2] {
        provision(&system, &format!("d{node}"), &["--node", &format!("external-n{node}")]);
    }
    // Bound instances share what has no node: here, two volumes of one id.
    provision(&system, "both", &[]);
    let adopt = async |id: &str| {
        let mut berth = system.berth();
        berth.args(["--timeout", "30s", "volume", "adopt", PLUGIN, id]).stdin(Stdio::null());
        berth.output().await.expect("berth runs")
    };
    for (id, host) in [("d2", "h2"), ("d1", "h1")] {
        let query = json!({"plugin": PLUGIN, "id": id});
        let found = pages(&system, query).await;
        let found: Vec<&ExternalVolume> = found.iter().flat_map(|page| &page.volumes).collect();
        let [found] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(json!(found.listed.topologies), json!([{"host": host}]), "{found:?}");
        let adopted = adopt(id).await;
        assert!(adopted.status.success(), "{adopted:?}");
        let status = system.volume_status(id).await.unwrap();
        assert_eq!(json!(status.topologies), json!([{"host": host}]), "{status:?}");
    }
    let twice = adopt("both").await;
    let words = String::from_utf8_lossy(&twice.stderr).into_owned();
    assert!(!twice.status.success() && words.contains("host=h1, and in host=h2"), "{words}");
    let unknown = adopt("no-such").await;
    let words = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && words.contains("lists no volume no-such"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_one_host_is_adopted_from_the_list() {
    if !or_skip("real mounts") {
        return;
    }
    adopts_at_its_host(|node| bound(&[&place(node)])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_one_host_is_adopted_where_the_driver_only_lists() {
    if !or_skip("real mounts") {
        return;
    }
    adopts_at_its_host(|node| bound(&[&place(node), "--without=get-volume"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_one_host_is_adopted_where_the_driver_cannot_list() {
    if !or_skip("real mounts") {
        return;
    }
    adopts_at_its_host(|node| bound(&[&place(node), "--without=list"])).await;
}

/// One storage: what `ControllerGetVolume` does not show is looked for in the list.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_about_any_id_shows_no_volume_of_one_storage() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--get-anything".to_owned()];
    let system = System::start(Options { driver, ..one_node() }).await;
    provision(&system, "there", &[]);
    let query = |id: &str| json!({"plugin": PLUGIN, "id": id});
    assert_eq!(page(&system, &query("there")).await.volumes.len(), 1);
    assert_eq!(call_count(&system, 0, "ListVolumes"), 0, "one volume is asked for alone");
    let unknown = page(&system, &query("no-such")).await;
    assert!(unknown.volumes.is_empty() && unknown.not_asked.is_empty(), "{unknown:?}");
}

/// `--timeout` bounds the whole list, and what was read by then is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_takes_no_longer_than_its_timeout() {
    if !or_skip("real mounts") {
        return;
    }
    let system = provisioned(one_node()).await;
    system.plant(0, &json!([{"rpc": "ListVolumes", "when": "before", "delay_ms": 60_000}]));
    let begun = Instant::now();
    let mut berth = system.berth();
    berth.args(["--timeout", "2s", "volume", "list", "--external", PLUGIN]);
    let listed = berth.output().await.unwrap();
    assert!(!listed.status.success(), "{listed:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// A snapshot is adopted at the one host that lists it, whatever the pages.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_adopted_from_a_list_that_only_its_process_goes_on_with() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| vec!["--list-pages=process".to_owned()];
    let system = System::start(Options { driver, ..Options::default() }).await;
    system.created("data", json!({"size": "1MiB"})).await;
    for snapshot in ["a", "b", "c", "d", "e"] {
        system.snapshot(&["data"], snapshot, json!({})).await.unwrap();
        let state = SnapshotState::Ready;
        system.snapshot_is("data", snapshot, state).await;
    }
    for _ in 0..4 {
        let query = json!({"plugin": PLUGIN, "snapshots": true, "limit": 2});
        let pages = pages(&system, query).await;
        let listed = pages.iter().flat_map(|page| &page.snapshots);
        let known = listed.filter(|entry| entry.registration == Registration::Known);
        assert_eq!(known.count(), 5, "{pages:?}");
    }
    let id = system.snapshot_is("data", "e", SnapshotState::Ready);
    let id = id.await.external_id;
    let forget = json!({"volume": "data", "snapshot": "e", "forget": true});
    let subject = verb::SnapshotDelete::subject(&Namespace::default());
    system.persist::<SnapshotsChanged>(&subject, &forget).await.unwrap();
    let subject = verb::SnapshotAdopt::subject(&Namespace::default());
    let body = json!({"volume": "data", "snapshot": "f", "external_id": id, "plugin": PLUGIN});
    let adopted = system.persist::<SnapshotsChanged>(&subject, &body).await.unwrap();
    assert!(adopted.changed, "{adopted:?}");
}
