//! Earlier false alarms, and faults that were overlooked.

use berth_bus::StaleCopy;
use berth_domain::Namespace;

use super::*;

fn n2() -> NodeId {
    NodeId::new("n2").unwrap()
}

/// The findings of a check.
fn findings<'a>(report: &'a DoctorReport, check: &str) -> &'a [DoctorFinding] {
    &report.checks.iter().find(|report_of_check| report_of_check.check == check).unwrap().findings
}

fn text(report: &DoctorReport) -> String {
    show::doctor(report, true)
}

/// Reads of the namespace `a` are allowed; every other source refuses.
#[test]
fn with_a_readers_credentials_nothing_is_a_fault() {
    let mut facts = well();
    let grants = Grants::parse_namespaces(&["a=read"]).unwrap();
    let reader = Role::User { name: "anna".to_owned(), grants };
    facts.access.identity = Some(identity("user/anna", &reader));
    let refused = |step: &str| Problem::new(Code::NoAnswer, "no answer within 2s").at_step(step);
    for stream in facts.streams.values_mut() {
        *stream = Err(refused("$JS.API.STREAM"));
    }
    for service in service::ALL {
        facts.replicas.insert(service.name, Err(refused("$SRV.STATS")));
        facts.why.services.insert(service.name, Err(refused("$SRV.STATS")));
    }
    for agent in facts.why.agents.values_mut() {
        *agent = Err(refused("agent.status"));
    }
    facts.claims = Err(refused("claim.status"));
    facts.storage = Err(refused("volume.list"));
    facts.unowned = Err(refused("alloc.list"));
    facts.volume_records = Err(refused("volume.list"));
    let report = examine(&facts);
    assert_eq!(report.verdict, Warning, "{}", text(&report));
    for check in ["streams", "services", "nodes"] {
        let check_findings = findings(&report, check);
        assert_eq!(check_findings.len(), 1, "{}", text(&report));
        assert!(
            check_findings[0].evidence[0].contains("these credentials may not read"),
            "{check_findings:?}"
        );
    }
    assert!(!text(&report).contains("restart"), "{}", text(&report));
    // The same silence is a fault where the caller has the right to ask.
    facts.access = well().access;
    assert_eq!(examine(&facts).verdict, Fault);
}

#[test]
fn expired_credentials_are_no_server_to_restart() {
    let refused = Problem::new(Code::NotAllowed, "nats-server and this process refuse each other");
    let mut access = well().access;
    access.identity.as_mut().unwrap().expires = Some(at(50));
    let report = bus_away(&refused, &access, at(100));
    assert_eq!(report.verdict, Fault);
    assert!(!text(&report).contains("systemctl"), "{}", text(&report));
    assert!(findings(&report, "expiry")[0].next[0].starts_with("berth access rotate"));
}

/// The agent answers, and says that the request came after its deadline.
#[test]
fn an_agent_with_a_wrong_clock_does_not_hang() {
    let mut facts = well();
    let skewed = node("n2", json!({"clock_skew_ms": 12_000}));
    set_registry(&mut facts, &[node("n1", json!({})), skewed], 2, 2);
    facts.claims = Ok(ClaimList::default());
    facts.why.agents.insert(n2(), Err(Problem::new(Code::Late, "it is 12 s late")));
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("clocks", Fault), "{what}");
}

#[test]
fn an_expansion_that_waits_for_its_next_mount_is_done_for_now() {
    let mut facts = well();
    let waits = json!({"operation": "expand", "since": at(0), "call": "agent.expand",
        "waits_for": "next-staging"});
    set_storage(&mut facts, &json!({"stage": "ready", "operation": waits}));
    (facts.now, facts.why.now) = (at(5000), at(5000));
    let report = examine(&facts);
    assert_eq!(report.verdict, Verdict::Well, "{}", text(&report));
}

