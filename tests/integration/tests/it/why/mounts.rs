//! Mounts that are dead or hang, operations on the host that hang, and an agent that does not
//! answer while its lease is still held.

use std::path::Path;
use std::process::Command;

use berth_bus::{Change, Guard, Write};
use berth_contract::{bucket, key};
use berth_domain::NodeId;
use berth_harness::fuse::{fuse_or_skip, mount_hanging};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use berth_service::clock;

use super::{OPERATOR, YOU, tells};

fn unmount(path: &Path) {
    let unmounted = Command::new("umount").arg(path).status().unwrap();
    assert!(unmounted.success(), "{}", path.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn why_tells_a_mount_that_hangs_from_one_that_is_dead() {
    if !or_skip("real mounts") || !fuse_or_skip("a mount that hangs") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    // A mount that hangs replaces the plugin's mount.
    let path = Path::new(&mounted.path);
    unmount(path);
    let server = mount_hanging(path);
    let hangs = "the mount on node n1 does not answer for …: look at its storage";
    let finding = tells(&system, "data", "mount-hangs", OPERATOR, hangs).await;
    assert_eq!(finding["state"], "taken by a on n1, mount hangs");
    let host = "operations on the host of node n1 do not return";
    let finding = tells(&system, "n1", "host-hangs", YOU, host).await;
    assert!(finding["evidence"][0].as_str().unwrap().contains(&mounted.path), "{finding:#}");

    drop(server);
    let dead = "the mount on node n1 is dead for …: …not connected…";
    let finding = tells(&system, "data", "mount-dead", YOU, dead).await;
    assert_eq!(finding["state"], "taken by a on n1, mount dead");
    let command = "berth volume republish data --node n1 --alloc a   # while ";
    assert!(finding["next"][0].as_str().unwrap().starts_with(command), "{finding:#}");
    tells(&system, "alloc/a", "mount-dead", YOU, "…is dead for …").await;
    unmount(path);
    system.stop("a").await;
    system.settle("data").await;
}

/// Writes or deletes the lease of n2. A lease written here never ends.
async fn set_lease(system: &System, change: impl Fn() -> Change) {
    let leases = system.bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let key = key::node_lease(&NodeId::new("n2").unwrap());
    wait::until("the lease of n2 is written", RECOVERY, || async {
        let revision = leases.head(&key).await.map_err(|error| error.to_string())?;
        let write = Write {
            key: &key,
            change: change(),
            guard: Guard { filter: &key, revision },
            operation: "by hand",
            trace: clock::begin_trace(),
        };
        leases.commit(write).await.map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_tells_an_agent_that_is_away_from_a_node_that_is_down() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 1, "data").await;
    let agent = system.daemon(Part::Agent(1));
    // The real lease would end within seconds. With a lease that never ends, the node is not down.
    agent.pause();
    set_lease(&system, || Change::Put("held by the test".into())).await;
    let hangs = "the agent of node n2 does not answer: it hangs, or is cut off";
    let finding = tells(&system, "data", "agent-away", YOU, hangs).await;
    assert_eq!(finding["state"], "taken by a on n2");
    tells(&system, "n2", "agent-away", YOU, hangs).await;
    agent.kill9();
    let ended = "the agent of node n2 has ended or just restarts: …";
    tells(&system, "data", "agent-away", YOU, ended).await;

    set_lease(&system, || Change::Delete).await;
    tells(&system, "data", "node-down", YOU, "node n2 is down for …").await;
    agent.restart();
    system.healthy().await;
    system.stop("a").await;
    system.settle("data").await;
}
