//! Counts are compared with a recomputation; and an absent node's instances are unhealthy.

use std::collections::BTreeMap;

use berth_bus::Fold;
use berth_contract::message::registry::{NodeReport, PluginStatus, ReportedInstance};
use berth_contract::{key, record};
use berth_domain::plugin::{Count, Half, Instance, Job, Node, NodeAbilities, NodeState, Plugin};
use berth_domain::{JobId, Namespace, NodeId, PluginId, Timestamp};
use berth_service::projection::{Instances, Nodes};
use berth_service::registry_status::{instance_status, plugin_status};
use proptest::prelude::*;

use super::decide::{ReceivedReport, Verdict, decide};
use crate::store::node_records::{NodeRecords, Write};

const NODES: usize = 4;
const PLUGINS: usize = 3;

/// What happens to one node.
#[derive(Debug, Clone)]
enum Happening {
    /// It reports these instances: by plugin and half, healthy or not.
    Report(BTreeMap<(usize, Half), bool>),
    /// Its newest report is sent again.
    Again,
    /// It reports these, and the registry is killed after this many writes; it reports again.
    Crash(BTreeMap<(usize, Half), bool>, usize),
    /// A job is to run this many controllers and nodes of this plugin.
    Expect(usize, u32, u32),
    Lease(bool),
    Leave,
}

/// The registry's buckets, with the records in their stored form.
#[derive(Default)]
struct Buckets {
    instances: Instances,
    nodes: Nodes,
    revision: u64,
    /// The encoded records: of instances and jobs, and of nodes.
    stored: (BTreeMap<String, Vec<u8>>, BTreeMap<String, Vec<u8>>),
}

/// How many controllers and nodes each job is to run: by plugin, and by the node that the job is
/// named after.
type Announced = BTreeMap<(usize, usize), (u32, u32)>;

/// What each node reported last, and whether it holds its lease. A count depends on nothing else.
type Truth = BTreeMap<NodeId, (BTreeMap<(usize, Half), bool>, bool)>;

/// A plugin with all its instances.
fn whole(id: &PluginId, plugin: &Plugin, nodes: &Nodes) -> PluginStatus {
    let instances = plugin.instances.iter().map(|((node, half), instance)| {
        let fault = plugin.node_id_fault(node);
        instance_status((id, node, *half), instance, nodes.get(node), fault)
    });
    plugin_status(id, plugin, nodes, instances.collect())
}

fn node_id(at: usize) -> NodeId {
    NodeId::new(format!("n{at}.example")).unwrap()
}

fn plugin_id(at: usize) -> PluginId {
    PluginId::new(format!("csi.plugin/{at}")).unwrap()
}

fn instance(healthy: bool) -> Instance {
    Instance {
        healthy,
        description: "said".to_owned(),
        provider: "csi.example".to_owned(),
        version: "1.0".to_owned(),
        since: Timestamp::from_unix_ms(1),
        controller: None,
        node: None,
        id_since: None,
        process: None,
    }
}

fn report(node: &NodeId, clock: u64, healths: &BTreeMap<(usize, Half), bool>) -> ReceivedReport {
    let instances = healths.iter().map(|((plugin, half), healthy)| ReportedInstance {
        plugin: plugin_id(*plugin),
        half: *half,
        // Each plugin has told which services it has.
        instance: Instance {
            node: (*half == Half::Node).then(NodeAbilities::default),
            ..instance(*healthy)
        },
    });
    let report = NodeReport {
        clock_offset: None,
        node: node.clone(),
        version: "1".to_owned(),
        boot_id: "boot".to_owned(),
        clock: Timestamp::from_unix_ms(clock),
        attributes: BTreeMap::new(),
        unaccounted: Vec::new(),
        compared: None,
        sealing_key: None,
        instances: instances.collect(),
        undone: None,
    };
    ReceivedReport { at: report.clock, report, volumes: None }
}

impl Buckets {
    fn node_records(&self, node: &NodeId) -> NodeRecords {
        let mut records =
            NodeRecords { node: self.nodes.get(node).cloned(), ..NodeRecords::default() };
        for (plugin, plugin_state) in self.instances.iter() {
            for ((instance_node, half), instance) in &plugin_state.instances {
                if instance_node == node {
                    records.instances.insert((plugin.clone(), *half), instance.clone());
                }
            }
        }
        records
    }

    fn work_in(&mut self, arrived: &ReceivedReport) -> usize {
        self.work_in_until(arrived, usize::MAX)
    }

    /// Makes at most `killed_after` of the report's writes, and returns how many it made. An agent
    /// shows its rights before each report.
    fn work_in_until(&mut self, arrived: &ReceivedReport, killed_after: usize) -> usize {
        let node = &arrived.report.node;
        self.show_rights(arrived);
        let Verdict::Write(writes) = decide(&self.node_records(node), arrived) else {
            panic!("nothing comes late here")
        };
        let write_count = writes.len().min(killed_after);
        for write in &writes[..write_count] {
            self.write(node, write);
        }
        write_count
    }

