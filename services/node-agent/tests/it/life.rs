//! The agent's own life: start, lease, end.

use std::fs;
use std::process::Command;
use std::time::Duration;

use berth_contract::code::Code;
use berth_domain::volume::CallKind;
use berth_harness::dirs::Dir;
use berth_harness::process::binary;
use berth_harness::wait;

use crate::world::{PATIENCE, World, call, lease};

#[tokio::test]
async fn an_agent_told_to_end_says_so_and_gives_its_lease_up() {
    let world = World::start().await;
    let held = lease(&world.bus).await.expect("the lease is held");
    assert_eq!(held["node"], "n.1");
    assert!(world.agent.terminate().await.success());
    let last = world.last_report().unwrap();
    assert!(last.instances.iter().all(|one| !one.instance.healthy), "{last:?}");
    assert_eq!(last.instances[0].instance.description, "the agent is stopping");
    assert!(last.instances[0].instance.controller.is_some(), "its description is full");
    assert_eq!(lease(&world.bus).await, None);
    let gone = world.call(call(CallKind::ControllerPublish, "a", 1, 10)).await.unwrap_err();
    assert_eq!(gone.code, Code::NoResponder);
}

/// A crash that is mended in time is not seen: the node is there all along.
#[tokio::test]
async fn a_restarted_agent_takes_its_own_lease_over_and_a_dead_one_loses_it() {
    let world = World::start().await;
    let first = lease(&world.bus).await.unwrap();
    world.agent.restart();
    wait::until("the lease is the new process's", Duration::from_secs(2), async || {
        let now = lease(&world.bus).await.ok_or("nobody held it".to_owned())?;
        if now["pid"] == first["pid"] { Err(now.to_string()) } else { Ok(now) }
    })
    .await;
    world.agent.kill9();
    wait::until("the lease ends", PATIENCE, async || {
        lease(&world.bus).await.map_or(Ok(()), |held| Err(held.to_string()))
    })
    .await;
}

#[tokio::test]
async fn a_second_agent_of_the_same_name_waits() {
    let world = World::start().await;
    let first = lease(&world.bus).await.unwrap();
    let config = fs::read_to_string(world.dir.join("agent.toml")).unwrap();
    let config = config.replace("/state'", "/other'");
    fs::write(world.dir.join("other.toml"), config).unwrap();
    let second = berth_harness::process::Program::new(
        "second agent",
        binary("berth-node-agent"),
        world.dir.join("other.log"),
    )
    .arg("--config")
    .arg(world.dir.join("other.toml"))
    .start();
    wait::until("it says that it waits", PATIENCE, async || {
        let waits = second.log().contains("another agent holds this node's lease");
        if waits { Ok(()) } else { Err(second.log()) }
    })
    .await;
    assert_eq!(lease(&world.bus).await.unwrap()["agent"], first["agent"]);
    assert!(world.agent.terminate().await.success());
    wait::until("its turn comes", PATIENCE, async || {
        let held = lease(&world.bus).await.ok_or("nobody held it".to_owned())?;
        if held["agent"] == first["agent"] { Err(held.to_string()) } else { Ok(()) }
    })
    .await;
}

#[test]
fn bad_configuration_is_told_whole_and_nothing_is_started() {
    let dir = Dir::new("agent");
    let file = dir.join("agent.toml");
    let text = "state_dir = 'here'\n\
                lease_ttl_s = 0\n\
                [[plugin]]\n\
                id = 'p'\n\
                socket = 'csi.sock'\n\
                kind = 1\n";
    fs::write(&file, text).unwrap();
    for more in [&["--check-config"][..], &[]] {
        let mut run = Command::new(binary("berth-node-agent"));
        let ended = run.arg("--config").arg(&file).args(more).output().unwrap();
        assert_eq!(ended.status.code(), Some(64));
        let said = String::from_utf8_lossy(&ended.stderr);
        for fault in
            ["`node`", "line 1: `state_dir`", "line 2: `lease_ttl_s`", "line 6: `plugin[0].kind`"]
        {
            assert!(said.contains(fault), "{fault} is missing in:\n{said}");
        }
    }
}
