//! Data that Docker copies from an image into a volume when a container is created.

use std::time::Duration;

use berth_docker_tests::{Engine, IMAGE_WITH_DATA, PATIENCE, Site, engine_or_skip};
use berth_harness::wait;
use berth_integration::Part;

const WRITER: &[&str] = &["single-node-writer"];
const MANY: &[&str] = &["single-node-multi-writer"];

async fn site(access: &[&'static str]) -> (Site, Engine) {
    let site = Site::start(1).await;
    site.system.volume("data", access).await;
    let engine = site.engine(0).await;
    engine.import_with_data();
    (site, engine)
}

/// `docker run` or `docker create` of a shell from the image with a file in `/data`.
fn arguments<'a>(verb: &'a str, driver: &'a str, volume: &'a str, name: &'a str) -> Vec<&'a str> {
    let fixed = [verb, "--network", "none", "--volume-driver", driver, "-v", volume];
    let shell = ["--name", name, IMAGE_WITH_DATA, "/bin/sh", "-c", "cat /data/seed"];
    [&fixed[..], &shell].concat()
}

fn claims_made(site: &Site) -> [usize; 2] {
    ["ControllerPublishVolume", "ControllerUnpublishVolume"].map(|rpc| site.count(rpc))
}

async fn state(site: &Site, name: &str) -> String {
    let shown = site.plugin(0).get(name).await;
    shown.body["Volume"]["Status"]["state"].as_str().unwrap_or_default().to_owned()
}

/// Docker mounts and unmounts the volume for its copy, and mounts it again for the container.
#[tokio::test(flavor = "multi_thread")]
async fn one_claim_serves_the_copy_and_the_container() {
    if !engine_or_skip() {
        return;
    }
    let (site, engine) = site(WRITER).await;
    let driver = site.driver(0);
    let seed = engine.ok(&arguments("run", &driver, "data:/data", "one")).await;
    assert_eq!(seed, "from the image");
    site.settle("data").await;
    assert_eq!(claims_made(&site), [1, 1]);
    engine.ok(&["rm", "one"]).await;
}

/// A container that is created and not started holds no claim. No other release is delayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_without_a_container_is_kept_for_a_moment_only() {
    if !engine_or_skip() {
        return;
    }
    let (site, engine) = site(WRITER).await;
    let driver = site.driver(0);
    engine.ok(&arguments("create", &driver, "data:/data", "one")).await;
    assert_eq!(state(&site, "data").await, "kept");
    assert_eq!(site.system.claims("data").await.claims.len(), 1);
    // Two seconds of delay, and the time of a release on a busy machine.
    let settled = tokio::time::timeout(Duration::from_secs(15), site.settle("data")).await;
    assert!(settled.is_ok(), "the volume is released without a request");
    assert_eq!(claims_made(&site), [1, 1]);
    // The image has no `/data` to copy: the volume is free once Docker has its answer.
    engine.shell("data", &["--rm"], "true").await;
    assert!(site.system.claims("data").await.claims.is_empty(), "a release is not delayed");
    let seed = engine.ok(&["start", "-a", "one"]).await;
    assert_eq!(seed, "from the image");
    assert!(site.system.claims("data").await.claims.is_empty(), "a release is not delayed");
    engine.ok(&["rm", "one"]).await;
    site.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_killed_between_copy_and_container_loses_nothing() {
    if !engine_or_skip() {
        return;
    }
    let (site, engine) = site(WRITER).await;
    let driver = site.driver(0);
    engine.ok(&arguments("create", &driver, "data:/data", "one")).await;
    site.system.kill9_and_restart(Part::Docker(0)).await;
    wait::until("the container starts", PATIENCE, || async {
        let started = engine.run(&["start", "-a", "one"]).await;
        if started.status.success() { Ok(()) } else { Err(format!("{started:?}")) }
    })
    .await;
    assert_eq!(site.count("ControllerPublishVolume"), 1, "one claim served both");
    site.settle("data").await;
    assert_eq!(claims_made(&site), [1, 1]);
    engine.ok(&["rm", "one"]).await;
}

/// The engine does not tell the plugin whether it mounts for its copy or for the container. So the
/// copy fails with Docker's own message. `docs/docker.md` gives the remedy.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_into_what_is_only_read_fails_and_nocopy_is_the_remedy() {
    if !engine_or_skip() {
        return;
    }
    let (site, engine) = site(MANY).await;
    let driver = site.driver(0);
    engine.create("rw-name", &["volume=data"]).await;
    engine.create("ro-name", &["volume=data", "mode=ro"]).await;
    let refused = engine.refused(&arguments("run", &driver, "ro-name:/data", "one")).await;
    assert!(refused.contains("read-only file system"), "{refused}");
    site.settle("data").await;
    engine.shell("rw-name", &["--rm"], "echo written > /data/seed").await;
    let seed = engine.ok(&arguments("run", &driver, "ro-name:/data:nocopy", "two")).await;
    assert_eq!(seed, "written");
    engine.ok(&["rm", "two"]).await;
    site.settle("data").await;
}
