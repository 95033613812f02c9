//! H3: a claim is one trace, and its release is another trace that is linked to it, whichever
//! process is killed. The tests read what a collector receives from every process.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use berth_harness::otlp::{Collector, Metric, Point, Span, Spans};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, System};
use serde_json::json;

/// The secret of the volumes, which the driver demands.
const SECRET: &str = "correct horse battery staple";
/// How long it may take until ended spans are sent.
const SENT_WITHIN: Duration = Duration::from_secs(30);

async fn system(collector: &Collector) -> System {
    let otlp = collector.http().rsplit(':').next().and_then(|port| port.parse().ok());
    System::start(Options { otlp, secret: Some(SECRET), ..Options::default() }).await
}

/// Runs a command with the volume on the first node, as a user does.
async fn run(system: &System, collector: &Collector, alloc: &str) {
    let output = system
        .berth()
        .args(["run", "--volume", "data", "--node", "n1", "--alloc", alloc, "--", "true"])
        .env("BERTH_NATS_URL", system.url())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.http())
        .stdin(Stdio::null())
        .output()
        .await
        .expect("berth runs");
    assert!(output.status.success(), "{output:?}");
}

/// The traces of the claim and of its release, once both are complete. All services are ended
/// first: spans that they have not sent by then are lost.
async fn traces_of_life(system: &System, collector: &Collector) -> (Spans, Spans) {
    system.settle("data").await;
    system.end().await;
    let (claim, release) = wait::until("the traces are complete", SENT_WITHIN, || async {
        let spans = collector.spans();
        let ended = spans.named("release");
        let [release] = ended.0.as_slice() else { return Err(spans.tree()) };
        let (linked, _) = release.links.first().ok_or("the release is linked to nothing")?;
        let (claim, release) = (spans.of(linked), spans.of(&release.trace));
        let is_whole = [&claim, &release].iter().all(|trace| trace.orphans().is_empty());
        if is_whole && !claim.named("claim").0.is_empty() {
            return Ok((claim, release));
        }
        Err(format!("{}\n{}", claim.tree(), release.tree()))
    })
    .await;
    check_life(&collector.spans(), &claim, &release);
    (claim, release)
}

/// The key of the claim of alloc `a` on the volume.
const KEY: &str = "default.data.claim.a";

/// Whether a span belongs to the only claim: it names volume and alloc, writes the claim, or is a
/// step of claims only.
fn is_of_the_claim(span: &Span) -> bool {
    let names = |key: &str, value: &str| span.get(key) == Some(value);
    let call = span.name.to_lowercase();
    (names("berth.volume", "data") && names("berth.alloc", "a"))
        || names("berth.key", KEY)
        || call.ends_with("publishvolume")
        || call.ends_with("stagevolume")
        || span.name == "drive a release"
}

/// Checks the processes of each trace, and that there is no third trace.
fn check_life(all: &Spans, claim: &Spans, release: &Spans) {
    for trace in [claim, release] {
        let writes = trace.named("commit berth-volumes").0;
        let has_write = writes.iter().any(|write| write.get("berth.key") == Some(KEY));
        assert!(has_write, "no write of {KEY} is in\n{}", trace.tree());
        let has_controller_call =
            trace.0.iter().any(|span| span.name.starts_with("berth-controller "));
        assert!(has_controller_call, "no controller is in\n{}", trace.tree());
    }
    let has_watcher = release.0.iter().any(|span| span.service() == "berth-volumewatcher");
    assert!(has_watcher, "no watcher is in\n{}", release.tree());
    let traces = [&claim.0[0].trace, &release.0[0].trace];
    let stray = all.0.iter().find(|span| is_of_the_claim(span) && !traces.contains(&&span.trace));
    assert!(stray.is_none(), "a third trace, with {stray:#?}\n{}", all.tree());
}

/// The last values of a service's metric by label: the value, or a histogram's count. None when it
/// was never sent.
pub fn last_values(
    collector: &Collector,
    service: &str,
    name: &str,
) -> Option<BTreeMap<String, f64>> {
    let received = collector.metrics(name);
    let of_service = |metric: &&Metric| metric.resource["service.name"] == service;
    let newest = received.iter().rfind(of_service)?;
    let labels = |point: &Point| point.labels.values().cloned().collect();
    #[expect(clippy::cast_precision_loss, reason = "counts of tests are small")]
    let value = |point: &Point| point.count.map_or(point.value, |count| count as f64);
    Some(newest.points.iter().map(|point| (labels(point), value(point))).collect())
}

