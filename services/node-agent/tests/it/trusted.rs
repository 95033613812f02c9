//! Which processes the agent trusts as a plugin, and which of two keeps a socket.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};

use berth_contract::message::plugin::LocalInstance;
use berth_harness::process::{Program, binary};
use berth_harness::wait;

use crate::plugins::{LONG, Plant, well};
use crate::world::PATIENCE;

/// Volume secrets go to the process behind a plugin's socket.
#[tokio::test]
async fn a_plugin_of_a_stranger_is_told_nothing_until_the_stranger_is_trusted() {
    const STRANGER: u32 = 4711;
    if !berth_harness::root::or_skip("runs a plugin as another user") {
        return;
    }
    let plant = Plant::start().await;
    let dir = plant.dir.join("stranger");
    fs::create_dir(&dir).unwrap();
    for path in [&dir, &plant.dir.join("backend"), &plant.dir.path().to_owned()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(&dir, Some(STRANGER), None).unwrap();
    let socket = dir.join("csi.sock");
    let program = dir.join("driver");
    fs::copy(binary("berth-csi-dev"), &program).unwrap();
    let _driver = Program::new("driver", "setpriv", plant.dir.join("stranger.log"))
        .args(["--reuid=4711", "--regid=4711", "--clear-groups"])
        .arg(&program)
        .args(["serve", "--node-id", "node-1", "--endpoint"])
        .arg(format!("unix://{}", socket.display()))
        .arg("--backend")
        .arg(dir.join("backend"))
        .arg("--log")
        .arg(dir.join("calls.log"))
        .start();
    let said = format!("id = 's'\nsocket = '{}'", socket.display());
    plant.write("s", &said);
    let is_refused = |one: &LocalInstance, why: &str| !one.healthy && one.description.contains(why);
    plant.one("s.toml", |one| is_refused(one, "stranger belongs to user 4711")).await;
    // Also when no file is the stranger's, only the process.
    wait::until("the driver serves", PATIENCE, async || {
        if socket.exists() { Ok(()) } else { Err("it does not") }
    })
    .await;
    for path in [&dir, &socket] {
        chown(path, Some(0), Some(0)).unwrap();
    }
    let told =
        plant.one("s.toml", |one| is_refused(one, "listens there belongs to user 4711")).await;
    assert!(told.description.contains("owner = 4711"), "{told:?}");
    assert_eq!(told.version, None, "nothing was asked of it");

    plant.write("s", &format!("{said}\nowner = {STRANGER}"));
    plant.one("s.toml", well).await;
}

#[tokio::test]
async fn a_new_file_with_the_socket_of_a_plugin_that_is_here_is_the_fault() {
    let plant = Plant::start().await;
    plant.write("by-command", &plant.command("c", "1.0", ""));
    let socket = plant.one("by-command", well).await.socket;
    plant.write("m", &format!("id = 'm'\nsocket = '{socket}'"));
    let first = plant.one("/m.toml", well).await;
    plant.write("aa", &format!("id = 'other'\nsocket = '{socket}'"));
    let told = async |what: &str| {
        wait::until(what, LONG, async || {
            let here = plant.here().await.map_err(|problem| problem.to_string())?;
            let told = here.faults.iter().any(|fault| {
                fault.source.ends_with("aa.toml") && fault.problem.contains("m.toml, which keeps")
            });
            let m = here.instances.iter().find(|one| one.source.ends_with("/m.toml"));
            let stays = m.is_some_and(|m| m.healthy && !m.leaving && m.since == first.since);
            if told && stays { Ok(()) } else { Err(format!("{here:#?}")) }
        })
        .await;
        assert!(plant.of("aa.toml").await.is_empty());
    };
    told("the newcomer is the fault").await;
    plant.agent.kill9();
    plant.agent.restart();
    told("it is so for the next agent, too").await;
    plant.remove("m");
    plant.one("aa.toml", well).await;
}
