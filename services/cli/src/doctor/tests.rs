//! Each check from its own facts.

mod golden;
mod slow;

use std::collections::BTreeMap;

use berth_bus::replication::{CopiesReport, StreamCopies};
use berth_bus::{Identity, ServerReport, StreamReport};
use berth_contract::code::Code;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::permissions::derive_permissions;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::role::{Grants, Role};
use berth_contract::service;
use berth_domain::plugin::Count;
use berth_domain::{NodeId, Timestamp};
use clap::Parser as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Verdict::{Fault, Warning};
use super::certificate::Certificate;
use super::*;
use crate::args::Cli;
use crate::show;
use berth_explain::{Facts, ServiceInfo};

const VERSION: &str = "0.1.0";
const DAY_S: u64 = 24 * 3600;

fn at(s: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_795_262_400_000 + s * 1000)
}

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn with(mut base: Value, more: Value) -> Value {
    let (Some(fields), Value::Object(more)) = (base.as_object_mut(), more) else {
        panic!("objects")
    };
    fields.extend(more);
    base
}

pub(super) fn replica(more: Value) -> Replica {
    let metadata = json!({"worker": "x/host/1", "clock_skew_ms": "3", "reads_schema": "2",
        "level": "2"});
    read(with(json!({"id": "x-1", "version": VERSION, "metadata": metadata}), more))
}

fn instance(node: &str, half: &str, healthy: bool) -> Value {
    json!({"plugin": "p", "node": node, "half": half, "healthy": healthy,
        "description": "the socket refuses connections", "version": "1", "since": at(0)})
}

fn node(id: &str, more: Value) -> Value {
    let instances = [instance(id, "node", true), instance(id, "controller", true)];
    let node = json!({"id": id, "state": "ready", "since": at(0), "revision": 12,
        "clock_skew_ms": -4, "version": VERSION, "boot_id": "b", "instances": instances});
    with(node, more)
}

fn agent(node: &str, work: &[Value]) -> Value {
    json!({"node": node, "since": at(0), "mounts": [], "work": work, "controllers": []})
}

fn claim(more: Value) -> ClaimStatus {
    let claim = json!({"namespace": "default", "volume": "data", "alloc": "a", "node": "n1",
        "state": "unpublishing", "step": "agent.detach", "mode": "write", "since": at(0),
        "epoch": 7});
    read(with(claim, more))
}

/// The registry's lists, and the same facts for `why`; every node's agent answers.
fn set_registry(facts: &mut SystemFacts, nodes: &[Value], healthy: usize, expected: usize) {
    let nodes: Vec<berth_contract::message::registry::NodeStatus> =
        nodes.iter().cloned().map(read).collect();
    let count = json!({"healthy": healthy, "expected": expected});
    let instances: Vec<_> = nodes.iter().flat_map(|node| node.instances.clone()).collect();
    let plugin: berth_contract::message::registry::PluginStatus =
        read(json!({"id": "p", "provider": "p", "versions": [], "controllers": count,
            "nodes": count, "attaches": true, "instances": instances}));
    facts.why.nodes = nodes.iter().map(|node| (node.id.clone(), Ok(node.clone()))).collect();
    facts.why.plugins = [(plugin.id.clone(), Ok(plugin.clone()))].into();
    facts.why.agents = nodes
        .iter()
        .filter(|node| node.state == berth_domain::plugin::NodeState::Ready)
        .map(|node| (node.id.clone(), Ok(read(agent(node.id.as_str(), &[])))))
        .collect();
    facts.registry = Ok(RegistryLists { nodes, plugins: vec![plugin], ..Default::default() });
}

fn stream(name: &str) -> StreamReport {
    let clock_skew_ms = Some(0);
    StreamReport { name: name.to_owned(), copies: 1, clock_skew_ms, ..StreamReport::default() }
}

/// An identity with the rights of this role.
fn identity(name: &str, role: &Role) -> Identity {
    let permissions = Some(derive_permissions(role).with_inbox("_INBOX.U"));
    Identity { key: "U".to_owned(), name: Some(name.to_owned()), expires: None, permissions }
}

