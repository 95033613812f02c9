//! How often a mount and a release read the mount tables: each reading takes as long as the host
//! has mounts and processes.

use std::collections::BTreeMap;

use berth_harness::root;

use crate::world::{Differences, World};

/// The readings of the mount table, and those of the tables of all processes, that the agent has
/// begun for its requests. Its periodic checks are not among them.
fn readings(world: &World) -> (usize, usize) {
    let log = world.agent.log();
    let count = |line: &str| log.matches(line).count();
    (count("the mount table is read"), count("the mount tables of all processes are read"))
}

fn between(before: (usize, usize), after: (usize, usize)) -> (usize, usize) {
    (after.0 - before.0, after.1 - before.1)
}

#[tokio::test]
async fn a_mount_and_a_release_read_the_mount_tables_no_more_often_than_they_must() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let no_attach = Differences { driver: &["--no-attach"], ..Default::default() };
    let world = World::start_with(no_attach).await;
    world.grant("a", 7, &BTreeMap::new());
    let idle = readings(&world);
    world.mount("a").await.unwrap();
    let mounted = readings(&world);
    assert_eq!(between(idle, mounted), (2, 0), "before the first call, and after the last one");
    world.mount("a").await.unwrap();
    let again = readings(&world);
    assert_eq!(between(mounted, again), (1, 0), "nothing is called");
    world.detach("a", 7, 11).await.unwrap();
    let released = between(again, readings(&world));
    assert_eq!(released, (3, 2), "before, after each call; and of all processes before and after");
}
