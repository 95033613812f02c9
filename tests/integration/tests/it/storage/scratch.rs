//! Volumes for one run: they are deleted when their run has ended, whatever was killed meanwhile.

use berth_domain::volume::storage::Stage;
use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_a_run_goes_with_it_whatever_is_killed() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    for (number, killed) in [
        None,
        Some(Part::Claim),
        Some(Part::Watcher),
        Some(Part::Agent(0)),
        Some(Part::Driver(0)),
        Some(Part::Nats),
    ]
    .into_iter()
    .enumerate()
    {
        let (alloc, volume) = (format!("run{number}"), format!("scratch{number}"));
        system.alloc(&alloc, 0, &volume, false).await;
        system.create(&volume, json!({"size": "1MiB", "for_alloc": alloc})).await.unwrap();
        system.staged_as(&volume, Stage::Ready).await;
        system.mount(&alloc, 0, &volume).await.unwrap();
        if let Some(part) = killed {
            system.kill9_and_restart(part).await;
        }
        system.stop(&alloc).await;
        system.forgotten(&volume).await;
        system.assert_known().await;
    }
    // A run that ends before its volume exists, and never claims it.
    system.hold("CreateVolume");
    system.alloc("early", 0, "early", false).await;
    system.create("early", json!({"size": "1MiB", "for_alloc": "early"})).await.unwrap();
    system.under_way("CreateVolume").await;
    system.stop("early").await;
    system.let_go();
    system.forgotten("early").await;
    system.assert_known().await;
    system.judge();
}

/// The creation's time on the record is by the clock of the replica that wrote it. So the time that
/// the run had to register is measured, and not derived from the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_a_run_is_kept_for_it_by_whatever_clock_it_was_created() {
    const DAY_MS: i64 = 24 * 3_600 * 1_000;
    if !or_skip("real mounts") {
        return;
    }
    let clocks = &[("claim-0", 0)];
    let system = System::start(Options { nodes: 1, clocks, ..Options::default() }).await;
    system.set_clock("claim-0", -DAY_MS);
    system.create("kept", json!({"size": "1MiB", "for_alloc": "late"})).await.unwrap();
    system.set_clock("claim-0", 0);
    system.staged_as("kept", Stage::Ready).await;
    // The rescans that delete these volumes also check `kept`.
    for ended in ["ended1", "ended2"] {
        system.alloc(ended, 0, ended, false).await;
        system.create(ended, json!({"size": "1MiB", "for_alloc": ended})).await.unwrap();
        system.staged_as(ended, Stage::Ready).await;
        system.stop(ended).await;
        system.forgotten(ended).await;
    }
    system.staged_as("kept", Stage::Ready).await;
    system.run("late", 0, "kept").await;
    system.stop("late").await;
    system.forgotten("kept").await;
    system.assert_known().await;
    system.judge();
}

/// A run whose volume cannot be created deletes nothing: the volume of that name belongs to another
/// run.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_start_deletes_only_what_it_created() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.class("fast", json!({})).await.unwrap();
    system.created("job-new-0", json!({"size": "1MiB"})).await;
    let url = system.url();
    let run = |arguments: &'static [&'static str]| {
        let mut berth = system.berth();
        berth.args(["--nats", &url, "run", "--node", "n1", "--alloc", "job"]).args(arguments);
        async move { berth.output().await.unwrap() }
    };
    let output = run(&["--volume", "new:1MiB:/scratch", "--class", "fast", "--", "true"]).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("job-new-0"), "{stderr}");
    system.staged_as("job-new-0", Stage::Ready).await;
    system.deleted("job-new-0").await;
    // `no` does not exist, so the run does not start, and it deletes the volume that it created.
    let output = run(&[
        "--volume",
        "new:1MiB:/scratch",
        "--volume",
        "no:/no",
        "--class",
        "fast",
        "--",
        "true",
    ])
    .await;
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    system.forgotten("job-new-0").await;
    system.assert_known().await;
    system.judge();
}
