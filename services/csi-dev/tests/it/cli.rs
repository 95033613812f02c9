//! The commands beside `serve`, and wrong settings.

use std::fs;
use std::process::{Command, Output};

use berth_csi::Code;
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_harness::dirs::Dir;
use serde_json::{Value, json};

use crate::request::attach;
use crate::world::{World, binary};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.env_remove("CSI_ENDPOINT").args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn provision_makes_volumes_and_lists_them() {
    let dir = Dir::new("provision");
    let backend = dir.join("backend");
    let backend = backend.to_str().unwrap();
    let provision = |args: &[&str]| run(&[&["provision", "--backend", backend], args].concat());
    let make = ["--volume", "a/b", "--capacity-bytes", "4096", "--context", "pool=fast"];
    for outcome in ["made", "was there already"] {
        let output = provision(&make);
        assert!(output.status.success() && stderr(&output).contains(outcome), "{output:?}");
    }
    let other = provision(&["--volume", "a/b", "--capacity-bytes", "1"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("capacity 4096"), "{other:?}");
    let long = provision(&["--volume", &"x".repeat(257)]);
    assert!(stderr(&long).contains("1 to 256 bytes"), "{long:?}");

    let listed = provision(&["--list"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(
        listed,
        json!({
            "volume_id": "a/b", "capacity_bytes": 4096, "volume_context": {"pool": "fast"},
            "attached_so_far": 0, "attachments": {}, "nodes": {},
        })
    );
}

#[test]
fn wrong_settings_are_named_and_exit_with_64() {
    let dir = Dir::new("settings");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (backend, log) = (path("backend"), path("log"));
    let serve = |endpoint: &str, name: &str| {
        let args = ["serve", "--endpoint", endpoint, "--node-id", "n", "--backend", &backend];
        run(&[&args[..], &["--log", &log, "--driver-name", name]].concat())
    };
    let output = serve("tcp://nowhere", "-");
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("unix:"), "{}", stderr(&output));
    let output = serve("unix:///x.sock", "-");
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("--driver-name"), "{}", stderr(&output));
    assert!(!dir.join("backend").exists(), "nothing is made with wrong settings");
    assert_eq!(run(&["serve"]).status.code(), Some(64));
    assert_eq!(run(&["--help"]).status.code(), Some(0));

    // A file that is no socket stays.
    let file = path("csi.sock");
    fs::write(&file, "mine").unwrap();
    let output = serve(&format!("unix://{file}"), "dev.berth");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not a socket"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[tokio::test]
async fn judge_prints_violations_with_their_lines_and_exits_with_1() {
    let Some(world) = World::start("judge", &[]).await else { return };
    world.provision("v");
    let logs = world.logs();
    let judge = || {
        let logs: Vec<_> = logs.iter().map(|log| log.to_str().unwrap()).collect();
        run(&[&["judge"], &logs[..]].concat())
    };
    world.n1.call(attach("v", "n1", SingleNodeWriter)).await.unwrap();
    let output = judge();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");

    world.n2.refused(attach("v", "n2", SingleNodeWriter), Code::FailedPrecondition).await;
    let output = judge();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("volume \"v\": attached to n1"), "{text}");
    for log in &logs {
        assert!(text.contains(&format!("{}:", log.display())), "{text}");
    }
    assert!(
        text.contains("[exclusive-attach, Safety 2, CSI \"ControllerPublishVolume\"]"),
        "{text}"
    );

    let logs: Vec<_> = logs.iter().map(|log| log.to_str().unwrap()).collect();
    let output = run(&[&["judge", "--json"], &logs[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    let finding: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&finding["kind"], &finding["noticed"]), (&json!("violation"), &json!(true)));
    assert_eq!(finding["proof"].as_array().unwrap().len(), 4, "{finding}");
    assert_eq!(run(&["judge", "/no/such/log"]).status.code(), Some(1));
}