    fn show_rights(&mut self, arrived: &ReceivedReport) {
        let node = &arrived.report.node;
        for reported in
            arrived.report.instances.iter().filter(|reported| reported.half == Half::Controller)
        {
            let mut record =
                self.nodes.get(node).cloned().unwrap_or_else(|| Node::unknown(arrived.at));
            if record.hosts.insert(reported.plugin.clone()) {
                self.write(node, &Write::Node(record));
            }
        }
    }

    fn write(&mut self, node: &NodeId, write: &Write) {
        match write {
            Write::Node(record) => {
                self.put_node(key::node(node), record::write(record, None).unwrap());
            }
            Write::Put((plugin, half), record) => {
                let key = key::instance(plugin, node, *half);
                self.put(key, record::write(record, None).unwrap());
            }
            Write::Delete((plugin, half)) => self.delete(&key::instance(plugin, node, *half)),
        }
    }

    fn put(&mut self, key: String, value: Vec<u8>) {
        self.revision += 1;
        self.instances.put(&key, self.revision, &value);
        self.stored.0.insert(key, value);
    }

    fn delete(&mut self, key: &str) {
        self.revision += 1;
        self.instances.delete(key, self.revision);
        self.stored.0.remove(key);
    }

    fn put_node(&mut self, key: String, value: Vec<u8>) {
        self.revision += 1;
        self.nodes.put(&key, self.revision, &value);
        self.stored.1.insert(key, value);
    }

    fn lease(&mut self, node: &NodeId, is_held: bool) {
        if let Some(record) = self.nodes.get(node).cloned() {
            let state = if is_held { NodeState::Ready } else { NodeState::Down };
            self.write(node, &Write::Node(Node { state, ..record }));
        }
    }

    fn leave(&mut self, node: &NodeId) {
        for (key, _) in self.node_records(node).instances {
            self.write(node, &Write::Delete(key));
        }
        self.nodes.delete(&key::node(node), self.revision);
        self.stored.1.remove(&key::node(node));
    }

    fn expect(&mut self, (plugin, job): (usize, usize), controllers: u32, nodes: u32) {
        let id = JobId::new(format!("job.{job}")).unwrap();
        let key = key::job(&plugin_id(plugin), &Namespace::default(), &id);
        if (controllers, nodes) == (0, 0) {
            self.delete(&key);
        } else {
            let job = Job { controllers, nodes, since: Timestamp::from_unix_ms(1) };
            self.put(key, record::write(job, None).unwrap());
        }
    }

    /// The status of all plugins. It is the same if all records are read again.
    fn shown(&self) -> BTreeMap<PluginId, PluginStatus> {
        let list_statuses = |instances: &Instances, nodes: &Nodes| -> BTreeMap<_, _> {
            instances.iter().map(|(id, plugin)| (id.clone(), whole(id, plugin, nodes))).collect()
        };
        let (mut instances, mut nodes) = (Instances::default(), Nodes::default());
        // A listing may have any order.
        for (key, value) in self.stored.0.iter().rev() {
            instances.put(key, 1, value);
        }
        for (key, value) in &self.stored.1 {
            nodes.put(key, 1, value);
        }
        let statuses = list_statuses(&self.instances, &self.nodes);
        assert_eq!(statuses, list_statuses(&instances, &nodes), "as built again from the records");
        statuses
    }
}

fn recount(truth: &Truth, announced: &Announced, plugin: usize, half: Half) -> Count {
    let mut count = Count::default();
    for (healths, is_held) in truth.values() {
        if let Some(healthy) = healths.get(&(plugin, half)) {
            count.expected += 1;
            count.healthy += usize::from(*healthy && *is_held);
        }
    }
    let jobs =
        announced.iter().filter(|((job_plugin, _), _)| *job_plugin == plugin).map(|(_, job)| {
            match half {
                Half::Controller => job.0 as usize,
                Half::Node => job.1 as usize,
            }
        });
    Count { expected: count.expected.max(jobs.sum()), ..count }
}

fn happening() -> impl Strategy<Value = (usize, Happening)> {
    let half = prop_oneof![Just(Half::Controller), Just(Half::Node)];
    let healths = prop::collection::btree_map((0..PLUGINS, half), any::<bool>(), 0..5);
    let kind = prop_oneof![
        5 => healths.clone().prop_map(Happening::Report),
        1 => Just(Happening::Again),
        2 => (healths, 0..6usize).prop_map(|(healths, writes)| Happening::Crash(healths, writes)),
        2 => (0..PLUGINS, 0..4u32, 0..4u32).prop_map(|(p, c, n)| Happening::Expect(p, c, n)),
        2 => any::<bool>().prop_map(Happening::Lease),
        1 => Just(Happening::Leave),
    ];
    (0..NODES, kind)
}