fn operator(name: &str) -> Role {
    let grants = Grants { operator: true, ..Grants::default() };
    Role::User { name: name.to_owned(), grants }
}

fn certificate(place: &str, days: u64) -> Certificate {
    Certificate { place: place.to_owned(), expires: Ok(at(days * DAY_S)) }
}

/// Facts of a system in which nothing is wrong.
pub(super) fn well() -> SystemFacts {
    let mut facts = SystemFacts {
        now: at(100),
        own_version: VERSION.to_owned(),
        server: ServerReport {
            name: "berth-1".to_owned(),
            version: "2.15.1".to_owned(),
            jetstream: true,
            cluster: None,
        },
        access: AccessFacts {
            identity: Some(identity("user/anna", &operator("anna"))),
            certificates: vec![
                certificate("authority 1 of /ca.pem", 3650),
                certificate("server n1:4222", 730),
            ],
        },
        streams: ["KV_berth-volumes", "KV_berth-nodes"]
            .map(|name| (name.to_owned(), Ok(Some(stream(name)))))
            .into(),
        copies: None,
        replicas: BTreeMap::new(),
        registry: Ok(RegistryLists::default()),
        claims: Ok(ClaimList::default()),
        storage: Ok(StorageFacts { volume_count: 3, snapshot_count: 1, ..StorageFacts::default() }),
        unowned: Ok(UnownedAllocs::default()),
        volume_records: Ok(Vec::new()),
        why: Facts { now: at(100), ..Facts::default() },
        agents_left_out: 0,
    };
    for service in service::ALL {
        facts.replicas.insert(service.name, Ok(vec![replica(json!({}))]));
        let info = ServiceInfo { clock_skew_ms: Some(3), access: None };
        facts.why.services.insert(service.name, Ok(info));
    }
    let leads = json!({"endpoints": [{"name": "gc-force"}]});
    facts.replicas.insert(service::GC.name, Ok(vec![replica(leads)]));
    set_registry(&mut facts, &[node("n1", json!({})), node("n2", json!({}))], 2, 2);
    let taken = json!({"state": "taken", "step": null});
    facts.claims = Ok(ClaimList { claims: vec![claim(taken)], ..ClaimList::default() });
    let mount = json!({"namespace": "default", "volume": "data", "alloc": "a", "epoch": 7,
        "plugin": "p", "path": "/s", "mounted": true, "state": "published", "since": at(0),
        "health": "well"});
    let n1 = with(agent("n1", &[]), json!({"mounts": [mount]}));
    facts.why.agents.insert(NodeId::new("n1").unwrap(), Ok(read(n1)));
    facts
}

fn away() -> Problem {
    Problem::new(Code::NoResponder, "nobody answers").at_step("node.status")
}

/// The only check with a finding, its verdict and the sentence of its first finding. Asserts that
/// the parser accepts every command, and that every finding has one.
pub(super) fn only(facts: &SystemFacts) -> (&'static str, Verdict, String) {
    let report = examine(facts);
    let text = show::doctor(&report, false);
    let mut ill = report.checks.iter().filter(|check| check.verdict != Verdict::Well);
    let (Some(check), None) = (ill.next(), ill.next()) else { panic!("not one check:\n{text}") };
    assert_eq!(report.verdict, check.verdict);
    for finding in &check.findings {
        assert!(!finding.next.is_empty(), "nothing to try:\n{text}");
        for command in finding.next.iter().filter(|command| command.starts_with("berth ")) {
            let words = command.split('#').next().unwrap_or_default().replace('\'', "");
            Cli::try_parse_from(words.split_whitespace()).unwrap();
        }
    }
    (check.check, check.verdict, check.findings[0].what.clone())
}

fn changed(change: impl FnOnce(&mut SystemFacts)) -> (&'static str, Verdict, String) {
    let mut facts = well();
    change(&mut facts);
    only(&facts)
}

