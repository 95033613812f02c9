//! Tests the kit itself: a correct scheduler has no mistakes, and each mistake is reported.

#![expect(clippy::unwrap_used, reason = "a test must stop where its footing fails")]

use std::path::PathBuf;
use std::time::Duration;

use berth_conformance::mistakes::Kind;
use berth_conformance::scene::{Scene, UnderTest, play};
use berth_conformance::storm::storm;
use berth_harness::process::binary;
use berth_harness::root::or_skip;

const PLACES: [&str; 5] = ["{server}", "{owner}", "{node}", "{creds}", "{ca}"];

fn under_test(program: PathBuf, first: Option<&str>) -> UnderTest {
    let words = first.into_iter().chain(PLACES).map(str::to_owned);
    let command = std::iter::once(program.to_string_lossy().into_owned()).chain(words).collect();
    UnderTest { command, json: false, kit: binary("berth-conformance") }
}

fn example(name: &str) -> PathBuf {
    let own = binary("berth-conformance");
    own.parent().unwrap().join("examples").join(name)
}

async fn has_no_mistake(scene: Scene) {
    if !or_skip("real mounts") {
        return;
    }
    let test = under_test(example("scheduler"), None);
    let (mistakes, jobs) = play(scene, &test).await;
    assert!(mistakes.is_empty(), "{mistakes:#?} in {jobs:#?}");
}

async fn has_mistake(scene: Scene, bad: &str, kind: Kind) {
    if !or_skip("real mounts") {
        return;
    }
    let test = under_test(example("bad"), Some(bad));
    let (mistakes, jobs) = play(scene, &test).await;
    assert!(mistakes.iter().any(|mistake| mistake.kind == kind), "{mistakes:#?} in {jobs:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_of_the_documentation_runs_jobs() {
    has_no_mistake(Scene::Life).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_of_the_documentation_may_be_killed() {
    has_no_mistake(Scene::Restart).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_of_the_documentation_asks_again() {
    has_no_mistake(Scene::Retryable).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_of_the_documentation_keeps_its_place_in_line() {
    has_no_mistake(Scene::Line).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_stopped_while_it_runs_is_reported() {
    has_mistake(Scene::Life, "stops-early", Kind::StoppedRunningJob).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_runs_twice_is_reported() {
    has_mistake(Scene::Life, "runs-twice", Kind::RanTwice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_line_that_is_given_up_is_reported() {
    has_mistake(Scene::Line, "gives-up", Kind::GaveUpPlaceInLine).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_says_to_ask_again_and_is_ignored_is_reported() {
    has_mistake(Scene::Retryable, "ignores-retryable", Kind::IgnoredRetryable).await;
}

/// The length of the storm; ten minutes by `make storm`.
fn storm_length() -> Duration {
    let seconds = std::env::var("BERTH_STORM_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(30))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_schedulers_share_a_fleet_in_a_storm() {
    if !or_skip("real mounts") {
        return;
    }
    let test = under_test(example("scheduler"), None);
    let seed = std::env::var("BERTH_STORM_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("seed {seed}");
    let report = storm(&test, storm_length(), seed).await;
    println!("{} of {} jobs ran; {} faults", report.ran, report.jobs, report.faults.len());
    assert!(report.mistakes.is_empty(), "seed {seed}: {report:#?}");
    assert!(report.ran * 2 > report.jobs, "seed {seed}: {report:#?}");
}
