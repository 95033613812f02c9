//! Clocks that are wrong, and delays that resemble a wrong clock.

use std::time::{Duration, Instant};

use berth_access::LocalFleet;
use berth_contract::message::registry::NodeStatus;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::State;
use berth_harness::dirs::Dir;
use berth_harness::nats::raw;
use berth_harness::process::clock;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::{Value, json};

use crate::why::{YOU, tells};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

async fn node(system: &System) -> Result<NodeStatus, String> {
    let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
    nodes.into_iter().find(|node| node.id.as_str() == "n1").ok_or_else(|| "no n1".to_owned())
}

/// The report waits in the paused registry for 3.5 s, longer than the clock margin.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_delayed_by_a_paused_registry_makes_no_skew() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    let registry = system.daemon(Part::Registry);
    registry.pause();
    system.daemon(Part::Driver(0)).kill9();
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    registry.resume();
    let reported = wait::until("the registry shows the driver's end", RECOVERY, || async {
        let node = node(&system).await?;
        let is_shown = node.instances.iter().any(|instance| !instance.healthy);
        if is_shown { Ok(node) } else { Err(format!("{node:?}")) }
    })
    .await;
    assert!(reported.clock_skew_ms.abs() < 1_000, "{reported:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_with_a_wrong_clock_is_shown() {
    let clocks = &[("claim-0", -600_000), ("volumewatcher-0", 600_000)];
    let system = System::start(Options { clocks, ..Options::default() }).await;
    // The claim service's clock sets the deadline of a plugin call about a volume.
    system.set_clock("claim-0", 0);
    system.volume("data", &["single-node-writer"]).await;
    system.set_clock("claim-0", -600_000);
    for (part, service, ahead_ms) in
        [(Part::Claim, "berth-claim", -600_000), (Part::Watcher, "berth-volumewatcher", 600_000)]
    {
        wait::until(&format!("{service} shows its clock"), RECOVERY, || async {
            let subject = format!("$SRV.INFO.{service}");
            let info: Value = raw::ask(&system.servers()[0], &subject, &[], b"").await;
            let shown = info["metadata"]["clock_skew_ms"].as_str().map(str::parse::<i64>);
            let Some(Ok(skew_ms)) = shown else { return Err(info.to_string()) };
            assert!((skew_ms - ahead_ms).abs() < 5_000, "{info}");
            Ok(())
        })
        .await;
        let log = system.daemon(part).log();
        assert!(log.contains("this process's clock differs from nats-server's"), "{log}");
    }
    let behind = "the clock of berth-claim is … s behind nats-server's, …";
    tells(&system, "data", "clock-wrong", YOU, behind).await;
}

/// The claim service writes an attempt while its clock is a day ahead, and is killed.
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_of_a_clock_that_was_ahead_locks_the_volume_for_one_call_only() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { clocks: &[("claim-0", 0)], ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("a", 0, "data", false).await;
    system.hold("ControllerPublishVolume");
    system.set_clock("claim-0", DAY_MS);
    let take = json!({"alloc": "a", "volume": "data", "node": "n1"}).to_string();
    // Like a request of the NATS CLI, this has no deadline.
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let taking = raw::ask(&system.servers()[0], &subject, &[], take.as_bytes());
    let killed = async {
        system.under_way("ControllerPublishVolume").await;
        system.daemon(Part::Claim).kill9();
    };
    tokio::select! {
        answer = taking => panic!("answered during the call: {answer}"),
        () = killed => {}
    }
    system.let_go();
    system.set_clock("claim-0", 0);
    system.daemon(Part::Claim).restart();
    system.mount("a", 0, "data").await.expect("the volume is mounted");
    assert_eq!(system.claims("data").await.claims[0].state, State::Taken);
}

/// The claim service writes an attempt while its clock is a day ahead, and runs on. The agent that
/// makes the call is killed, so no answer comes. Found: the service trusted the attempt's deadline
/// in its memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_does_not_believe_its_own_deadlines_after_its_clock_was_set_back() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { clocks: &[("claim-0", 0)], ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("a", 0, "data", false).await;
    system.hold("ControllerPublishVolume");
    system.set_clock("claim-0", DAY_MS);
    let take = json!({"alloc": "a", "volume": "data", "node": "n1"}).to_string();
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let taking = raw::ask(&system.servers()[0], &subject, &[], take.as_bytes());
    let killed = async {
        system.under_way("ControllerPublishVolume").await;
        system.kill9(Part::Agent(0));
    };
    let (answer, ()) = tokio::join!(taking, killed);
    assert!(answer["error"].is_object(), "answered without the agent: {answer}");
    system.set_clock("claim-0", 0);
    system.let_go();
    system.restart(Part::Agent(0));
    system.mount("a", 0, "data").await.expect("the volume is mounted");
    assert_eq!(system.claims("data").await.claims[0].state, State::Taken);
}

/// The connecting program checks the server's certificate against its own clock and the given file
/// of the authority. A retry mends neither, so the program ends at once with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_trusted_is_told_at_once_with_the_reason() {
    let system = System::shared();
    let dir = Dir::new("untrusted");
    let other_fleet =
        LocalFleet::create(&dir.join("other"), &["berth"]).expect("identities can be made");
    let clock_file = dir.join("clock");
    for (ahead_ms, authority, reason) in [
        (-3 * DAY_MS, None, "certificate not valid yet: "),
        (20 * 365 * DAY_MS, None, "certificate expired: "),
        (0, Some(other_fleet.ca()), "UnknownIssuer; give the file of the authority"),
    ] {
        clock::set(&clock_file, ahead_ms);
        let mut berth = system.berth();
        berth.args(["node", "list"]).envs(clock::settable(&clock_file));
        if let Some(authority) = authority {
            berth.env("BERTH_TLSCA", authority);
        }
        let began = Instant::now();
        let ran = berth.output().await.expect("berth runs");
        let printed = String::from_utf8_lossy(&ran.stderr);
        assert!(!ran.status.success() && printed.contains(reason), "{ahead_ms}: {printed}");
        assert!(began.elapsed() < Duration::from_secs(3), "{ahead_ms}: it waited: {printed}");
    }
}
