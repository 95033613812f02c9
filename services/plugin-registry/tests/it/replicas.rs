//! Several replicas, and reports that overtake each other.

use std::time::Duration;

use berth_bus::RequestError;
use berth_contract::code::Code;
use berth_contract::message::registry::{NodeReport, Reported};
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{Count, Half};
use tokio::task::JoinSet;

use crate::site::{Site, instance, report};

/// The report, sent this much later.
fn later(report: &NodeReport, ms: u64) -> NodeReport {
    NodeReport { clock: report.clock.after(Duration::from_millis(ms)), ..report.clone() }
}

#[tokio::test]
async fn an_older_report_never_replaces_a_newer_one_at_any_replica() {
    let site = Site::start(2).await;
    let older =
        report("n1", &[("p", Half::Node, instance(true)), ("gone", Half::Node, instance(true))]);
    site.report(&older).await;
    let newer = later(&report("n1", &[("p", Half::Node, instance(false))]), 5_000);
    site.report(&newer).await;
    let before = site.heads().await;
    // Often enough that both replicas get some.
    for ms in 0..16 {
        site.report(&later(&older, ms)).await;
    }
    assert_eq!(site.heads().await, before);
    assert_eq!(site.plugins().await.len(), 1);
    // After a reboot the clock says nothing about the order.
    let reboot = NodeReport { boot_id: "boot-2".to_owned(), ..older.clone() };
    site.report(&reboot).await;
    assert_eq!(site.plugins().await.len(), 2);
    assert_eq!(site.node("n1").await.boot_id, "boot-2");
}

#[tokio::test]
async fn reports_that_race_at_two_replicas_end_as_the_last_one_says() {
    let site = Site::start(2).await;
    let start = report("n1", &[]);
    let mut clock = 0;
    for round in 0..20_u32 {
        let mut racing = JoinSet::new();
        for racer in 0..4_u32 {
            clock += 1;
            let names = ["a", "b", "c", "d"];
            let instances: Vec<_> = names
                .iter()
                .enumerate()
                .filter(|(at, _)| (round + racer) >> at & 1 == 1)
                .map(|(at, name)| (*name, Half::Node, instance((racer >> (at % 2)) & 1 == 0)))
                .collect();
            let racing_report = NodeReport {
                instances: report("n1", &instances).instances,
                ..later(&start, clock)
            };
            let bus = site.bus.clone();
            racing.spawn(async move {
                let call = berth_bus::Call::within(crate::site::trace(), crate::site::PATIENCE);
                bus.request::<Reported>(&verb::NodeReport::subject(&()), &racing_report, &call)
                    .await
            });
        }
        while let Some(raced) = racing.join_next().await {
            match raced.unwrap() {
                Ok(_) => {}
                // A request that lost every race gets a retryable error.
                Err(RequestError::Problem(problem)) => assert_eq!(problem.code, Code::Overloaded),
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    let last = later(
        &report("n1", &[("b", Half::Node, instance(false)), ("d", Half::Node, instance(true))]),
        10_000,
    );
    site.report(&last).await;
    let plugins = site.plugins().await;
    let plugin_counts: Vec<(&str, Count, bool)> = plugins
        .iter()
        .map(|plugin| (plugin.id.as_str(), plugin.nodes, plugin.instances[0].healthy))
        .collect();
    let down_count = Count { healthy: 0, expected: 1 };
    assert_eq!(
        plugin_counts,
        [("b", down_count, false), ("d", down_count, false)],
        "the node has no lease"
    );
    let answers: Vec<bool> = plugins
        .iter()
        .map(|plugin| plugin.instances[0].description.contains("it answers"))
        .collect();
    assert_eq!(answers, [false, true]);
}

#[tokio::test]
async fn many_nodes_report_to_two_replicas_and_each_counts_once() {
    let site = Site::start(2).await;
    let mut reporting = JoinSet::new();
    for at in 0..60 {
        let bus = site.bus.clone();
        reporting.spawn(async move {
            for healthy in [true, false, at % 3 == 0] {
                let sent_report =
                    report(&format!("n{at:02}"), &[("p", Half::Node, instance(healthy))]);
                let call = berth_bus::Call::within(crate::site::trace(), crate::site::PATIENCE);
                let subject = verb::NodeReport::subject(&());
                bus.request::<Reported>(&subject, &sent_report, &call).await.unwrap();
                // Reports of one node differ in their clocks.
                while berth_service::clock::now() == sent_report.clock {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
    while let Some(reported) = reporting.join_next().await {
        reported.unwrap();
    }
    let plugin = site.plugin("p").await;
    assert_eq!(plugin.nodes.expected, 60);
    let answering =
        plugin.instances.iter().filter(|instance| instance.description.contains("it answers"));
    assert_eq!(answering.count(), 20);
    let order: Vec<&str> = plugin.instances.iter().map(|instance| instance.node.as_str()).collect();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(site.nodes().await.len(), 60);
}
