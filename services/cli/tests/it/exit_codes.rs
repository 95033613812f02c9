//! Exit codes over a real bus without services, and over none.

use berth_harness::nats::Server;

use crate::berth::{Ran, berth};

fn ask(url: &str, args: &[&str]) -> Ran {
    let global = ["--nats", url, "--timeout", "300ms"];
    berth(&[&global[..], args].concat())
}

#[test]
fn without_a_bus_everything_is_unavailable_and_says_how_to_get_one() {
    let ran = ask("nats://127.0.0.1:1", &["volume", "status"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    insta::assert_snapshot!(ran.golden());
}

#[tokio::test]
async fn without_services_every_request_is_unavailable() {
    let server = Server::start().await;
    let url = server.url();
    for args in [
        &["volume", "status"][..],
        &["volume", "status", "data"],
        &["volume", "deregister", "data"],
        &["volume", "create", "data", "--class", "fast"],
        &["volume", "create", "copy", "--from-volume", "data"],
        &["volume", "delete", "data", "--yes"],
        &["volume", "expand", "data", "20GiB"],
        &["volume", "modify", "data", "iops=1"],
        &["volume", "list", "--external", "p"],
        &["volume", "adopt", "p", "vol-1"],
        &["snapshot", "create", "data", "s"],
        &["snapshot", "list"],
        &["snapshot", "delete", "data@s", "--yes"],
        &["snapshot", "adopt", "p", "snap-1", "data@s"],
        &["snapshot", "restore", "data@s", "copy"],
        &["snapshot", "group", "create", "s", "a", "b"],
        &["snapshot", "group", "list"],
        &["class", "list"],
        &["class", "status", "fast"],
        &["class", "delete", "fast"],
        &["plugin", "capacity", "p"],
        &["plugin", "status"],
        &["plugin", "expect", "p", "job", "--nodes", "3"],
        &["plugin", "delete", "p"],
        &["gc", "--claims", "--grace", "1m"],
        &["node", "status", "n1"],
        &["node", "gone", "n1", "--seen", "7", "--kind", "powered-off", "--yes"],
        &["node", "leave", "n1"],
        &["alloc", "status"],
        &["alloc", "stop", "a"],
        &["claim", "status", "--volume", "data"],
        &["events"],
        &["events", "--follow"],
        &["trace", "data/a"],
    ] {
        let ran = ask(&url, args);
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains("BERTH0003") && ran.err.contains("trace:"), "{args:?}: {ran:?}");
    }
    // Programs get the problem on stdout, and people on stderr.
    let ran = ask(&url, &["volume", "status", "--json"]);
    let problem: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(problem["error"]["code"], "BERTH0003", "{ran:?}");
    assert!(ran.err.contains("error: "), "{ran:?}");
}

/// A malformed address fails without a retry, and is not printed: it may contain a password.
#[test]
fn a_malformed_address_is_a_usage_error() {
    for url in ["nats://127.0.0.1:1,", "http://u:secret@127.0.0.1:4222", "nats://"] {
        let ran = ask(url, &["volume", "status"]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{url:?}: {ran:?}");
        assert!(ran.err.contains("write nats://HOST:PORT"), "{ran:?}");
        assert!(!ran.err.contains("secret"), "{ran:?}");
    }
}

/// A request to an agent that is away names the node in its error.
#[tokio::test]
async fn an_agent_that_is_away_is_named() {
    let server = Server::start().await;
    for args in [
        &["plugin", "instances", "n7"][..],
        &["plugin", "stop", "p", "--node", "n7"],
        &["volume", "republish", "data", "--node", "n7"],
        &["node", "unmount", "n7", "data"],
    ] {
        let ran = ask(&server.url(), args);
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains("node:   n7"), "{args:?}: {ran:?}");
        assert!(ran.err.contains("start berth-node-agent there"), "{args:?}: {ran:?}");
    }
}

/// An irreversible declaration needs `--yes`.
#[test]
fn node_gone_needs_a_confirmation() {
    let gone = ["node", "gone", "n1", "--seen", "7", "--kind"];
    let run_gone = |more: &[&str]| ask("nats://127.0.0.1:1", &[&gone[..], more].concat());
    let ran = run_gone(&["confirmed"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
    let warning = "nothing on n1 can write any more; volumes may be attached elsewhere at once";
    assert!(ran.err.contains(warning) && ran.err.contains("--yes"), "{ran:?}");
    assert_eq!(run_gone(&["hoped", "--yes"]).code, 2);
    let unseen = &["node", "gone", "n1", "--kind", "confirmed", "--yes"];
    let ran = ask("nats://127.0.0.1:1", unseen);
    assert!(ran.code == 2 && ran.err.contains("--seen"), "{ran:?}");
}

#[tokio::test]
async fn a_run_that_cannot_claim_never_starts_its_command() {
    let server = Server::start().await;
    let dir = berth_harness::dirs::Dir::new("cli");
    let mark = dir.join("started");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    let run = |args: &[&str]| ask(&server.url(), &[&["run"], args, &touch[..]].concat());
    let ran = run(&["--node", "n1", "--volume", "data"]);
    assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{ran:?}");
    assert!(ran.err.contains("BERTH0003"), "{ran:?}");
    let ran = run(&["--volume", "data:/nonexistent/x"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("mkdir -p /nonexistent/x"), "{ran:?}");
    let ran = run(&["--volume", "a-b", "--volume", "a_b"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(!mark.exists());
}
