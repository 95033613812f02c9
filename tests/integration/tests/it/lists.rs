//! Lists while writers change them: a page shows the bucket's content at the page's revision.
//!
//! Pages are checked against the history of acknowledged writes, not against the service's own
//! reads. Each writer changes its records in a fixed order, and records each acknowledged revision.

mod history;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use berth_contract::message::alloc::{AllocStatus, Allocs};
use berth_contract::message::claim::{Claims, Grant};
use berth_contract::message::volume::{Registered, Volumes};
use berth_contract::verb::{self, Verb};
use berth_domain::Namespace;
use berth_integration::{Options, PLUGIN, RECOVERY, System};
use serde_json::{Value, json};

use history::{Entry, History, Page};

/// How many different revisions each reader must see.
const REVISIONS_READ: usize = 60;
const WRITERS: usize = 3;

fn subject<V: Verb<To = Namespace>>() -> String {
    V::subject(&Namespace::default())
}

/// State that the writers and readers of one list share.
#[derive(Default)]
struct Race {
    /// The newest acknowledged revision.
    acknowledged: AtomicU64,
    /// Set when the readers have seen [`REVISIONS_READ`] revisions.
    seen_enough: AtomicBool,
}

impl Race {
    fn is_on(&self) -> bool {
        !self.seen_enough.load(Ordering::Relaxed)
    }

    fn acknowledge(&self, revision: u64) -> u64 {
        self.acknowledged.fetch_max(revision, Ordering::Relaxed);
        revision
    }

    /// Reads the whole list page by page, repeatedly, until it has seen enough revisions. A list
    /// that grows may have no end. Each page contains all writes acknowledged before the request,
    /// and is no older than the previous page.
    async fn read(
        &self,
        limit: Option<u32>,
        ask: impl AsyncFn(Value) -> (Page, Option<String>),
    ) -> Vec<Page> {
        let (began, mut newest) = (Instant::now(), 0);
        let (mut pages, mut revisions) = (Vec::new(), BTreeSet::new());
        while revisions.len() < REVISIONS_READ {
            let (mut token, mut after) = (None, None);
            while revisions.len() < REVISIONS_READ {
                assert!(began.elapsed() < RECOVERY * 2, "only {} revisions", revisions.len());
                let acknowledged = self.acknowledged.load(Ordering::Relaxed);
                let (page, next) = ask(json!({"limit": limit, "after": token})).await;
                let due = acknowledged.max(newest);
                assert!(page.index >= due, "revision {}, and {due} is due", page.index);
                newest = page.index;
                revisions.insert(page.index);
                let last = page.entries.last().map(|entry| entry.id.clone());
                let until = next.as_ref().and(last.clone());
                pages.push(Page { after, until, ..page });
                (token, after) = (next, last);
                if token.is_none() {
                    break;
                }
            }
        }
        pages
    }
}

/// Registers a volume, or renames it.
async fn put_name(system: &System, race: &Race, id: &str, name: &str) -> u64 {
    let document = json!({
        "id": id, "plugin": PLUGIN, "name": name, "capability": [{"access": "single-node-writer"}],
    });
    let registered: Registered =
        system.persist(&subject::<verb::VolumeRegister>(), &document).await.unwrap();
    race.acknowledge(registered.index)
}

/// Renames two volumes, always the first before the second. In every fifth round the first is
/// deregistered and registered again.
async fn rename_pairs(system: &System, race: &Race, writer: usize) -> History {
    let [first, second] = ["a", "b"].map(|half| format!("pair-{writer}-{half}"));
    let mut history = History::default();
    for round in 0_u32.. {
        if !race.is_on() {
            break;
        }
        let label = round.to_string();
        history.put(&first, put_name(system, race, &first, &label).await, &label);
        let named_at = put_name(system, race, &second, &label).await;
        history.put(&second, named_at, &label);
        if round % 5 == 4 {
            system.deregister(&first, false).await.unwrap();
            // The revision of the deletion is unknown; the next write has a later one.
            let alone_at = put_name(system, race, &second, "alone").await;
            history.gone(&first, named_at, alone_at);
            history.put(&second, alone_at, "alone");
        }
    }
    history
}

