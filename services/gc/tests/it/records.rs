//! Records that are not needed any more, with the real services that own them (F2, D4).

use std::time::Duration;

use berth_contract::message::collect::{Force, Kind};
use berth_contract::{bucket, key, record};
use berth_domain::alloc::AllocState;
use berth_domain::plugin::{Half, Instance, Node};
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::State;
use berth_domain::{NodeId, PluginId, Timestamp};
use berth_service::clock;

use crate::site::{ON_DEMAND, PATIENCE, Site, alloc_id, namespace, trace};

const LONG_AGO: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

fn node_id(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

fn down(since: Timestamp) -> Node {
    Node { reported: since, ..Node::unknown(since) }
}

impl Site {
    async fn plant_node(&self, id: &str, node: Node) {
        let value = record::write(node, None).unwrap();
        self.plant(&bucket::NODES, &key::node(&node_id(id)), value).await;
    }

    /// The key of an instance of plugin `p`.
    async fn plant_instance(&self, node: &str) -> String {
        let instance = Instance {
            healthy: true,
            description: String::new(),
            provider: "csi.example".to_owned(),
            version: "1".to_owned(),
            since: LONG_AGO,
            controller: None,
            node: None,
            id_since: None,
            process: None,
        };
        let key = key::instance(&PluginId::new("p").unwrap(), &node_id(node), Half::Node);
        self.plant(&bucket::PLUGINS, &key, record::write(instance, None).unwrap()).await;
        key
    }

    async fn knows(&self, node: &str) -> bool {
        self.stands(&bucket::NODES, &key::node(&node_id(node))).await
    }

    async fn remembers(&self, alloc: &str) -> bool {
        self.stands(&bucket::ALLOCS, &key::alloc(&namespace(), &alloc_id(alloc))).await
    }
}

fn of(kinds: &[Kind], grace: Option<Duration>) -> Force {
    let ms = |grace: Duration| u64::try_from(grace.as_millis()).unwrap();
    Force { kinds: kinds.to_vec(), grace_ms: grace.map(ms) }
}

#[tokio::test]
async fn allocs_that_ended_before_are_forgotten_unless_they_claim_something() {
    let mut site = Site::start(1, ON_DEMAND).await;
    site.start_claim().await;
    site.plant_volume("data", None).await;
    for (alloc, state, since) in [
        ("old", AllocState::Complete, LONG_AGO),
        ("young", AllocState::Failed, clock::now()),
        ("live", AllocState::Live, LONG_AGO),
        ("claiming", AllocState::Stopped, LONG_AGO),
    ] {
        site.plant_alloc_since(alloc, state, since).await;
    }
    site.plant_claim("data", "claiming", State::Unpublishing).await;
    let sweep = site.force_with(&of(&[Kind::Allocs], None)).await.unwrap();
    let line = "alloc old of namespace team/a: it ended at 2023-11-14T22:13:20.000Z (complete) and \
                has no claim; forgotten";
    assert_eq!((sweep.collected, sweep.kept), (vec![line.to_owned()], vec![]));
    for (alloc, remembered) in [("old", false), ("young", true), ("live", true), ("claiming", true)]
    {
        assert_eq!(site.remembers(alloc).await, remembered, "{alloc}");
    }
    // On request, and after the claim is gone.
    let sweep = site.force_with(&of(&[Kind::Allocs], Some(Duration::ZERO))).await.unwrap();
    assert_eq!(sweep.collected.len(), 1, "{sweep:#?}");
    assert!(!site.remembers("young").await && site.remembers("live").await);
}

#[tokio::test]
async fn a_node_that_is_down_goes_with_its_instances_and_one_that_is_back_stays() {
    let mut site = Site::start(1, ON_DEMAND).await;
    site.start_registry().await;
    // What is on a node is known to the claim service.
    site.start_claim().await;
    let proof = Proof {
        kind: ProofKind::PoweredOff,
        by: "ada".to_owned(),
        at: LONG_AGO,
        note: String::new(),
    };
    site.plant_node("idle", down(LONG_AGO)).await;
    site.plant_node("young", down(clock::now())).await;
    site.plant_node("gone", Node { gone: Some(proof), ..down(LONG_AGO) }).await;
    site.plant_node("n1", down(LONG_AGO)).await;
    site.plant_alloc_since("a", AllocState::Live, LONG_AGO).await;
    // The node's agent holds its lease again, and the registry is about to record that.
    let leases = site.bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let lease = key::node_lease(&node_id("back"));
    let lease = leases.acquire(&lease, "{}".into(), PATIENCE, trace()).await.unwrap();
    site.plant_node("back", down(LONG_AGO)).await;
    let instances = [site.plant_instance("idle").await, site.plant_instance("back").await];

    let sweep = site.force_with(&of(&[Kind::Nodes], None)).await.unwrap();
    let [collected] = sweep.collected.as_slice() else { panic!("{sweep:#?}") };
    assert!(collected.starts_with("node idle: down since 2023-11-14T22:13:20.000Z"), "{collected}");
    assert!(collected.ends_with("forgotten with its 1 plugin instances"), "{collected}");
    assert_eq!(sweep.kept.len(), 2, "{sweep:#?}");
    for (node, known) in
        [("idle", false), ("young", true), ("gone", true), ("n1", true), ("back", true)]
    {
        assert_eq!(site.knows(node).await, known, "{node}");
    }
    assert!(!site.stands(&bucket::PLUGINS, &instances[0]).await);
    assert!(site.stands(&bucket::PLUGINS, &instances[1]).await);
    drop(lease);
}

#[tokio::test]
async fn instances_of_a_node_that_nobody_knows_are_removed_and_only_those() {
    let mut site = Site::start(1, ON_DEMAND).await;
    site.start_registry().await;
    site.plant_node("n1", down(LONG_AGO)).await;
    // A node record of a newer version cannot be read here. It still counts as a node.
    let newer = br#"{"state":"dreaming","schema":7}"#.to_vec();
    site.plant(&bucket::NODES, &key::node(&node_id("newer")), newer).await;
    let stray = site.plant_instance("stray").await;
    let other_instances = [site.plant_instance("n1").await, site.plant_instance("newer").await];
    let sweep = site.force_with(&of(&[Kind::Plugins], None)).await.unwrap();
    let line = "plugin instances on node stray: nobody knows such a node; 1 instances removed";
    assert_eq!((sweep.collected, sweep.kept), (vec![line.to_owned()], vec![]));
    assert!(!site.stands(&bucket::PLUGINS, &stray).await);
    for instance in &other_instances {
        assert!(site.stands(&bucket::PLUGINS, instance).await, "{instance}");
    }
}