#[test]
fn nothing_is_wrong_with_a_whole_system() {
    let report = examine(&well());
    assert_eq!(report.verdict, Verdict::Well, "{}", show::doctor(&report, false));
    assert_eq!(report.checks.len(), CHECKS.len());
    insta::assert_snapshot!(show::doctor(&report, false));
    assert_eq!(show::doctor(&report, true), "nothing is wrong\n");
}

#[test]
fn exit_codes_grow_with_the_severity() {
    assert!(Verdict::Well < Warning && Warning < Fault);
    let codes = [Verdict::Well, Warning, Fault].map(Verdict::exit);
    assert_eq!(codes, [0, 1, 2]);
}

/// Adds a volume with this state at its storage.
fn set_storage(facts: &mut SystemFacts, storage: &Value) {
    let volume = json!({"id": "data", "namespace": "default", "plugin": "p",
        "capabilities": [], "claims": [], "create_index": 1, "modify_index": 2,
        "storage": storage, "health": {"healthy": true, "description": "",
        "nodes": {"healthy": 1, "expected": 1}}});
    facts.storage.as_mut().unwrap().volumes.push(read(volume));
}

fn set_snapshot(facts: &mut SystemFacts, state: &str, since: Timestamp, more: Value) {
    let snapshot = json!({"namespace": "default", "volume": "data", "snapshot": "s",
        "state": state, "since": since, "plugin": "p", "modify_index": 3});
    facts.storage.as_mut().unwrap().snapshots.push(read(with(snapshot, more)));
}

/// A plugin answered this call with INTERNAL.
fn failed(rpc: &str) -> Value {
    json!({"tries": 3, "error": "no", "next_try": at(105),
        "failure": {"rpc": rpc, "grpc": "INTERNAL"}})
}

#[test]
fn a_change_of_the_storage_that_fails_for_a_while_is_found_in_the_words_of_why() {
    assert_found(&[
        ("storage", Fault, "creating: plugin p answers CreateVolume with INTERNAL", |facts| {
            let change = json!({"operation": "create", "since": at(0), "call": "controller.x"});
            let fails = with(change, failed("CreateVolume"));
            set_storage(facts, &json!({"stage": "creating", "operation": fails}));
        }),
        ("storage", Warning, "expanding for 11m: expanding: its next call is due", |facts| {
            facts.now = at(700);
            facts.why.now = at(700);
            let slow = json!({"operation": "expand", "since": at(0), "call": "controller.expand"});
            set_storage(facts, &json!({"stage": "ready", "operation": slow}));
        }),
        ("storage", Warning, "refused to create it", |facts| {
            let failure = json!({"operation": "create", "at": at(0), "error": "no"});
            set_storage(facts, &json!({"stage": "failed", "failure": failure}));
        }),
        ("storage", Warning, "refused to delete it", |facts| {
            let failure = json!({"operation": "delete", "at": at(0), "error": "no"});
            set_storage(facts, &json!({"stage": "ready", "failure": failure}));
        }),
        ("storage", Warning, "refused to cut snapshot data@s: no", |facts| {
            set_snapshot(facts, "failed", at(90), json!({"error": "no"}));
        }),
        ("storage", Fault, "snapshot data@s: creating: plugin p answers", |facts| {
            set_snapshot(facts, "creating", at(0), failed("CreateSnapshot"));
        }),
        ("storage", Warning, "not known: volumes at their storage", |facts| {
            facts.storage = Err(away());
        }),
    ]);
    // A change that has just begun, one that the plugin still works on, and one that was refused
    // while the volume is used as before.
    let mut facts = well();
    let young = json!({"operation": "create", "since": at(95), "call": "controller.create"});
    set_storage(&mut facts, &json!({"stage": "creating", "operation": young}));
    let failure = json!({"operation": "expand", "at": at(0), "error": "no"});
    set_storage(&mut facts, &json!({"stage": "ready", "failure": failure}));
    set_snapshot(&mut facts, "cut", at(0), json!({"tries": 9}));
    assert_eq!(examine(&facts).verdict, Verdict::Well);
}

type FaultCase = (&'static str, Verdict, &'static str, fn(&mut SystemFacts));