/// Checks the metrics of one claim and its release.
fn check_counts(collector: &Collector) {
    let check = |service: &str, name: &str, expected: &[(&str, f64)]| {
        let expected = expected.iter().map(|(label, value)| ((*label).to_owned(), *value));
        assert_eq!(last_values(collector, service, name), Some(expected.collect()), "{name}");
    };
    check("berth-claim", "berth.claims.granted", &[(PLUGIN, 1.0)]);
    check("berth-claim", "berth.claims.released", &[(PLUGIN, 1.0)]);
    let states = ["publishing", "taken", "unpublishing", "node-detached"];
    check("berth-claim", "berth.claims.state.duration", &states.map(|state| (state, 1.0)));
    // Nothing is left to do.
    check("berth-volumewatcher", "berth.reconcile.running", &[("", 0.0)]);
    check("berth-volumewatcher", "berth.reconcile.queued", &[("", 0.0)]);
}

/// Checks that each span's parent was sent, and that what nodes repeat for ever made no spans.
fn check_quiet(all: &Spans) {
    let orphans = all.orphans();
    assert!(orphans.is_empty(), "{orphans:#?}");
    let renewals = all.named("request node.hold");
    assert!(renewals.0.is_empty(), "{}", renewals.tree());
}

/// The names from a span up to the root of its trace.
fn ancestry(spans: &Spans, span: &Span) -> Vec<String> {
    let mut names = vec![span.name.clone()];
    let mut parent = span.parent.clone();
    while let Some(above) = spans.0.iter().find(|above| Some(&above.id) == parent.as_ref()) {
        names.push(above.name.clone());
        parent.clone_from(&above.parent);
    }
    names
}

/// Checks the ancestor span of each plugin call.
fn check_calls(spans: &Spans, expected: &[(&str, &str)]) {
    for (rpc, part_of) in expected {
        let calls = spans.named(rpc);
        assert!(!calls.0.is_empty(), "{rpc} is not in\n{}", spans.tree());
        for call in &calls.0 {
            let ancestors = ancestry(spans, call);
            assert!(ancestors.iter().any(|name| name == part_of), "{rpc}: {ancestors:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_a_trace_and_its_release_another_that_is_linked_to_it() {
    if !or_skip("real mounts") {
        return;
    }
    let collector = Collector::start().await;
    let system = system(&collector).await;
    system.volume_with_secrets("data", SECRET).await;
    run(&system, &collector, "a").await;
    let (claim, release) = traces_of_life(&system, &collector).await;

    let roots: Vec<&str> = claim.roots().iter().map(|root| root.name.as_str()).collect();
    assert_eq!(roots, ["berth"], "{}", claim.tree());
    let services: BTreeSet<&str> = claim.0.iter().map(Span::service).collect();
    for service in ["berth", "berth-claim", "berth-node-agent"] {
        assert!(services.contains(service), "{service} is not in {services:?}");
    }
    check_calls(
        &claim,
        &[
            ("csi.v1.Controller/ControllerPublishVolume", "attempt controller.publish"),
            ("csi.v1.Controller/ControllerPublishVolume", "claim"),
            ("csi.v1.Node/NodeStageVolume", "berth-node-agent mount"),
            ("csi.v1.Node/NodePublishVolume", "berth-node-agent mount"),
            ("request secret.open", "berth"),
        ],
    );
    assert_eq!(release.roots().len(), 1, "{}", release.tree());
    check_calls(
        &release,
        &[
            ("csi.v1.Node/NodeUnpublishVolume", "attempt agent.detach"),
            ("csi.v1.Node/NodeUnstageVolume", "attempt agent.detach"),
            ("csi.v1.Controller/ControllerUnpublishVolume", "attempt controller.unpublish"),
            ("csi.v1.Controller/ControllerUnpublishVolume", "release"),
        ],
    );
    check_quiet(&collector.spans());
    // The drivers saw the same traces.
    let calls = system.calls();
    let traced = |rpc: &str| {
        calls.iter().rev().find(|call| call["rpc"] == rpc).map(|call| call["trace_id"].clone())
    };
    assert_eq!(traced("NodeStageVolume"), Some(json!(claim.0[0].trace)));
    assert_eq!(traced("NodeUnstageVolume"), Some(json!(release.0[0].trace)));
}

/// No worker of a release leaves a span without a parent.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_one_trace_also_when_its_watcher_is_killed_half_way() {
    if !or_skip("real mounts") {
        return;
    }
    let collector = Collector::start().await;
    let system = system(&collector).await;
    system.volume_with_secrets("data", SECRET).await;
    system.hold("NodeUnpublishVolume");
    let kill = async {
        system.under_way("NodeUnpublishVolume").await;
        system.kill9_and_restart(Part::Watcher).await;
        system.let_go();
    };
    tokio::join!(run(&system, &collector, "a"), kill);
    let (claim, release) = traces_of_life(&system, &collector).await;
    assert!(claim.orphans().is_empty() && release.orphans().is_empty());
    let attempts = release.named("attempt agent.detach");
    assert!(attempts.0.len() >= 2, "also the abandoned attempt:\n{}", release.tree());
    let failed = attempts.0.iter().filter(|attempt| attempt.error.is_some());
    assert!(failed.count() >= 1, "{}", release.tree());
    check_calls(&release, &[("csi.v1.Node/NodeUnstageVolume", "attempt agent.detach")]);
    check_counts(&collector);
}
