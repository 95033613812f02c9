//! The same id in two namespaces is two volumes, in every path and every count.

use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::alloc::{AllocStatus, RegisterAlloc};
use berth_contract::message::claim::Claims;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::VolumeRequest;
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{SOON, lines};

/// An alloc in a namespace that is placed on a node and requests `data`.
#[derive(Clone, Copy)]
struct AllocCase<'a> {
    namespace: &'a str,
    alloc: &'a str,
    node: &'a str,
    /// The index of its per-alloc volume: `data[0]` for 0.
    index: Option<u32>,
}

impl AllocCase<'_> {
    fn namespace(self) -> Namespace {
        Namespace::new(self.namespace).unwrap()
    }

    fn request(self) -> VolumeRequest {
        let source = VolumeId::new("data").unwrap();
        VolumeRequest { per_alloc: self.index.is_some(), ..VolumeRequest::for_volume(source) }
    }

    fn volume(self) -> VolumeId {
        self.request().volume(self.index).unwrap()
    }

    /// Creates and registers its volume.
    async fn register(self, system: &System, external_id: &str) {
        system.provision(external_id);
        let document = json!({
            "id": self.volume(), "plugin": "dev.berth", "external_id": external_id,
            "capability": [{"access": "single-node-multi-writer"}],
        });
        let subject = verb::VolumeRegister::subject(&self.namespace());
        let _: Value = system.persist(&subject, &document).await.unwrap();
    }

    async fn place(self, system: &System) {
        let (id, node) = (AllocId::new(self.alloc).unwrap(), NodeId::new(self.node).unwrap());
        let placed = RegisterAlloc {
            index: self.index,
            ..RegisterAlloc::new(id, node, vec![self.request()])
        };
        let subject = verb::AllocRegister::subject(&self.namespace());
        let _: AllocStatus = system.persist(&subject, &placed).await.unwrap();
    }

    fn body(self) -> Mount {
        let alloc = AllocId::new(self.alloc).unwrap();
        Mount {
            namespace: self.namespace(),
            alloc,
            volume: self.volume(),
            wait: false,
            alias: None,
            path: None,
        }
    }

    async fn mount(self, system: &System) -> Mounted {
        let subject = verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(
            NodeId::new(self.node).unwrap(),
        ));
        system.persist(&subject, &self.body()).await.unwrap()
    }

    /// The claim service's refusal of its request, without a retry.
    async fn refused(self, system: &System) -> Problem {
        let subject = verb::ClaimTake::subject(&self.namespace());
        let take = json!({"alloc": self.alloc, "volume": self.volume(), "node": self.node});
        system.ask::<Value>(&subject, &take).await.unwrap_err()
    }

    async fn claims(self, system: &System) -> usize {
        let subject = verb::ClaimStatus::subject(&self.namespace());
        let body = json!({"volume": self.volume()});
        system.persist::<Claims>(&subject, &body).await.unwrap().claims.len()
    }

    /// Ends the alloc, and waits until its volume is free.
    async fn stop(self, system: &System) {
        let subject = verb::AllocStop::subject(&self.namespace());
        let body = json!({"id": self.alloc, "state": "complete"});
        let _: Value = system.persist(&subject, &body).await.unwrap();
        wait::until("the volume is free", SOON, || async {
            let remaining = self.claims(system).await;
            if remaining == 0 { Ok(()) } else { Err(format!("{remaining} claims")) }
        })
        .await;
    }
}

const ONE: AllocCase<'_> = AllocCase { namespace: "one", alloc: "a", node: "n1", index: None };
const TWO: AllocCase<'_> = AllocCase { namespace: "two", ..ONE };

#[tokio::test(flavor = "multi_thread")]
async fn s12_the_same_id_in_two_namespaces_is_two_volumes() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let mut paths = Vec::new();
    for (case, external_id) in [(ONE, "ext-1"), (TWO, "ext-2")] {
        case.register(&system, external_id).await;
        case.place(&system).await;
        let file = format!("{}/f", case.mount(&system).await.path);
        std::fs::write(&file, case.namespace).unwrap();
        paths.push(file);
    }
    assert_ne!(paths[0], paths[1]);
    assert_eq!(std::fs::read_to_string(&paths[0]).unwrap(), "one");
    let staged = |external_id: &str| {
        let calls = lines(&system, "end", "NodeStageVolume", external_id);
        calls[0]["args"]["staging_target_path"].as_str().unwrap().to_owned()
    };
    assert_ne!(staged("ext-1"), staged("ext-2"));

    // One alloc ends; the other's claim and files are unchanged.
    ONE.stop(&system).await;
    assert_eq!(TWO.claims(&system).await, 1);
    assert_eq!(std::fs::read_to_string(&paths[1]).unwrap(), "two");
    TWO.stop(&system).await;
    system.settle("ext-2").await;
}

/// E10: a node takes as many volumes as its plugin allows. Volumes of all namespaces and per-alloc
/// volumes count, and a volume that several allocs use there counts once.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_full_node_counts_each_volume_once_whose_ever_it_is() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { max_volumes: 3, ..Options::default() }).await;
    let per_alloc = |alloc, index| AllocCase { alloc, index: Some(index), ..ONE };
    let (first, second, third) = (per_alloc("o0", 0), per_alloc("o1", 1), per_alloc("o2", 2));
    for (case, external_id) in
        [(ONE, "ext-1"), (TWO, "ext-2"), (first, "own-0"), (second, "own-1"), (third, "own-2")]
    {
        case.register(&system, external_id).await;
        case.place(&system).await;
    }
    for case in [ONE, TWO, first] {
        case.mount(&system).await;
    }
    let beside = AllocCase { alloc: "b", ..ONE };
    beside.place(&system).await;
    beside.mount(&system).await;

    let refused = second.refused(&system).await;
    assert_eq!(refused.code, Code::NodeFull, "{refused}");
    assert_eq!(second.claims(&system).await, 0, "nothing was written");
    let elsewhere = AllocCase { alloc: "e", node: "n2", ..second };
    elsewhere.place(&system).await;
    elsewhere.mount(&system).await;
    elsewhere.stop(&system).await;

    // The volume of two allocs counts until both have left.
    let stop = verb::AllocStop::subject(&beside.namespace());
    let body = json!({"id": beside.alloc, "state": "complete"});
    let _: Value = system.persist(&stop, &body).await.unwrap();
    assert_eq!(third.refused(&system).await.code, Code::NodeFull);
    TWO.stop(&system).await;
    second.mount(&system).await;
    assert_eq!(third.refused(&system).await.code, Code::NodeFull);
    for case in [ONE, first, second] {
        case.stop(&system).await;
    }
    system.settle("ext-1").await;
}
