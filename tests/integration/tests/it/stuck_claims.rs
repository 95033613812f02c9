//! Nothing is stuck silently: what commands print about a claim that hangs (B9).

use std::time::Duration;

use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// An obstacle to a release.
struct Trouble {
    volume: &'static str,
    /// Planted in the driver of the claim's node.
    faults: Option<Value>,
    /// The state of the claim.
    state: &'static str,
    /// Texts in the error of the last try.
    error: &'static [&'static str],
}

/// The output of a command, which must succeed.
async fn output_of(system: &System, args: &[&str]) -> String {
    let mut berth = system.berth();
    berth.args(["--nats", &system.url()]).args(args).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, berth.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The expected texts that are missing.
fn missing<'a>(text: &str, expected: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    expected.into_iter().filter(|words| !text.contains(words)).collect()
}

/// Waits until each command prints everything expected about the claim: step, start, tries, last
/// error, next try, what it waits for, and what to do.
async fn shows(system: &System, trouble: &Trouble) {
    let alloc = format!("of-{}", trouble.volume);
    for command in [
        &["claim", "status", "--volume", trouble.volume][..],
        &["volume", "status", trouble.volume][..],
    ] {
        let awaited = format!("`berth {}` shows all", command.join(" "));
        wait::until(&awaited, PATIENCE, || async {
            let text = output_of(system, command).await;
            let expected =
                ["SINCE", "TRIES", "NEXT TRY", "waits for: ", "last error: ", "what to do: "];
            let expected = expected.into_iter().chain([alloc.as_str(), trouble.state]);
            let missing = missing(&text, expected.chain(trouble.error.iter().copied()));
            let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(&alloc));
            let tries = line.and_then(|line| line.split_whitespace().nth(7)?.parse::<u32>().ok());
            let is_shown = missing.is_empty() && tries >= Some(2);
            if is_shown { Ok(()) } else { Err(format!("{missing:?} is not in {text}")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_release_hangs_on_is_read_at_the_terminal() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { call_timeout_ms: 1_500, patience_ms: 4_000, ..Options::default() };
    let system = System::start(options).await;
    let troubles = [
        Trouble {
            volume: "hangs",
            faults: Some(json!([{"rpc": "NodeUnpublishVolume", "volume": "hangs", "hang": true}])),
            state: "unpublishing",
            error: &["agent.detach", "node n1"],
        },
        Trouble {
            volume: "refuses",
            faults: Some(json!([
                {"rpc": "ControllerUnpublishVolume", "volume": "refuses", "code": "INTERNAL"}
            ])),
            state: "node-detached",
            error: &["controller.unpublish", "INTERNAL"],
        },
        Trouble {
            volume: "away",
            faults: None,
            state: "unpublishing",
            error: &["agent.detach", "n1"],
        },
    ];
    for trouble in &troubles {
        system.volume(trouble.volume, &["single-node-writer"]).await;
        let alloc = format!("of-{}", trouble.volume);
        system.run(&alloc, 0, trouble.volume).await;
        match &trouble.faults {
            Some(faults) => system.plant(0, faults),
            None => system.kill9(Part::Agent(0)),
        }
        system.stop(&alloc).await;
        shows(&system, trouble).await;
        system.plant(0, &json!([]));
        match &trouble.faults {
            // A hung call ends only with the plugin's process.
            Some(_) => system.kill9_and_restart(Part::Driver(0)).await,
            None => system.restart(Part::Agent(0)),
        }
        system.freed(trouble.volume).await;
        system.settle(trouble.volume).await;
    }
}