/// Asserts that each change of a whole system is found by this check alone, with this verdict and
/// sentence.
fn assert_found(cases: &[FaultCase]) {
    for (check, verdict, sentence, change) in cases {
        let (found_check, severity, what) = changed(change);
        assert_eq!((found_check, severity), (*check, *verdict), "{what}");
        assert!(what.contains(sentence), "{check}: {what}");
    }
}

#[test]
fn faults_of_the_bus_and_the_services_are_found_by_their_own_checks() {
    assert_found(&[
        ("bus", Fault, "JetStream is off", |facts| facts.server.jetstream = false),
        ("streams", Fault, "does not exist", |facts| {
            facts.streams.insert("KV_berth-nodes".to_owned(), Ok(None));
        }),
        ("streams", Fault, "its leader does not answer", |facts| {
            facts.streams.insert("KV_berth-nodes".to_owned(), Err(away()));
        }),
        ("streams", Warning, "1 of the 3 copies that the cluster has room for", |facts| {
            let short = StreamCopies {
                stream: "KV_berth-nodes".to_owned(),
                copies: Some(1),
                wanted: 3,
                leader: None,
                in_sync: 1,
                problem: None,
            };
            let report = CopiesReport { cluster: None, servers: Vec::new(), streams: vec![short] };
            facts.copies = Some(report);
        }),
        ("clocks", Fault, "the clock of this host is 5.0 s behind", |facts| {
            for answer in facts.streams.values_mut() {
                answer.as_mut().unwrap().as_mut().unwrap().clock_skew_ms = Some(-5_000);
            }
        }),
        ("clocks", Warning, "the clock of berth-claim x/host/1 is 1.5 s ahead", |facts| {
            let skewed = json!({"metadata": {"worker": "x/host/1", "clock_skew_ms": "1500",
                "reads_schema": "2", "level": "2"}});
            facts.replicas.insert(service::CLAIM.name, Ok(vec![replica(skewed)]));
        }),
        ("clocks", Fault, "so it is granted no claim", |facts| {
            let skewed = node("n1", json!({"clock_skew_ms": 90_000}));
            set_registry(facts, &[skewed, node("n2", json!({}))], 2, 2);
            facts.claims = Ok(ClaimList::default());
        }),
        ("services", Fault, "no berth-volumewatcher answers, so no release goes on", |facts| {
            facts.replicas.insert(service::VOLUMEWATCHER.name, Ok(Vec::new()));
        }),
        ("services", Warning, "no berth-gc answers", |facts| {
            facts.replicas.insert(service::GC.name, Ok(Vec::new()));
        }),
        ("services", Warning, "no replica leads", |facts| {
            facts.replicas.insert(service::GC.name, Ok(vec![replica(json!({}))]));
        }),
        ("services", Warning, "versions differ: 0.0.9, 0.1.0 run", |facts| {
            let older = replica(json!({"version": "0.0.9"}));
            facts.replicas.insert(service::NODE_AGENT.name, Ok(vec![older]));
        }),
        ("services", Warning, "versions differ: 0.1.0 run, and this berth is 0.2.0", |facts| {
            facts.own_version = "0.2.0".to_owned();
        }),
        ("services", Warning, "endpoint claim-take failed 40s ago", |facts| {
            let data = json!({"last_error_at": at(60)});
            let last_error = format!("{}:claim.take: a defect", Code::Internal);
            let endpoint = json!({"name": "claim-take", "last_error": last_error, "data": data});
            let failing = replica(json!({"endpoints": [endpoint]}));
            facts.replicas.insert(service::CLAIM.name, Ok(vec![failing]));
        }),
        ("services", Warning, "endpoint claim-take has 8 requests in progress", |facts| {
            let data = json!({"in_flight": 8, "max_in_flight": 8});
            let full = replica(json!({"endpoints": [{"name": "claim-take", "data": data}]}));
            facts.replicas.insert(service::CLAIM.name, Ok(vec![full]));
        }),
    ]);
}

