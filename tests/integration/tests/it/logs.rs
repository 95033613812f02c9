//! The services' log lines about a claim name its trace.

use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};
use serde_json::json;

fn names_a_trace(line: &str) -> bool {
    line.split_once(" trace=").is_some_and(|(_, rest)| {
        let id = rest.trim_start_matches('"').bytes().take_while(u8::is_ascii_hexdigit);
        id.count() == 32
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_about_a_claim_names_its_trace() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    // Failures are logged in more lines than successes.
    let faults = ["NodeUnpublishVolume", "ControllerUnpublishVolume"]
        .map(|rpc| json!({"rpc": rpc, "when": "before", "code": "UNAVAILABLE", "times": 2}));
    system.plant(0, &json!(faults));
    system.stop("a").await;
    system.kill9_and_restart(Part::Claim).await;
    system.freed("data").await;
    system.settle("data").await;

    let services = [Part::Claim, Part::Registry, Part::Watcher, Part::Gc, Part::Agent(0)];
    let logs: Vec<String> = services.map(|part| system.daemon(part).log()).into();
    let lines = logs.iter().flat_map(|log| log.lines());
    let is_of_claim = |line: &&str| line.contains("alloc=a ") || line.contains("of=alloc a ");
    let lines: Vec<&str> = lines.filter(is_of_claim).collect();
    assert!(lines.iter().any(|line| line.contains("nothing is left to do")), "{logs:#?}");
    for line in lines {
        assert!(names_a_trace(line), "{line}");
    }
}
