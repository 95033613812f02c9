//! Reads: lists in pages at one revision, long polls, and placements. Reads write nothing.

use std::time::{Duration, Instant};

use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::message::alloc::Allocs;
use berth_contract::message::claim::Claims;
use berth_contract::message::registry::{Nodes, Plugins};
use berth_contract::message::volume::{Placements, VolumeStatus, Volumes};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_domain::{Namespace, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, RECOVERY, System};
use serde_json::{Value, json};

fn default_subject<V: Verb<To = Namespace>>() -> String {
    V::subject(&Namespace::default())
}

fn everywhere<V: Verb<To = Namespace>>() -> String {
    V::subject(&Namespace::new("*").unwrap())
}

fn ids(volumes: &Volumes) -> Vec<String> {
    volumes.volumes.iter().map(|volume| format!("{}/{}", volume.namespace, volume.id)).collect()
}

/// Registers a volume in another namespace.
async fn register_elsewhere(system: &System, id: &str) {
    let external_id = format!("team-b-{id}");
    system.provision(&external_id);
    let subject = verb::VolumeRegister::subject(&Namespace::new("team b").unwrap());
    let document = json!({
        "id": id, "plugin": PLUGIN, "external_id": external_id,
        "capability": [{"access": "single-node-writer"}],
    });
    system.persist::<Value>(&subject, &document).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_comes_in_pages_of_what_is_asked_for() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    for id in ["c", "a", "data-2", "b.x", "data-1"] {
        system.volume(id, &["multi-node-multi-writer"]).await;
    }
    register_elsewhere(&system, "a").await;
    system.run("web", 0, "data-1").await;

    let mut pages = Vec::new();
    let mut query = json!({"limit": 2});
    loop {
        let page: Volumes = system.ask(&everywhere::<verb::VolumeList>(), &query).await.unwrap();
        pages.push(ids(&page));
        match page.next {
            Some(next) => query["after"] = json!(next),
            None => break,
        }
    }
    let expected = [
        ["default/a", "default/b.x"],
        ["default/c", "default/data-1"],
        ["default/data-2", "team b/a"],
    ];
    assert_eq!(pages, expected);

    let list = default_subject::<verb::VolumeList>();
    for (query, expected) in [
        (json!({"prefix": "data"}), vec!["default/data-1", "default/data-2"]),
        (json!({"node": "n1"}), vec!["default/data-1"]),
        (json!({"state": "taken"}), vec!["default/data-1"]),
        (json!({"state": "waiting"}), vec![]),
        (json!({"plugin": "another"}), vec![]),
        (json!({"plugin": PLUGIN, "prefix": "b"}), vec!["default/b.x"]),
    ] {
        let page: Volumes = system.ask(&list, &query).await.unwrap();
        assert_eq!(
            (ids(&page), page.next),
            (expected.into_iter().map(str::to_owned).collect(), None)
        );
    }
    let claims = default_subject::<verb::ClaimStatus>();
    for (query, expected) in [
        (json!({"alloc": "web"}), 1),
        (json!({"node": "n1", "plugin": PLUGIN, "state": "taken"}), 1),
        (json!({"volume": "data-1", "alloc": "other"}), 0),
        (json!({"state": "unpublishing"}), 0),
    ] {
        let page: Claims = system.ask(&claims, &query).await.unwrap();
        assert_eq!(page.claims.len(), expected, "{query}");
    }
    let allocs: Allocs =
        system.ask(&default_subject::<verb::AllocList>(), &json!({"prefix": "w"})).await.unwrap();
    assert_eq!((allocs.allocs.len(), allocs.allocs[0].claims), (1, 1));
    let nodes: Nodes = system
        .ask(&verb::NodeStatus::subject(&()), &json!({"plugin": PLUGIN, "state": "ready"}))
        .await
        .unwrap();
    assert_eq!(nodes.nodes.len(), 1);

    // The instances of one plugin come in pages too; the list of plugins contains none.
    let plugin = verb::PluginStatus::subject(&());
    let listed: Plugins = system.ask(&plugin, &json!({"prefix": "dev"})).await.unwrap();
    assert!(listed.plugins[0].instances.is_empty());
    let query = json!({"id": PLUGIN, "limit": 1});
    let first: Plugins = system.ask(&plugin, &query).await.unwrap();
    let query = json!({"id": PLUGIN, "after": first.next.unwrap()});
    let second: Plugins = system.ask(&plugin, &query).await.unwrap();
    let half = |answer: &[_]| -> Vec<String> {
        answer
            .iter()
            .flat_map(|plugin: &berth_contract::message::registry::PluginStatus| &plugin.instances)
            .map(|instance| instance.half.to_string())
            .collect()
    };
    assert_eq!([half(&first.plugins), half(&second.plugins)], [["controller"], ["node"]]);

    for (subject, body) in [
        (list, json!({"after": "nowhere"})),
        (claims, json!({"after": "default.a.spec"})),
        (plugin, json!({"id": PLUGIN, "after": "another.instance.n1.node"})),
    ] {
        let problem = system.ask::<Value>(&subject, &body).await.unwrap_err();
        assert_eq!((problem.code, problem.faults[0].path.as_str()), (Code::BadInput, "after"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_answered_when_there_is_something_newer() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, replicas: 2, ..Options::default() }).await;
    let list = default_subject::<verb::VolumeList>();
    let status = default_subject::<verb::VolumeStatus>();
    let index_now = system.volumes().await.unwrap().index;

    // Without a newer revision, the wait ends with the present state.
    let began = Instant::now();
    let query = json!({"newer_than": index_now, "wait_ms": 400});
    let same: Volumes = system.ask(&list, &query).await.unwrap();
    assert_eq!(same.index, index_now);
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());

    // A wait for an absent volume ends when the volume is registered. So does a wait for any
    // change, at any replica.
    let (data_query, any_query) =
        (json!({"id": "data", "newer_than": 0}), json!({"newer_than": index_now}));
    let (first, any, ()) = tokio::join!(
        system.ask::<VolumeStatus>(&status, &data_query),
        system.ask::<Volumes>(&list, &any_query),
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            system.volume("data", &["single-node-writer"]).await;
        },
    );
    let (first, any) = (first.unwrap(), any.unwrap());
    assert_eq!(ids(&any), ["default/data"]);
    assert!(any.index >= first.modify_index && first.modify_index > index_now, "{any:?} {first:?}");

    // A newer revision that exists already is answered immediately.
    let began = Instant::now();
    let query = json!({"id": "data", "newer_than": first.modify_index - 1});
    let again: VolumeStatus = system.ask(&status, &query).await.unwrap();
    assert_eq!(again, first);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());

    // Long polls follow a claim through all its states, without polling in between.
    system.alloc("web", 0, "data", false).await;
    let follow = async {
        let (mut index, mut states_seen) = (any.index, Vec::new());
        while states_seen.last().map(String::as_str) != Some("taken") {
            let query = json!({"volume": "data", "newer_than": index});
            let claims: Claims =
                system.ask(&default_subject::<verb::ClaimStatus>(), &query).await.unwrap();
            assert!(claims.index > index, "{} is not newer than {index}", claims.index);
            index = claims.index;
            states_seen.extend(claims.claims.first().map(|claim| claim.state.to_string()));
        }
        states_seen
    };
    let (states_seen, mounted) = tokio::join!(follow, system.mount("web", 0, "data"));
    assert!(mounted.is_ok() && !states_seen.is_empty(), "{states_seen:?}");

    // The registry's reads wait for plugins and nodes alike.
    let nodes = system.nodes().await.unwrap().index;
    let (subject, query) = (verb::NodeStatus::subject(&()), json!({"newer_than": nodes}));
    let (down, ()) = tokio::join!(system.ask::<Nodes>(&subject, &query), async {
        system.kill9(Part::Agent(0));
    });
    assert!(down.unwrap().index > nodes);
}

