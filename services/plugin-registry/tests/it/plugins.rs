//! What jobs announce of plugins (D5), and what is deleted with them (D4).

use std::time::Duration;

use berth_bus::{Change, Guard, Write};
use berth_contract::code::Code;
use berth_contract::message::registry::{Delete, Deleted, ExpectInstances, Leave, NodeLeft};
use berth_contract::verb::{self};
use berth_contract::{bucket, key};
use berth_domain::plugin::{Count, Half};
use berth_domain::{JobId, Namespace, VolumeId, VolumeKey, limits};
use serde_json::json;

use crate::site::{PATIENCE, Site, instance, node_id, plugin_id, report, trace};

const PLUGIN: &str = "csi.example";
/// No lease ends by itself in these tests.
const TTL: Duration = Duration::from_secs(600);

fn job(job: &str, controllers: u32, nodes: u32) -> ExpectInstances {
    let namespace = Namespace::new("storage").unwrap();
    let job = JobId::new(job).unwrap();
    ExpectInstances { plugin: plugin_id(PLUGIN), namespace, job, controllers, nodes }
}

fn count(healthy: usize, expected: usize) -> Count {
    Count { healthy, expected }
}

impl Site {
    async fn expect(&self, job: ExpectInstances) -> bool {
        self.ask::<verb::PluginExpect>(&job).await.unwrap().changed
    }

    async fn delete(&self) -> Deleted {
        self.ask::<verb::PluginDelete>(&Delete { id: plugin_id(PLUGIN) }).await.unwrap()
    }

    async fn cannot_delete(&self) -> (Code, String) {
        let problem = self.refused::<verb::PluginDelete>(&Delete { id: plugin_id(PLUGIN) }).await;
        (problem.code, problem.message)
    }
}

#[tokio::test]
async fn a_plugin_is_to_have_what_its_jobs_say_or_what_is_known_if_that_is_more() {
    let site = Site::start(2).await;
    assert!(site.expect(job("controllers", 2, 0)).await);
    let plugin = site.plugin(PLUGIN).await;
    assert_eq!((plugin.controllers, plugin.nodes), (Some(count(0, 2)), count(0, 0)));
    assert!(site.expect(job("nodes", 0, 3)).await);
    let lease = site.lease("n1", TTL).await;
    let both_halves =
        [(PLUGIN, Half::Node, instance(true)), (PLUGIN, Half::Controller, instance(true))];
    site.report(&report("n1", &both_halves)).await;
    site.node_is("n1", "ready", PATIENCE).await;
    let plugin = site.plugin(PLUGIN).await;
    assert_eq!((plugin.controllers, plugin.nodes), (Some(count(1, 2)), count(1, 3)));
    let jobs: Vec<&str> = plugin.jobs.iter().map(|job| job.job.as_str()).collect();
    assert_eq!(jobs, ["controllers", "nodes"]);

    // The same announcement again writes nothing; another number counts from then on.
    let before = site.heads().await;
    assert!(!site.expect(job("nodes", 0, 3)).await);
    assert_eq!(site.heads().await, before);
    assert!(site.expect(job("nodes", 0, 1)).await);
    assert_eq!(site.plugin(PLUGIN).await.nodes, count(1, 1));
    for taken_back in [job("nodes", 0, 0), job("controllers", 0, 0)] {
        assert!(site.expect(taken_back.clone()).await);
        assert!(!site.expect(taken_back).await);
    }
    let plugin = site.plugin(PLUGIN).await;
    assert_eq!((plugin.controllers, plugin.jobs.len()), (Some(count(1, 1)), 0));
    let event = format!("plugin.expected {PLUGIN} ");
    site.events_are("plugin.expected", &[event.as_str(); 5]).await;
    drop(lease);
}

#[tokio::test]
async fn no_more_jobs_than_may_be() {
    let site = Site::start(1).await;
    for at in 0..limits::JOBS_PER_PLUGIN_MAX {
        assert!(site.expect(job(&at.to_string(), 1, 1)).await);
    }
    let problem = site.refused::<verb::PluginExpect>(&job("one more", 1, 1)).await;
    assert_eq!(problem.code, Code::TooManyJobs);
    // A job that is on record may change.
    assert!(site.expect(job("7", 0, 0)).await && site.expect(job("one more", 1, 1)).await);
}