/// A storage may be provisioned from here and mounted elsewhere.
#[test]
fn a_plugin_of_which_only_controllers_are_hosted_has_no_fault() {
    let mut facts = well();
    let hosts = node("n1", json!({"instances": [instance("n1", "controller", true)]}));
    set_registry(&mut facts, &[hosts], 1, 1);
    facts.registry.as_mut().unwrap().plugins[0].nodes = Count::default();
    facts.claims = Ok(ClaimList::default());
    let examined = plugins::examine(&facts);
    assert!(examined.findings.is_empty(), "{:?}", examined.findings);
    assert_eq!(examined.summary, "1 of 1 complete");
    facts.registry.as_mut().unwrap().plugins[0].nodes.expected = 1;
    assert_eq!(plugins::examine(&facts).findings.len(), 1, "a job announces a node instance");
}

#[test]
fn faults_of_nodes_plugins_and_claims_are_found_by_their_own_checks() {
    assert_found(&[
        ("nodes", Fault, "node n2 is down for", |facts| {
            let ill = [instance("n2", "node", false), instance("n2", "controller", false)];
            let down = node("n2", json!({"state": "down", "instances": ill}));
            set_registry(facts, &[node("n1", json!({})), down], 1, 2);
            facts.claims = Ok(ClaimList::default());
        }),
        // The only node where a volume could be mounted; the controller runs elsewhere.
        ("nodes", Fault, "node n2 is down for", |facts| {
            let up = node("n1", json!({"instances": [instance("n1", "controller", true)]}));
            let half = [instance("n2", "node", false)];
            let down = node("n2", json!({"state": "down", "instances": half}));
            set_registry(facts, &[up, down], 1, 1);
            facts.registry.as_mut().unwrap().plugins[0].nodes.healthy = 0;
            facts.claims = Ok(ClaimList::default());
        }),
        ("nodes", Fault, "the agent of node n2 has ended", |facts| {
            facts.why.agents.insert(NodeId::new("n2").unwrap(), Err(away()));
        }),
        ("nodes", Warning, "no agent has reported", |facts| {
            set_registry(facts, &[], 0, 0);
            facts.registry.as_mut().unwrap().plugins.clear();
            facts.claims = Ok(ClaimList::default());
        }),
        ("plugins", Fault, "plugin p is unhealthy on node n2", |facts| {
            let ill = [instance("n2", "node", false), instance("n2", "controller", true)];
            let ill = node("n2", json!({"instances": ill}));
            set_registry(facts, &[node("n1", json!({})), ill], 1, 2);
            facts.claims = Ok(ClaimList::default());
        }),
        ("plugins", Fault, "no controller of plugin p is healthy", |facts| {
            let half = [instance("n1", "node", true)];
            let ill = [instance("n2", "node", false), instance("n2", "controller", false)];
            let down = node("n2", json!({"state": "ready", "instances": ill}));
            set_registry(facts, &[node("n1", json!({"instances": half})), down], 0, 1);
            let plugin = &mut facts.registry.as_mut().unwrap().plugins[0];
            plugin.nodes.healthy = 1;
            plugin.instances.retain(|instance| instance.node.as_str() == "n1");
            facts.claims = Ok(ClaimList::default());
        }),
        ("plugins", Warning, "2 of 3 controllers run, 2 of 3 node instances run", |facts| {
            set_registry(facts, &[node("n1", json!({})), node("n2", json!({}))], 2, 3);
            facts.claims = Ok(ClaimList::default());
        }),
        ("claims", Fault, "no berth-volumewatcher answers", |facts| {
            facts.why.services.insert(service::VOLUMEWATCHER.name, Err(away()));
            let stuck = ClaimList { claims: vec![claim(json!({}))], ..ClaimList::default() };
            facts.claims = Ok(stuck);
        }),
        ("claims", Warning, "there are more claims than the 1", |facts| {
            facts.claims.as_mut().unwrap().is_cut = true;
        }),
        ("operations", Fault, "has not answered NodeUnpublishVolume", |facts| {
            let work = json!({"namespace": "default", "volume": "data", "alloc": "b",
                "step": "agent.detach", "since": at(50), "rpc": "NodeUnpublishVolume",
                "rpc_since": at(60), "hung": true});
            let hangs = read(agent("n2", &[work]));
            facts.why.agents.insert(NodeId::new("n2").unwrap(), Ok(hangs));
        }),
        ("records", Fault, "a record is damaged", |facts| {
            let error = "the record cannot be read: expected value".to_owned();
            let key = "default.data.spec".to_owned();
            let record = UnreadableRecord { key, code: Code::DamagedRecord, error };
            facts.claims.as_mut().unwrap().unreadable.push(record.clone());
            facts.volume_records = Ok(vec![record]);
        }),
    ]);
}