/// D8: composed answers are stored nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn reading_everything_changes_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("web", 0, "data").await;
    system.compared().await;
    let heads = async || {
        let mut heads = Vec::new();
        for spec in [&bucket::VOLUMES, &bucket::ALLOCS, &bucket::PLUGINS, &bucket::NODES] {
            let opened_bucket = system.bus.bucket(spec, 1).await.unwrap();
            heads.push((spec.name, opened_bucket.head(">").await.unwrap()));
        }
        heads
    };
    let before = heads().await;
    let (data, all) = (json!({"id": "data"}), json!({}));
    for (subject, body) in [
        (verb::PluginStatus::subject(&()), &all),
        (verb::PluginStatus::subject(&()), &json!({"id": PLUGIN})),
        (verb::NodeStatus::subject(&()), &all),
        (default_subject::<verb::VolumeStatus>(), &data),
        (default_subject::<verb::VolumeList>(), &all),
        (default_subject::<verb::VolumePlacement>(), &json!({"volumes": [{"source": "data"}]})),
        (default_subject::<verb::ClaimStatus>(), &all),
        (default_subject::<verb::AllocStatus>(), &json!({"id": "web"})),
        (default_subject::<verb::AllocList>(), &all),
    ] {
        let first: Value = system.ask(&subject, body).await.unwrap();
        let second: Value = system.ask(&subject, body).await.unwrap();
        assert_eq!(first, second, "{subject}");
    }
    assert_eq!(heads().await, before);
}

