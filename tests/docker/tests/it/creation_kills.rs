//! `berth-docker` is killed at each of its requests of a creation and of a removal.
//!
//! A kill before a request also tests a kill after the disk write that precedes it. A kill after a
//! request tests a kill before the next write.

use std::os::unix::net::UnixStream;

use berth_docker_tests::{Answer, PATIENCE, Plugin, Site, request};
use berth_harness::proxy::{Point, Side};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};

/// Most requests of a creation or a removal. With more than this it never ends.
const POINTS_MAX: usize = 30;
/// What berth-docker asks the claim service, without the lists that it reads by itself.
const REQUESTS: [&str; 4] = [
    "berth.v1.class.list.*.docker.n1",
    "berth.v1.volume.status.*.docker.n1",
    "berth.v1.volume.create.*.docker.n1",
    "berth.v1.volume.delete.*.docker.n1",
];

async fn site() -> Site {
    let options = Options { nodes: 1, cables: true, docker_ms: Some(20_000), ..Options::default() };
    let site = Site::start_with(options).await;
    site.system.class("fast", json!({})).await.unwrap();
    site
}

fn options() -> Value {
    json!({"class": "fast", "size": "1MiB"})
}

/// Sends a request, and kills and restarts `berth-docker` at the n-th request that it sends in
/// turn. False when it sends fewer.
async fn killed_at(site: &Site, at: usize, when: Side, endpoint: &str, body: Value) -> bool {
    let (system, plugin) = (&site.system, site.plugin(0));
    let subjects = REQUESTS.map(str::to_owned).to_vec();
    system.wire.arm(Point { subjects, at, side: when });
    let message = request("POST", endpoint, &body.to_string());
    let is_killed = tokio::select! {
        answer = plugin.say(&message) => {
            assert!(answer.as_ref().is_some_and(Answer::is_done), "{answer:?}");
            false
        }
        _ = system.wire.tripped() => {
            system.kill9(Part::Docker(0));
            system.restart(Part::Docker(0));
            true
        }
    };
    system.wire.disarm();
    wait::until("berth-docker answers", PATIENCE, || async {
        UnixStream::connect(system.docker_socket(0)).map(drop)
    })
    .await;
    is_killed
}

/// Waits until neither a creation nor a removal is under way. True when the name has its volume.
async fn settled(system: &System, plugin: &Plugin, name: &str) -> bool {
    let shown = wait::until("the name is settled", PATIENCE, || async {
        let shown = plugin.get(name).await;
        let is_unsettled = shown.error().contains("is not there: ");
        if is_unsettled { Err(format!("{shown:?}")) } else { Ok(shown) }
    })
    .await;
    let volume = system.volume_status(name).await;
    match &volume {
        Ok(_) => assert!(shown.is_done(), "{shown:?}, {volume:?}"),
        Err(problem) => {
            assert_eq!(problem.code.as_str(), "BERTH0101");
            assert!(shown.error().contains("there is no volume"), "{shown:?}");
        }
    }
    assert_eq!(plugin.list().await.contains(&name.to_owned()), volume.is_ok());
    volume.is_ok()
}

/// Removes the name, and checks that nothing is left of its volume.
async fn removed(site: &Site, name: &str) {
    let removed = site.plugin(0).remove(name).await;
    assert!(removed.is_done(), "{removed:?}");
    assert_eq!(site.created(), Vec::<Value>::new(), "{name}");
    let remaining = site.system.volumes().await.unwrap().volumes;
    assert!(remaining.is_empty(), "{remaining:?}");
    assert!(!site.plugin(0).list().await.contains(&name.to_owned()));
}

/// Runs `strike` at each point, before and after the request; returns how many points were reached.
async fn at_each_point(mut strike: impl AsyncFnMut(usize, Side) -> bool) -> usize {
    for at in 0..POINTS_MAX {
        for side in [Side::Before, Side::After] {
            if !strike(at, side).await {
                return at;
            }
        }
    }
    panic!("more than {POINTS_MAX} points");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_is_killed_and_not_asked_for_again_leaves_a_name_or_nothing() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site().await;
    let (mut kept, mut lost) = (0, 0);
    let points = at_each_point(async |at, side| {
        let name = format!("alone-{side:?}-{at}").to_lowercase();
        let body = json!({"Name": name, "Opts": options()});
        let is_killed = killed_at(&site, at, side, "VolumeDriver.Create", body).await;
        // The storage has what the records know.
        let exists = settled(&site.system, &site.plugin(0), &name).await;
        site.system.assert_known().await;
        assert!(exists || is_killed, "an answered creation left a volume");
        *(if exists { &mut kept } else { &mut lost }) += 1;
        removed(&site, &name).await;
        is_killed
    })
    .await;
    println!("{points} points: {kept} names were kept, {lost} were not created");
    assert!(kept > 1 && lost > 0, "{kept} {lost}");
}

/// The engine sends a request again when the connection breaks.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_is_killed_and_asked_for_again_makes_one_volume() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site().await;
    let points = at_each_point(async |at, side| {
        let name = format!("again-{side:?}-{at}").to_lowercase();
        let body = json!({"Name": name, "Opts": options()});
        let is_killed = killed_at(&site, at, side, "VolumeDriver.Create", body).await;
        let created = site.plugin(0).create(&name, options()).await;
        assert!(created.is_done(), "{created:?}");
        assert_eq!(site.created().len(), 1, "{:?}", site.created());
        let shown = site.plugin(0).get(&name).await;
        let removal = &shown.body["Volume"]["Status"]["removal"];
        assert_eq!(removal, "the volume is deleted", "{shown:?}");
        removed(&site, &name).await;
        is_killed
    })
    .await;
    assert!(points > 2, "{points} points");
}

/// A removal that was not stored when the process was killed is not carried out afterwards:
/// Docker's user was told that it failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_killed_deletes_the_volume_or_leaves_its_name() {
    if !or_skip("the plugin's socket") {
        return;
    }
    let site = site().await;
    let (mut kept, mut lost) = (0, 0);
    let points = at_each_point(async |at, side| {
        let name = format!("rm-{side:?}-{at}").to_lowercase();
        let created = site.plugin(0).create(&name, options()).await;
        assert!(created.is_done(), "{created:?}");
        let body = json!({"Name": name});
        let is_killed = killed_at(&site, at, side, "VolumeDriver.Remove", body).await;
        let exists = settled(&site.system, &site.plugin(0), &name).await;
        site.system.assert_known().await;
        assert!(!exists || is_killed, "an answered removal left no volume");
        *(if exists { &mut kept } else { &mut lost }) += 1;
        removed(&site, &name).await;
        is_killed
    })
    .await;
    println!("{points} points: {kept} names were kept, {lost} volumes were deleted");
    assert!(kept > 0 && lost > 1, "{kept} {lost}");
}