/// A page of the list of volumes.
async fn volumes(system: &System, query: Value) -> (Page, Option<String>) {
    let list: Volumes = system.persist(&subject::<verb::VolumeList>(), &query).await.unwrap();
    let entry = |volume: berth_contract::message::volume::VolumeStub| Entry {
        id: volume.id.into(),
        revision: volume.modify_index,
        content: volume.name,
    };
    let entries = list.volumes.into_iter().map(entry).collect();
    (Page { index: list.index, entries, ..Page::default() }, list.next)
}

fn assert_no_page_is_torn(pages: &[Page], history: &History) {
    let torn: Vec<String> = pages.iter().flat_map(|page| history.faults(page)).collect();
    assert!(torn.is_empty(), "of {} pages: {torn:#?}", pages.len());
    assert!(pages.iter().any(|page| page.until.is_some()), "no list had two pages");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_volumes_is_the_bucket_at_its_index_whoever_writes() {
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    for writer in 0..WRITERS {
        for half in ["a", "b"] {
            system.provision(&format!("pair-{writer}-{half}"));
        }
    }
    let race = Race::default();
    let ask = async |query| volumes(&system, query).await;
    let readers = async {
        let pages = tokio::join!(race.read(Some(2), &ask), race.read(None, &ask));
        race.seen_enough.store(true, Ordering::Relaxed);
        [pages.0, pages.1].concat()
    };
    let [first, second, third] = [0, 1, 2].map(|writer| rename_pairs(&system, &race, writer));
    let (pages, first, second, third) = tokio::join!(readers, first, second, third);
    assert_no_page_is_torn(&pages, &first.and(second).and(third));
    // The deregistrations were seen: some pages lack a volume.
    let lacks_volume = |page: &&Page| page.is_whole() && page.entries.len() < 2 * WRITERS;
    assert!(pages.iter().any(|page| lacks_volume(&page)), "no page lacks a volume");
}

/// Registers two allocs, the first before the second, and ends them in the same order.
async fn live_and_end(system: &System, race: &Race, writer: usize) -> History {
    let mut history = History::default();
    for round in 0_u32.. {
        if !race.is_on() {
            break;
        }
        let pair = ["a", "b"].map(|half| format!("run-{writer}-{round}-{half}"));
        let (register, stop) = (subject::<verb::AllocRegister>(), subject::<verb::AllocStop>());
        let node = Some("n1");
        for (subject, node, becomes) in [(register, node, "live"), (stop, None, "stopped")] {
            for id in &pair {
                let body = match node {
                    Some(node) => json!({"id": id, "node": node}),
                    None => json!({"id": id}),
                };
                let status: AllocStatus = system.persist(&subject, &body).await.unwrap();
                history.put(id, race.acknowledge(status.modify_index), becomes);
            }
        }
    }
    history
}

/// A page of the list of allocs.
async fn allocs(system: &System, query: Value) -> (Page, Option<String>) {
    let list: Allocs = system.persist(&subject::<verb::AllocList>(), &query).await.unwrap();
    let entry = |alloc: berth_contract::message::alloc::AllocStub| Entry {
        id: alloc.id.into(),
        revision: alloc.modify_index,
        content: alloc.state.to_string(),
    };
    let entries = list.allocs.into_iter().map(entry).collect();
    (Page { index: list.index, entries, ..Page::default() }, list.next)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_allocs_is_the_bucket_at_its_index_whoever_writes() {
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    let race = Race::default();
    let ask = async |query| allocs(&system, query).await;
    let readers = async {
        let pages = tokio::join!(race.read(Some(20), &ask), race.read(None, &ask));
        race.seen_enough.store(true, Ordering::Relaxed);
        [pages.0, pages.1].concat()
    };
    let [first, second, third] = [0, 1, 2].map(|writer| live_and_end(&system, &race, writer));
    let (pages, first, second, third) = tokio::join!(readers, first, second, third);
    assert_no_page_is_torn(&pages, &first.and(second).and(third));
}

/// Runs `berth`, which must succeed, and returns what it prints.
fn berth(system: &System, args: &[&str]) -> String {
    let ran =
        system.berth().into_std().args(["--nats", &system.url()]).args(args).output().unwrap();
    assert!(ran.status.success(), "{args:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// What `berth` prints, as JSON.
fn berth_json(system: &System, args: &[&str]) -> Value {
    serde_json::from_str(&berth(system, &[args, &["--json"]].concat())).unwrap()
}

/// Claims of the volumes of a workload that has one for each of its allocs.
#[tokio::test(flavor = "multi_thread")]
async fn claims_are_listed_by_the_beginning_of_their_volumes_ids() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    for volume in ["shard[0]", "shard[1]", "shared", "other"] {
        system.volume(volume, &["single-node-writer"]).await;
        let alloc = format!("of {volume}");
        system.alloc(&alloc, 0, volume, false).await;
        let take = json!({"alloc": alloc, "volume": volume, "node": "n1"});
        system.persist::<Grant>(&subject::<verb::ClaimTake>(), &take).await.unwrap();
    }
    for (query, expected) in [
        (json!({"prefix": ""}), vec!["other", "shard[0]", "shard[1]", "shared"]),
        (json!({"prefix": "shar"}), vec!["shard[0]", "shard[1]", "shared"]),
        (json!({"prefix": "shard["}), vec!["shard[0]", "shard[1]"]),
        (json!({"prefix": "shard[", "alloc": "of shard[1]"}), vec!["shard[1]"]),
        (json!({"prefix": "shard[", "volume": "shared"}), vec![]),
        (json!({"prefix": "shard[", "node": "n1", "plugin": PLUGIN}), vec!["shard[0]", "shard[1]"]),
        (json!({"prefix": "shard[", "node": "n2"}), vec![]),
        // The prefix matches neither an alloc's id nor the middle of a volume's id.
        (json!({"prefix": "of"}), vec![]),
        (json!({"prefix": "hard"}), vec![]),
    ] {
        let claims: Claims = system.ask(&subject::<verb::ClaimStatus>(), &query).await.unwrap();
        let volumes: Vec<_> = claims.claims.iter().map(|claim| claim.volume.as_str()).collect();
        assert_eq!(volumes, expected, "{query}");
    }
    let first: Claims = system
        .ask(&subject::<verb::ClaimStatus>(), &json!({"prefix": "shard[", "limit": 1}))
        .await
        .unwrap();
    let query = json!({"prefix": "shard[", "limit": 1, "after": first.next.unwrap()});
    let second: Claims = system.ask(&subject::<verb::ClaimStatus>(), &query).await.unwrap();
    assert_eq!((second.claims[0].volume.as_str(), second.next), ("shard[1]", None));
    // The command line has the same filters.
    let args = ["claim", "status", "--prefix", "shard[", "--limit", "1"];
    assert_eq!(berth_json(&system, &args)["claims"][0]["volume"], "shard[0]");
    for of_type in ["controller", "node", "monolith"] {
        let plugins = berth_json(&system, &["plugin", "status", "--type", of_type]);
        assert_eq!(plugins["plugins"][0]["id"], PLUGIN, "{of_type}");
    }
    let plugin = berth_json(&system, &["plugin", "status", PLUGIN, "--type", "controller"]);
    let instances = plugin["instances"].as_array().unwrap();
    assert_eq!((instances.len(), &instances[0]["half"]), (1, &json!("controller")));
    let none = berth_json(&system, &["plugin", "status", "--type", "controller", "--node", "n2"]);
    assert_eq!(none["plugins"], json!([]));
    // A filter that matches nothing is not reported as an absence of plugins.
    let none = berth(&system, &["plugin", "status", "--type", "controller", "--node", "n2"]);
    assert_eq!(none, "no such plugins; without a filter all are listed\n");
    let none = berth(&system, &["node", "status", "--prefix", "x"]);
    assert_eq!(none, "no such nodes; without a filter all are listed\n");
}