proptest! {
    /// D1, D3 and D5 hold for reports and announcements in any order, repeated, and with a registry
    /// that is killed between two writes.
    #[test]
    fn counts_are_what_a_recount_gives(story in prop::collection::vec(happening(), 1..60)) {
        let (mut buckets, mut truth) = (Buckets::default(), Truth::new());
        let mut announced = Announced::new();
        for (clock, (at, happening)) in story.into_iter().enumerate() {
            let (node, clock) = (node_id(at), 1_000 * (clock as u64 + 1));
            match happening {
                Happening::Report(healths) => {
                    buckets.work_in(&report(&node, clock, &healths));
                    truth.entry(node).or_default().0 = healths;
                }
                Happening::Again => {
                    if let Some((healths, _)) = truth.get(&node) {
                        let repeated = report(&node, clock, healths);
                        prop_assert_eq!(buckets.work_in(&repeated), 0, "a repeated report writes");
                    }
                }
                Happening::Crash(healths, writes) => {
                    buckets.work_in_until(&report(&node, clock, &healths), writes);
                    buckets.work_in(&report(&node, clock + 500, &healths));
                    truth.entry(node).or_default().0 = healths;
                }
                Happening::Expect(plugin, controllers, nodes) => {
                    buckets.expect((plugin, at), controllers, nodes);
                    announced.insert((plugin, at), (controllers, nodes));
                }
                Happening::Lease(is_held) => {
                    buckets.lease(&node, is_held);
                    if let Some((_, was_held)) = truth.get_mut(&node) {
                        *was_held = is_held;
                    }
                }
                Happening::Leave => {
                    buckets.leave(&node);
                    truth.remove(&node);
                }
            }
            let statuses = buckets.shown();
            for at in 0..PLUGINS {
                let count = |half| recount(&truth, &announced, at, half);
                let (controllers, nodes) = (count(Half::Controller), count(Half::Node));
                let Some(status) = statuses.get(&plugin_id(at)) else {
                    // D4: without an instance and a job there is no plugin.
                    prop_assert_eq!(controllers.expected + nodes.expected, 0);
                    continue;
                };
                prop_assert_eq!(status.nodes, nodes);
                prop_assert_eq!(status.controllers.unwrap_or_default(), controllers);
                prop_assert!(nodes.healthy <= nodes.expected);
                let healthy = status.instances.iter().filter(|instance| instance.healthy).count();
                prop_assert_eq!(healthy, nodes.healthy + controllers.healthy);
            }
        }
    }
}

#[test]
fn an_instance_is_healthy_only_while_its_node_is_there() {
    let (n1, p) = (node_id(1), plugin_id(1));
    let at = Timestamp::from_unix_ms;
    let node_in = |state, since| Node { state, reported: at(1), ..Node::unknown(at(since)) };
    let (ready, down) = (node_in(NodeState::Ready, 50), node_in(NodeState::Down, 90));
    let well = Instance { since: at(70), ..instance(true) };
    let ill = Instance { since: at(70), ..instance(false) };
    let older = Instance { since: at(20), ..instance(true) };
    for (on, instance, healthy, since) in [
        (Some(&ready), &well, true, 70),
        (Some(&ready), &older, true, 50),
        (Some(&ready), &ill, false, 70),
        (Some(&down), &well, false, 90),
        (Some(&down), &ill, false, 70),
        (None, &well, false, 70),
    ] {
        let status = instance_status((&p, &n1, Half::Node), instance, on, None);
        assert_eq!((status.healthy, status.since), (healthy, at(since)), "{on:?} {instance:?}");
        assert!(status.description.ends_with("said"), "{}", status.description);
        let node_is_named = on.is_none_or(|on| on.state == NodeState::Down);
        assert_eq!(status.description.contains("node"), node_is_named, "{}", status.description);
    }
}

#[test]
fn a_plugin_shows_what_its_instances_say() {
    let mut buckets = Buckets::default();
    let id = plugin_id(0);
    for (node, version, healthy) in
        [(1, "2.0", true), (2, "1.0", false), (3, "2.0", true), (4, "", false)]
    {
        let (node, half) = (node_id(node), Half::Node);
        let instance_record = Instance { version: version.to_owned(), ..instance(healthy) };
        buckets.write(&node, &Write::Put((id.clone(), half), instance_record));
    }
    let status = whole(&id, buckets.instances.get(&id).unwrap(), &buckets.nodes);
    assert_eq!(status.versions, ["1.0", "2.0"]);
    assert_eq!((status.provider.as_str(), status.attaches), ("csi.example", false));
    assert_eq!(status.controllers, None);
    assert_eq!(status.nodes, Count { healthy: 0, expected: 4 });
    let order: Vec<&str> = status.instances.iter().map(|instance| instance.node.as_str()).collect();
    assert_eq!(order, ["n1.example", "n2.example", "n3.example", "n4.example"]);
}