#[tokio::test]
async fn what_is_left_of_a_plugin_is_deleted_when_nobody_uses_or_runs_it() {
    let mut site = Site::start(1).await;
    let unhealthy_report = || report("n1", &[(PLUGIN, Half::Node, instance(false))]);
    let lease = site.lease("n1", TTL).await;
    site.report(&unhealthy_report()).await;
    site.report(&report("n2", &[(PLUGIN, Half::Node, instance(true))])).await;
    site.node_is("n1", "ready", PATIENCE).await;
    site.expect(job("nodes", 0, 3)).await;

    // No claim service can answer whether volumes use it.
    let (code, message) = site.cannot_delete().await;
    assert_eq!(code, Code::NoResponder);
    assert!(message.contains("whether volumes use the plugin cannot be seen"), "{message}");
    site.start_claim().await;

    let volume = VolumeKey::new(Namespace::new("far").unwrap(), VolumeId::new("data").unwrap());
    let spec = json!({"plugin": PLUGIN, "schema": 1,
        "capabilities": [{"access": "single-node-writer", "attachment": "file-system"}]});
    let volumes = site.bucket(&bucket::VOLUMES).await;
    let (key, spec) = (key::spec(&volume), serde_json::to_vec(&spec).unwrap());
    let write = |revision, change| Write {
        key: &key,
        change,
        guard: Guard { filter: &key, revision },
        operation: "test",
        trace: trace(),
    };
    let revision = volumes.commit(write(0, Change::Put(spec.into()))).await.unwrap();
    let before = site.heads().await;
    let (code, message) = site.cannot_delete().await;
    assert_eq!(code, Code::PluginInUse);
    assert!(message.ends_with("is used by volumes: far/data"), "{message}");

    volumes.commit(write(revision, Change::Delete)).await.unwrap();
    let (code, message) = site.cannot_delete().await;
    assert_eq!(code, Code::PluginInUse);
    assert!(message.ends_with("is on nodes that are there: n1"), "{message}");
    assert_eq!(site.heads().await, before, "nothing is written when it is refused");

    lease.release().await.unwrap();
    site.node_is("n1", "down", PATIENCE).await;
    assert_eq!(site.delete().await, Deleted { instances: 2, jobs: 1 });
    assert_eq!(site.delete().await, Deleted::default());
    assert_eq!(site.plugins().await, []);
    // An agent that hosts it brings it back.
    site.report(&unhealthy_report()).await;
    assert_eq!(site.plugin(PLUGIN).await.nodes, count(0, 1));
}

#[tokio::test]
async fn a_node_leaves_only_as_it_was_seen_when_its_revision_is_given() {
    let site = Site::start(1).await;
    let instances = [(PLUGIN, Half::Node, instance(true))];
    site.report(&report("n1", &instances)).await;
    let nodes = site.bucket(&bucket::NODES).await;
    let read_revision =
        async || nodes.get(&key::node(&node_id("n1"))).await.unwrap().unwrap().revision;
    let leave_request = |revision| Leave { node: node_id("n1"), revision: Some(revision) };
    let first_revision = read_revision().await;

    // The node holds its lease again, before its record says so.
    let lease = site.lease("n1", TTL).await;
    let problem = site.refused::<verb::NodeLeave>(&leave_request(first_revision)).await;
    assert!(matches!(problem.code, Code::NodeReady | Code::Changed), "{problem}");
    site.node_is("n1", "ready", PATIENCE).await;
    for revision in [first_revision, 0] {
        let problem = site.refused::<verb::NodeLeave>(&leave_request(revision)).await;
        assert_eq!(problem.code, Code::Changed, "{problem}");
    }
    let problem = site.refused::<verb::NodeLeave>(&leave_request(read_revision().await)).await;
    assert_eq!(problem.code, Code::NodeReady, "{problem}");
    assert_eq!(site.plugin(PLUGIN).await.nodes, count(1, 1));

    lease.release().await.unwrap();
    site.node_is("n1", "down", PATIENCE).await;
    let node_left: NodeLeft =
        site.ask::<verb::NodeLeave>(&leave_request(read_revision().await)).await.unwrap();
    assert_eq!(node_left, NodeLeft { known: true, instances: 1, gone: false });
    // A node without a record.
    let node_left: NodeLeft = site.ask::<verb::NodeLeave>(&leave_request(0)).await.unwrap();
    assert_eq!(node_left, NodeLeft { known: false, instances: 0, gone: false });
}
