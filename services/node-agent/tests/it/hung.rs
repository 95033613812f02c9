//! Host operations that hang delay nothing but themselves, and are shown.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_harness::fuse::{fuse_or_skip, mount_hanging};
use berth_harness::{root, wait};
use futures_util::future::join_all;
use nix::mount::{MntFlags, umount2};

use crate::plugins::{Plant, well};
use crate::world::{PATIENCE, World, lease};

/// The node's attribute.
const HUNG: &str = "hung";
/// More requests than a directory that hangs may hold threads.
const REQUESTS: usize = 48;

/// What the last report says of it.
fn reported(world: &World) -> Option<String> {
    world.last_report()?.attributes.get(HUNG).cloned()
}

#[tokio::test]
async fn a_caller_directory_that_hangs_is_shown_and_delays_neither_mounts_nor_the_lease() {
    if !root::or_skip("mounts a volume") || !fuse_or_skip("a directory that hangs") {
        return;
    }
    let world = World::start_with(crate::world::Differences {
        driver: &["--no-attach"],
        ..Default::default()
    })
    .await;
    let (dead, well) = (world.dir.join("binds/dead"), world.dir.join("binds/well"));
    for dir in [&dead, &well] {
        fs::create_dir_all(dir).unwrap();
    }
    let holder = lease(&world.bus).await.expect("the lease is held");
    let server = mount_hanging(&dead);
    let asked = (0..REQUESTS).map(|at| {
        let path = dead.join(at.to_string());
        let world = &world;
        async move { world.mount_as("a", None, Some(&path)).await.unwrap_err() }
    });
    let first = Instant::now();
    let refused = join_all(asked).await;
    assert!(first.elapsed() < PATIENCE, "callers wait for what hangs");
    let named = |problem: &&berth_contract::problem::Problem| {
        problem.code == Code::Overloaded
            && problem.retryable
            && problem.message.contains("32 host operations hang, the oldest since ")
            && problem.message.contains(&dead.display().to_string())
    };
    assert_eq!(refused.iter().filter(named).count(), REQUESTS - 32, "{refused:?}");

    let shown = wait::until("it is reported what hangs", PATIENCE, async || {
        let shown = reported(&world).ok_or("nothing is reported")?;
        if shown.starts_with("32 ") { Ok(shown) } else { Err(shown) }
    })
    .await;
    assert!(shown.contains("look at ") && shown.contains("callers' paths below "), "{shown}");
    // Another path, the journal and the plugin go on.
    world.grant("a", 7, &BTreeMap::new());
    let begun = Instant::now();
    let mounted = world.mount_as("a", None, Some(&well)).await.unwrap();
    assert_eq!(mounted.path, well.display().to_string());
    world.detach("a", 7, 11).await.unwrap();
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    // For longer than a lease lives that is not renewed.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(lease(&world.bus).await, Some(holder), "the lease was lost");

    drop(server);
    umount2(&dead, MntFlags::MNT_DETACH).unwrap();
    wait::until("it is reported that nothing hangs", PATIENCE, async || {
        reported(&world).map_or(Ok(()), Err)
    })
    .await;
    world.judge();
}

/// The disk with what the agent keeps of a plugin hangs: its record, its socket, and what it says.
#[tokio::test]
async fn plugin_files_that_hang_delay_neither_the_answers_of_the_agent_nor_its_lease() {
    if !root::or_skip("mounts a file system that hangs") || !fuse_or_skip("a disk that hangs") {
        return;
    }
    let plant = Plant::start().await;
    plant.write("dev", &plant.command("a.example", "1.0", ""));
    let one = plant.one("dev", well).await;
    let holder = lease(&plant.bus).await.expect("the lease is held");
    let dir = plant.dir.join("state/plugins").join(&one.instance);
    let server = mount_hanging(&dir);
    let begun = Instant::now();
    let shown = wait::until("it is reported what hangs", PATIENCE, async || {
        // Within the time of one request.
        plant.here().await.map_err(|problem| problem.to_string())?;
        reported(&plant).ok_or("nothing is reported".to_owned())
    })
    .await;
    // The socket or the log, whichever was looked at first.
    assert!(shown.contains(&one.instance), "{shown}");
    // For longer than a lease lives that is not renewed.
    tokio::time::sleep(Duration::from_secs(4).saturating_sub(begun.elapsed())).await;
    assert_eq!(lease(&plant.bus).await, Some(holder), "the lease was lost");
    assert!(plant.one("dev", well).await.pid == one.pid, "it is left alone");

    drop(server);
    umount2(&dir, MntFlags::MNT_DETACH).unwrap();
    wait::until("it is reported that nothing hangs", PATIENCE, async || {
        reported(&plant).map_or(Ok(()), Err)
    })
    .await;
}