/// A host that an operator declared gone; its agent says this of its return.
fn gone(agent: Option<Value>) -> SystemFacts {
    let mut facts = well();
    let proof = json!({"kind": "powered-off", "by": "ada", "at": at(5), "note": ""});
    let gone = json!({"state": "down", "instances": [], "gone": proof,
        "attributes": {"returning": "volume data is still held"}});
    set_registry(&mut facts, &[node("n1", json!({})), node("n2", gone)], 1, 1);
    facts.claims = Ok(ClaimList::default());
    let answer = agent.map_or_else(|| Err(away()), |agent| Ok(read(agent)));
    facts.why.agents.insert(n2(), answer);
    facts
}

#[test]
fn a_host_that_is_gone_for_good_is_no_finding() {
    let report = examine(&gone(None));
    assert_eq!(report.verdict, Verdict::Well, "{}", text(&report));
    let nodes = report.checks.iter().find(|check| check.check == "nodes").unwrap();
    assert_eq!(nodes.summary, "1 ready, 1 gone");
    // The host is back, and its agent works on its return.
    assert_eq!(examine(&gone(Some(agent("n2", &[])))).verdict, Verdict::Well);
}

#[test]
fn a_gone_host_that_a_process_keeps_back_is_found_with_the_process() {
    let failure = json!({"namespace": "default", "volume": "data", "alloc": "a",
        "step": "agent.detach", "tries": 9, "at": at(90), "error": "it is held",
        "failure": {"code": Code::VolumeHeldByProcess, "node": "n2",
            "processes": [{"pid": 4711, "command": "bash"}]}});
    let facts = gone(Some(with(agent("n2", &[]), json!({"failures": [failure]}))));
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("nodes", Warning));
    assert!(what.contains("volume data is still in use there, by process 4711 (bash)"), "{what}");
    assert!(!text(&examine(&facts)).contains("systemctl"));
}

#[test]
fn a_server_that_stores_nothing_is_one_fault() {
    let mut facts = well();
    let fault = "nats-server stores no writes to bucket berth-volumes since 12:00";
    let ill = replica(json!({"store_faults": [fault]}));
    facts.replicas.insert(service::CLAIM.name, Ok(vec![ill.clone()]));
    facts.replicas.insert(service::NODE_AGENT.name, Ok(vec![ill]));
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("streams", Fault));
    assert!(what.contains("stores no writes: its disk is or was full"), "{what}");
    let report = examine(&facts);
    assert_eq!(findings(&report, "streams").len(), 1, "{}", text(&report));
    assert_eq!(findings(&report, "streams")[0].evidence.len(), 2);
    // Many claims wait for the same server, which is reported once.
    let waits = json!({"wait": "store", "waits_for": "the server"});
    let claims = ["a", "b", "c"].map(|alloc| claim(with(waits.clone(), json!({"alloc": alloc}))));
    facts.claims = Ok(ClaimList { claims: claims.to_vec(), ..ClaimList::default() });
    assert_eq!(findings(&examine(&facts), "claims").len(), 1);
}

#[test]
fn a_server_that_is_away_is_one_finding() {
    let mut facts = well();
    for name in ["KV_berth-volumes", "KV_berth-nodes", "KV_berth-allocs"] {
        let behind = vec![StaleCopy { server: "s3".to_owned(), lag: None }];
        let ill = StreamReport { behind, ..stream(name) };
        facts.streams.insert(name.to_owned(), Ok(Some(ill)));
    }
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("streams", Warning));
    assert_eq!(what, "server s3 is away: its copies of 3 streams are not current");
    assert_eq!(findings(&examine(&facts), "streams").len(), 1);
    for answer in facts.streams.values_mut() {
        *answer = Err(away());
    }
    let report = examine(&facts);
    assert_eq!(findings(&report, "streams").len(), 1, "{}", text(&report));
}

#[test]
fn live_allocs_without_an_owner_are_found() {
    let mut facts = well();
    let alloc = |id: &str| {
        json!({"id": id, "namespace": Namespace::default(), "state": "live", "node": "n1",
            "since": at(0), "owner": "ci", "unowned_since": at(60)})
    };
    let allocs = vec![read(alloc("a")), read(alloc("b"))];
    facts.unowned = Ok(UnownedAllocs { allocs, is_cut: false });
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("owners", Warning));
    assert_eq!(what, "owner ci has held no lease for 40s, and nobody stops its 2 live allocs");
}

