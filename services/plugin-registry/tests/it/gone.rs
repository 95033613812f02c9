//! Nodes that an operator declares gone (rule 12).

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::registry::{Declared, Gone, Leave, NodeLeft, NodeReport};
use berth_contract::verb::{self};
use berth_domain::plugin::{Count, Half, NodeState};
use berth_domain::proof::ProofKind;
use berth_harness::wait;
use serde_json::json;

use crate::site::{PATIENCE, Site, instance, node_id, report};

const TTL: Duration = Duration::from_secs(60);

fn gone(node: &str, by: &str) -> Gone {
    let (kind, why) = (ProofKind::PoweredOff, "PSU".to_owned());
    Gone { node: node_id(node), kind, by: by.to_owned(), note: why, seen: 0 }
}

/// Declares the node gone with its present revision, until the registry has noticed that the lease
/// ended.
async fn declare(site: &Site, gone: &Gone) -> Declared {
    wait::until("it is on record", PATIENCE, async || {
        let mut nodes = site.nodes().await.into_iter();
        let seen = nodes.find(|node| node.id == gone.node).map_or(0, |node| node.revision);
        let gone = &Gone { seen, ..gone.clone() };
        let declared = site.ask::<verb::NodeGone>(gone).await;
        declared.map_err(|error| error.to_string())
    })
    .await
}

#[tokio::test]
async fn a_node_is_gone_when_its_lease_has_ended_and_back_when_it_has_undone_all() {
    let site = Site::start(2).await;
    let healthy_report = || report("n1", &[("p", Half::Node, instance(true))]);
    let lease = site.lease("n1", TTL).await;
    site.report(&healthy_report()).await;
    site.node_is("n1", "ready", PATIENCE).await;
    assert_eq!(site.report(&healthy_report()).await.state, NodeState::Ready);
    let before = site.heads().await;
    let problem = site.refused::<verb::NodeGone>(&gone("n1", "ada")).await;
    assert_eq!((problem.code, problem.retryable), (Code::NodeReady, false), "{problem}");
    assert_eq!(site.heads().await, before);

    lease.release().await.unwrap();
    let declared = declare(&site, &gone("n1", "ada")).await;
    assert_eq!((declared.proof.kind, declared.proof.by.as_str()), (ProofKind::PoweredOff, "ada"));
    let before = site.heads().await;
    assert_eq!(declare(&site, &gone("n1", "bob")).await, declared, "what was said first stands");
    assert_eq!(site.heads().await, before);
    let node = site.node("n1").await;
    assert_eq!(node.gone.as_ref(), Some(&declared.proof));
    assert!(node.instances[0].description.contains("powered-off, says ada"), "{node:?}");

    // The record is kept, and a lease alone does not make the node ready.
    let leave_request = Leave { node: node_id("n1"), revision: None };
    let node_left: NodeLeft = site.ask::<verb::NodeLeave>(&leave_request).await.unwrap();
    assert_eq!(node_left, NodeLeft { known: true, instances: 1, gone: true });
    let _lease = site.lease("n1", TTL).await;
    let answer = site.report(&healthy_report()).await;
    assert_eq!((answer.state, answer.gone.as_ref()), (NodeState::Down, Some(&declared.proof)));
    // Mounts that were undone because of another proof do not count.
    let earlier = declared.proof.at.unix_ms() - 1;
    let undone = Some(berth_domain::Timestamp::from_unix_ms(earlier));
    let answer = site.report(&NodeReport { undone, ..healthy_report() }).await;
    assert_eq!(answer.gone.as_ref(), Some(&declared.proof));
    assert_eq!(site.plugin("p").await.nodes, Count { healthy: 0, expected: 1 });

    let answer =
        site.report(&NodeReport { undone: Some(declared.proof.at), ..healthy_report() }).await;
    assert_eq!(answer.gone, None);
    let back = site.node_is("n1", "ready", PATIENCE).await;
    assert_eq!(back.gone, None);
    assert_eq!(site.plugin("p").await.nodes, Count { healthy: 1, expected: 1 });
    let events = ["node.ready n1", "node.down n1", "node.gone n1", "node.back n1", "node.ready n1"];
    site.events_are("node.", &events).await;
}

/// The operator names the revision of the record that they saw. It identifies the absence, because
/// the record of a node that is down changes only when its agent returns.
#[tokio::test]
async fn what_was_made_sure_of_in_an_earlier_absence_does_not_count() {
    let site = Site::start(2).await;
    let mut absences = Vec::new();
    for _ in 0..2 {
        let lease = site.lease("n1", TTL).await;
        site.report(&report("n1", &[])).await;
        let ready = site.node_is("n1", "ready", PATIENCE).await;
        lease.release().await.unwrap();
        let down = site.node_is("n1", "down", PATIENCE).await;
        assert_ne!(ready.revision, down.revision, "who looked while it was there looks again");
        absences.push(down.revision);
    }
    let before = site.heads().await;
    for seen in [0, absences[0], absences[1] + 1] {
        let problem = site.refused::<verb::NodeGone>(&Gone { seen, ..gone("n1", "ada") }).await;
        assert_eq!((problem.code, problem.retryable), (Code::Changed, false), "{problem}");
        assert!(problem.next.contains("berth node status n1"), "{problem:?}");
    }
    assert_eq!(site.heads().await, before);
    let declaration = Gone { seen: absences[1], ..gone("n1", "ada") };
    let _: Declared = site.ask::<verb::NodeGone>(&declaration).await.unwrap();
}

/// A claim may name a node that left, or whose record was lost.
#[tokio::test]
async fn a_node_that_nobody_knows_may_be_gone() {
    let site = Site::start(1).await;
    let declared = declare(&site, &gone("n9", "ada")).await;
    let node = site.node("n9").await;
    assert_eq!((node.state, node.gone), (NodeState::Down, Some(declared.proof)));
    site.events_are("node.", &["node.gone n9"]).await;
}

/// The record says "ready" for a moment after the lease ended, and an agent that was told so may
/// hold a lease again.
#[tokio::test]
async fn a_lease_that_ended_only_now_is_waited_for() {
    let site = Site::start(1).await;
    let lease = site.lease("n1", TTL).await;
    site.report(&report("n1", &[])).await;
    site.node_is("n1", "ready", PATIENCE).await;
    site.replicas[0].pause();
    lease.release().await.unwrap();
    // The request arrives while the only replica is paused. When it resumes, it finds the request
    // and the end of the lease.
    let declaration = gone("n1", "ada");
    let (declared, ()) = tokio::join!(declare(&site, &declaration), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        site.replicas[0].resume();
    });
    assert_eq!(site.node("n1").await.gone, Some(declared.proof));
    site.events_are("node.", &["node.ready n1", "node.down n1", "node.gone n1"]).await;
}

#[tokio::test]
async fn somebody_must_answer_for_it() {
    let site = Site::start(1).await;
    let rows = [
        (json!({"node": "n1", "kind": "powered-off", "by": " ", "seen": 0}), "by"),
        (json!({"node": "n1", "kind": "powered-off", "seen": 0}), "by"),
        (json!({"node": "n1", "kind": "hoped", "by": "ada", "seen": 0}), "kind"),
        (json!({"kind": "confirmed", "by": "ada", "seen": 0}), "node"),
        (json!({"node": "n1", "kind": "confirmed", "by": "ada"}), "seen"),
    ];
    for (body, path) in rows {
        let problem = site.refused::<verb::NodeGone>(&body).await;
        let paths: Vec<&str> = problem.faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!((problem.code, paths), (Code::BadInput, vec![path]), "{body}");
    }
    assert_eq!(site.nodes().await, []);
}
