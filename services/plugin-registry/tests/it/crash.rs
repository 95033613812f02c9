//! The registry is killed at any moment: what it has answered is stored, and the next report writes
//! the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_contract::message::registry::{NodeReport, Reported};
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{Half, Instance};
use berth_harness::wait;

use crate::site::{PATIENCE, Site, instance, report, trace};

const PLUGINS: [&str; 4] = ["a", "b", "c", "d"];

/// The `count`-th report: each instance names the count as its version.
fn numbered(count: u64) -> NodeReport {
    let numbered_instance = Instance { version: count.to_string(), ..instance(true) };
    let instances = PLUGINS.map(|plugin| (plugin, Half::Node, numbered_instance.clone()));
    let mut numbered = report("n1", &instances);
    numbered.clock = numbered.clock.after(Duration::from_millis(count));
    numbered
}

#[tokio::test]
async fn killed_between_any_two_writes_nothing_that_was_answered_is_lost() {
    let site = Site::start(1).await;
    let (sent, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for _ in 0..5 {
        let agent = {
            let (bus, sent, answered) =
                (site.bus.clone(), Arc::clone(&sent), Arc::clone(&answered));
            tokio::spawn(async move {
                loop {
                    let count = sent.fetch_add(1, Ordering::SeqCst) + 1;
                    let call = berth_bus::Call::within(trace(), Duration::from_secs(1));
                    let subject = verb::NodeReport::subject(&());
                    match bus.request::<Reported>(&subject, &numbered(count), &call).await {
                        Ok(_) => answered.store(count, Ordering::SeqCst),
                        Err(_) => return,
                    }
                }
            })
        };
        let from = answered.load(Ordering::SeqCst);
        wait::until("some reports are answered", PATIENCE, async || {
            let now = answered.load(Ordering::SeqCst);
            if now >= from + 5 { Ok(()) } else { Err(now) }
        })
        .await;
        site.kill9(0);
        agent.await.unwrap();
        site.restart(0).await;

        let (answered, sent) = (answered.load(Ordering::SeqCst), sent.load(Ordering::SeqCst));
        let plugins = site.plugins().await;
        assert_eq!(plugins.len(), PLUGINS.len());
        for plugin in &plugins {
            let version: u64 = plugin.instances[0].version.parse().unwrap();
            let is_kept = (answered..=sent).contains(&version);
            assert!(is_kept, "{} is at {version}; {answered} answered, {sent} sent", plugin.id);
        }
    }
    let next = numbered(sent.fetch_add(1, Ordering::SeqCst) + 1);
    site.report(&next).await;
    for plugin in site.plugins().await {
        assert_eq!(plugin.versions, [next.instances[0].instance.version.clone()]);
    }
}

#[tokio::test]
async fn one_replica_goes_on_when_the_other_is_killed() {
    let site = Site::start(2).await;
    let _lease = site.lease("n1", Duration::from_secs(60)).await;
    site.report(&report("n1", &[("p", Half::Node, instance(true))])).await;
    site.node_is("n1", "ready", PATIENCE).await;
    site.kill9(0);
    // The server notices when the connection breaks; until then a request may stay unanswered.
    wait::until("the other answers", PATIENCE, async || {
        let new_report = report("n1", &[("p", Half::Node, instance(false))]);
        let call = berth_bus::Call::within(trace(), Duration::from_secs(1));
        site.bus.request::<Reported>(&verb::NodeReport::subject(&()), &new_report, &call).await
    })
    .await;
    assert!(!site.plugin("p").await.instances[0].healthy);
}