/// The obstacles of volumes, by node: `n1: data BERTH0106`.
async fn obstacles(system: &System, volumes: &Value) -> Vec<String> {
    let query = json!({"volumes": volumes, "index": 0});
    let answer: Result<Placements, Problem> =
        system.ask(&default_subject::<verb::VolumePlacement>(), &query).await;
    let mut lines = Vec::new();
    for node in answer.unwrap().nodes {
        assert_eq!(node.fits, node.obstacles.is_empty());
        if node.fits {
            lines.push(format!("{} fits", node.node));
        }
        for obstacle in node.obstacles {
            // Waiting helps while other allocs hold the volume, and where a missing volume may be
            // registered.
            let waits = matches!(obstacle.code, Code::Held | Code::NoSuchVolume);
            assert!(!waits || obstacle.can_wait, "{obstacle:?}");
            assert!(obstacle.code != Code::Held || !obstacle.retryable, "{obstacle:?}");
            lines.push(format!("{} {} {}", node.node, obstacle.volume, obstacle.code));
        }
    }
    lines
}

/// D6 and E10: a placement gives for each node the error that a claim there would get.
#[tokio::test(flavor = "multi_thread")]
async fn a_placement_tells_why_a_node_cannot_host() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { max_volumes: 2, ..Options::default() }).await;
    for id in ["data", "shard[0]", "more"] {
        system.volume(id, &["single-node-writer"]).await;
    }
    register_elsewhere(&system, "theirs").await;
    let held = Code::Held.as_str();

    assert_eq!(obstacles(&system, &json!([{"source": "data"}])).await, ["n1 fits", "n2 fits"]);
    system.run("web", 0, "data").await;
    // An exclusive volume is held for every node; there is no other obstacle.
    let lines = obstacles(&system, &json!([{"source": "data"}, {"source": "gone"}])).await;
    let missing = Code::NoSuchVolume.as_str();
    let both = |node| [format!("{node} data {held}"), format!("{node} gone {missing}")];
    assert_eq!(lines, [both("n1"), both("n2")].concat());

    // A per-alloc volume counts, and so does a volume of another namespace.
    let take = |alloc: &str, volume: &str| json!({"alloc": alloc, "volume": volume, "node": "n1"});
    let register = json!({
        "id": "theirs", "node": "n1", "volumes": [{"source": "theirs"}],
    });
    let team = Namespace::new("team b").unwrap();
    let subject = verb::AllocRegister::subject(&team);
    system.persist::<Value>(&subject, &register).await.unwrap();
    let subject = verb::ClaimTake::subject(&team);
    system.persist::<Value>(&subject, &take("theirs", "theirs")).await.unwrap();
    let full = Code::NodeFull.as_str();
    let per_alloc = json!([{"source": "shard", "per_alloc": true}]);
    assert_eq!(
        obstacles(&system, &per_alloc).await,
        [format!("n1 shard[0] {full}"), "n2 fits".to_owned()]
    );
    let three = json!([
        {"source": "shard", "per_alloc": true}, {"source": "more"}, {"source": "data"},
    ]);
    let lines = obstacles(&system, &three).await;
    let expected = [
        format!("n1 shard[0] {full}"),
        format!("n1 more {full}"),
        format!("n1 data {held}"),
        format!("n2 data {held}"),
        format!("n2 data {full}"),
    ];
    assert_eq!(lines, expected);
    // A claim there gets the same error, before the plugin is called.
    system.alloc("another", 0, "more", false).await;
    let refused =
        system.ask::<Value>(&default_subject::<verb::ClaimTake>(), &take("another", "more")).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::NodeFull, true), "{refused}");
    let calls = system.calls();
    let calls = calls.iter().filter(|call| call["rpc"] == "ControllerPublishVolume");
    let calls_for_more = calls.filter(|call| call["args"]["volume_id"] == "more").count();
    assert_eq!(calls_for_more, 0);

    system.kill9(Part::Agent(1));
    let on_down_node = format!("n2 more {}", Code::NodeDown);
    wait::until("n2's lease has ended", RECOVERY, async || {
        let lines = obstacles(&system, &json!([{"source": "more"}])).await;
        if lines == [format!("n1 more {full}"), on_down_node.clone()] {
            Ok(())
        } else {
            Err(lines.join(", "))
        }
    })
    .await;
    // The release makes room again.
    system.stop("web").await;
    system.freed("data").await;
    let lines = obstacles(&system, &json!([{"source": "more"}])).await;
    assert_eq!(lines, ["n1 fits".to_owned(), on_down_node]);
}