#[test]
fn a_plugin_file_with_faults_is_found() {
    let mut facts = well();
    let faulty = json!({"attributes": {"plugin-faults": "/etc/berth/plugins/bad.toml: line 3"}});
    set_registry(&mut facts, &[node("n1", json!({})), node("n2", faulty)], 2, 2);
    facts.claims = Ok(ClaimList::default());
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("plugins", Warning));
    assert!(what.contains("node n2 has files of plugins with faults"), "{what}");
}

#[test]
fn nodes_that_cannot_be_read_are_not_well() {
    let mut facts = well();
    let record = UnreadableRecord {
        key: "n3".to_owned(),
        code: Code::DamagedRecord,
        error: "expected value".to_owned(),
    };
    facts.registry.as_mut().unwrap().unreadable.push(record);
    let report = examine(&facts);
    let nodes = report.checks.iter().find(|check| check.check == "nodes").unwrap();
    assert_eq!(nodes.verdict, Warning, "{}", text(&report));
    assert_eq!(report.verdict, Fault, "the record is named: {}", text(&report));
}

/// The record keeps the last measurement of its clock.
#[test]
fn the_clock_of_a_host_that_is_gone_is_no_finding() {
    let mut facts = gone(None);
    let nodes = &mut facts.registry.as_mut().unwrap().nodes;
    nodes[1].clock_skew_ms = 90_000;
    facts.why.nodes.insert(n2(), Ok(nodes[1].clone()));
    let report = examine(&facts);
    assert_eq!(report.verdict, Verdict::Well, "{}", text(&report));
}

/// No worker, a missing right or a wrong clock stops every claim and every change.
#[test]
fn what_stops_every_claim_is_one_finding_of_a_check() {
    let mut facts = well();
    facts.why.services.insert(service::VOLUMEWATCHER.name, Err(away()));
    let claims = ["a", "b", "c"].map(|alloc| claim(json!({ "alloc": alloc })));
    facts.claims = Ok(ClaimList { claims: claims.to_vec(), ..ClaimList::default() });
    for kind in ["create", "delete"] {
        let change = json!({"operation": kind, "since": at(0), "call": "controller.x"});
        set_storage(&mut facts, &json!({"stage": "creating", "operation": change}));
    }
    let report = examine(&facts);
    for check in ["claims", "storage"] {
        assert_eq!(findings(&report, check).len(), 1, "{}", text(&report));
    }
    assert!(text(&report).contains("no berth-volumewatcher answers"));
}

#[test]
fn a_volume_that_is_registered_twice_is_found() {
    let mut facts = well();
    set_storage(&mut facts, &json!({"stage": "ready"}));
    let volume = facts.storage.as_mut().unwrap().volumes.last_mut().unwrap();
    volume.registered_twice = vec!["volume copy".to_owned()];
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("storage", Fault));
    assert!(what.contains("the same volume of its plugin as volume copy"), "{what}");
}

#[test]
fn a_plugin_of_volumes_that_no_agent_reports_is_found() {
    let mut facts = well();
    let storage = facts.storage.as_mut().unwrap();
    storage.unserved =
        [("p", 1), ("left", 2)].map(|(id, count)| (id.parse().unwrap(), count)).into();
    let (check, verdict, what) = only(&facts);
    assert_eq!((check, verdict), ("plugins", Fault));
    assert_eq!(what, "no agent has reported plugin left");
    // One of the records that cannot be read may be its.
    let record = UnreadableRecord {
        key: "left.instance.n1.node".to_owned(),
        code: Code::DamagedRecord,
        error: "EOF".to_owned(),
    };
    facts.registry.as_mut().unwrap().unreadable.push(record);
    assert!(!text(&examine(&facts)).contains("no agent has reported"));
}