/// Each check that needs an absent source says so, and the other checks go on.
#[test]
fn a_check_whose_source_is_away_is_a_warning() {
    let mut facts = well();
    facts.registry = Err(away());
    facts.claims = Err(away());
    facts.volume_records = Err(away());
    let report = examine(&facts);
    assert_eq!(report.verdict, Warning);
    let not_made: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| check.verdict == Warning)
        .map(|check| check.check)
        .collect();
    assert_eq!(not_made, ["clocks", "nodes", "plugins", "claims", "operations", "records"]);
}

#[test]
fn many_findings_are_cut_and_the_worst_stay() {
    let mut facts = well();
    let away: Vec<Value> = (0..30)
        .map(|at| node(&format!("m{at}"), json!({"state": "down", "instances": []})))
        .collect();
    set_registry(&mut facts, &away, 1, 1);
    facts.claims = Ok(ClaimList::default());
    facts.agents_left_out = 3;
    let report = examine(&facts);
    let nodes = report.checks.iter().find(|check| check.check == "nodes").unwrap();
    assert_eq!((nodes.findings.len(), nodes.more), (20, 11));
    assert!(nodes.findings.iter().all(|finding| finding.severity == Fault));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["verdict"], "fault");
    assert_eq!(json["checks"][7]["findings"][0]["where"], "node m0");
}

#[test]
fn without_a_bus_the_report_says_so() {
    let problem = Problem::new(Code::BusUnavailable, "no connection to nats-server at h:1");
    let report = bus_away(&problem, &AccessFacts::default(), at(100));
    assert_eq!(report.verdict, Fault);
    insta::assert_snapshot!(show::doctor(&report, false));
}

#[test]
fn ends_of_certificates_and_credentials_are_found_two_weeks_before() {
    fn set_end(facts: &mut SystemFacts, s: u64) {
        facts.access.identity.as_mut().unwrap().expires = Some(at(s));
    }
    fn set_certificate(facts: &mut SystemFacts, index: usize, s: u64) {
        facts.access.certificates[index].expires = Ok(at(s));
    }
    assert_found(&[
        ("expiry", Warning, "credentials of user/anna expires in 13d", |facts| {
            set_end(facts, 13 * DAY_S + 100);
        }),
        ("expiry", Fault, "credentials of user/anna expired 40s ago", |facts| set_end(facts, 60)),
        ("expiry", Warning, "server n1:4222 expires in 2h", |facts| {
            set_certificate(facts, 1, 7300);
        }),
        ("expiry", Fault, "server n1:4222 expired", |facts| set_certificate(facts, 1, 100)),
        ("expiry", Warning, "authority 1 of /ca.pem expires", |facts| {
            set_certificate(facts, 0, DAY_S);
        }),
        ("expiry", Fault, "authority 1 of /ca.pem expired", |facts| set_certificate(facts, 0, 0)),
        ("expiry", Warning, "when the certificate of server n1:4222 ends", |facts| {
            facts.access.certificates[1].expires = Err("no answer".to_owned());
        }),
        // An authority that has a successor only needs to be retired.
        ("expiry", Warning, "authority 1 of /ca.pem expired", |facts| {
            set_certificate(facts, 0, 0);
            facts.access.certificates.push(certificate("authority 2 of /ca.pem", 3650));
        }),
    ]);
    let mut facts = well();
    set_end(&mut facts, 14 * DAY_S + 100);
    assert_eq!(examine(&facts).verdict, Verdict::Well);
}