/// No reachable server has a quorum: requests get that error, within their deadlines.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_a_read_says_so() {
    let system = System::start(Options { nodes: 0, servers: 3, ..Options::default() }).await;
    let listed = system.volumes().await.unwrap();
    assert_eq!(ids(&listed), Vec::<String>::new());
    for server in &system.servers()[1..] {
        server.kill9();
    }
    wait::until("the last server is asked", RECOVERY, async || {
        if system.bus.connected() { Ok(()) } else { Err("the connection is not back") }
    })
    .await;
    let volume = VolumeId::new("data").unwrap();
    for (subject, body) in [
        (default_subject::<verb::VolumeStatus>(), json!({"id": volume})),
        (default_subject::<verb::VolumeList>(), json!({})),
        (default_subject::<verb::ClaimStatus>(), json!({})),
        (verb::NodeStatus::subject(&()), json!({})),
    ] {
        let problem = wait::until("the request is answered", RECOVERY, async || {
            let began = Instant::now();
            let answer = system.ask::<Value>(&subject, &body).await;
            assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
            match answer {
                Err(problem) if problem.code == Code::BusUnavailable => Ok(problem),
                // The service itself may lose its connection for a moment.
                Err(problem) => Err(problem.to_string()),
                // The last server leads until it notices the loss of its quorum; no other server
                // can lead.
                Ok(answer) => Err(answer.to_string()),
            }
        })
        .await;
        assert!(problem.retryable, "{subject}: {problem}");
    }
}