#[test]
fn without_a_connection_an_end_is_reported_beside_the_bus() {
    let refused = Problem::new(Code::NotAllowed, "nats-server and this process refuse each other");
    let access = well().access;
    assert_eq!(bus_away(&refused, &access, at(100)).checks.len(), 1);
    let report = bus_away(&refused, &access, at(731 * DAY_S));
    assert_eq!(report.verdict, Fault);
    let sentences: Vec<&str> = report
        .checks
        .iter()
        .flat_map(|check| &check.findings)
        .map(|finding| &*finding.what)
        .collect();
    assert!(sentences[0].contains("refuse each other"), "{sentences:?}");
    assert_eq!(sentences[1..], ["server n1:4222 expired 24h ago"]);
}

fn summary_of(role: &Role) -> (Verdict, String, Vec<String>) {
    let mut facts = well();
    let name = role.identity_name(None);
    facts.access.identity = Some(identity(&name, role));
    let report = examine(&facts);
    let check = report.checks.iter().find(|check| check.check == "permissions").unwrap();
    let evidence = check.findings.iter().flat_map(|finding| finding.evidence.clone()).collect();
    (check.verdict, check.summary.clone(), evidence)
}

#[test]
fn the_callers_capabilities_are_told_with_the_checks_that_lack_one() {
    let name = || "anna".to_owned();
    let full_access = "read in all namespaces";
    for (role, capabilities) in [
        (operator("anna"), "plugin:read, node:read, operator"),
        (Role::Admin { name: name() }, "mount in all namespaces, plugin:read, node:read, operator"),
    ] {
        let (verdict, summary, _) = summary_of(&role);
        assert_eq!(verdict, Verdict::Well, "{summary}");
        assert!(summary.contains(full_access) && summary.ends_with(capabilities), "{summary}");
    }
    let grants = Grants::parse_namespaces(&["a=read,mount", "b=read"]).unwrap();
    let user = Role::User { name: name(), grants: Grants { node_read: true, ..grants } };
    let (verdict, summary, lacks) = summary_of(&user);
    assert_eq!(verdict, Warning);
    assert_eq!(summary, "user/anna: read in a and b, mount in a, node:read");
    let expected = [
        "claims: claim.status",
        "clocks: $SRV.STATS.",
        "level: $SRV.STATS.",
        "nodes: agent.status",
        "operations: agent.status",
        "owners: alloc.list",
        "plugins: plugin.status",
        "records: plugin.status, claim.status, volume.list, alloc.list",
        "services: $SRV.STATS.",
        "storage: volume.list, volume.status, snapshot.list",
        "streams: $JS.API.STREAM.INFO.",
    ];
    assert_eq!(lacks, expected);
    // An inspector reads statistics and all streams except that of the secrets, and sends no
    // request.
    let (_, summary, lacks) = summary_of(&Role::Inspect { name: name() });
    assert_eq!(summary, "inspect/anna: has no capability");
    assert!(lacks.contains(&expected[10].to_owned()), "{lacks:?}");
    assert!(!lacks.iter().any(|line| line.contains("$SRV")), "{lacks:?}");
    // Without a token the rights are not known, and no check has a fault.
    let mut facts = well();
    facts.access.identity = None;
    assert_eq!(examine(&facts).verdict, Verdict::Well);
}

/// A need that no right grants would never be reported as missing.
#[test]
fn each_check_that_needs_a_right_is_a_check() {
    let (_, _, lacks) = summary_of(&Role::User { name: "x".to_owned(), grants: Grants::default() });
    let needs = permissions::NEEDS;
    assert_eq!(lacks.len(), needs.len());
    for (check, needs) in needs {
        assert!(CHECKS.iter().any(|known_check| known_check.name == check), "{check}");
        assert!(lacks.contains(&format!("{check}: {}", needs.join(", "))), "{lacks:?}");
    }
}
