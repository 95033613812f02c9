//! Lists of every noun: the same verbs, sorted and watched. Allocs are listed while live only.

use std::io::{BufRead as _, BufReader};

use berth_cli::args::Cli;
use berth_harness::root;
use clap::Parser as _;
use nix::sys::signal::Signal;

use crate::berth::{Ran, berth};
use crate::system::{System, signal};

const NOUNS: [&str; 5] = ["volume", "alloc", "claim", "node", "plugin"];

#[test]
fn every_noun_is_listed_by_the_same_words() {
    for noun in NOUNS {
        for verb in ["list", "ls", "status"] {
            for more in [&[][..], &["--watch"], &["--sort", "node"], &["--limit", "3"]] {
                let line = [&["berth", noun, verb], more].concat();
                assert!(Cli::try_parse_from(&line).is_ok(), "{line:?}");
            }
        }
    }
    let parsed = Cli::try_parse_from(["berth", "alloc", "ls", "--all", "--state", "live"]);
    assert!(parsed.is_err(), "--all and --state contradict each other");
    // With `--json` the reply is printed unchanged, so an ignored option would mislead.
    let ran = berth(&["node", "ls", "--sort", "since", "--json"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

/// The ids in the first column.
fn ids(ran: &Ran) -> Vec<String> {
    assert_eq!(ran.code, 0, "{ran:?}");
    let rows = ran.out.lines().skip(1);
    rows.filter_map(|row| row.split_whitespace().next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn lists_are_sorted_and_follow_changes() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    for volume in ["d10", "d2"] {
        system.volume(volume, "single-node-writer");
    }
    let on = |alloc| ["run", "--node", "n1", "--alloc", alloc, "--volume", "d10", "--"];
    let ended = system.berth(&[&on("ended")[..], &["true"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");

    let mut watch = system.spawn(&["volume", "ls", "--watch", "--json"]);
    let mut seen = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&seen.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["volumes"][0]["id"], "d10");
    let holder = system.spawn(&[&on("holder")[..], &["sleep", "600"]].concat());
    // Each line is a change: the last line counts the claim.
    while next()["volumes"][0]["writers"] != 1 {}
    signal(watch.id(), Signal::SIGINT);
    assert_eq!(watch.wait().unwrap().code(), Some(0), "Ctrl-C is how it ends");
    system.claims_become("d10", &["taken holder"]).await;

    // By name, with the numbers in it by size; and by another column.
    let volumes = system.berth(&["volume", "list"]);
    assert_eq!(ids(&volumes), ["d2", "d10"], "{volumes:?}");
    assert!(!volumes.out.contains("holder"), "{volumes:?}");
    assert_eq!(ids(&system.berth(&["volume", "ls", "--sort", "write"])), ["d2", "d10"]);
    let claims = system.berth(&["claim", "list"]);
    assert!(claims.out.contains("holder") && claims.out.contains("n1"), "{claims:?}");
    let unknown = system.berth(&["volume", "ls", "--sort", "age"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.err.contains("waiting, name"), "{unknown:?}");

    // Only live allocs.
    assert_eq!(ids(&system.berth(&["alloc", "status"])), ["holder"]);
    assert_eq!(ids(&system.berth(&["alloc", "ls", "--all"])), ["ended", "holder"]);
    assert_eq!(ids(&system.berth(&["alloc", "ls", "--state", "complete"])), ["ended"]);
    for noun in NOUNS {
        let [list, ls, status] =
            ["list", "ls", "status"].map(|verb| ids(&system.berth(&[noun, verb])));
        assert!(!list.is_empty() && list == ls && ls == status, "{noun}: {list:?}");
    }
    signal(holder.id(), Signal::SIGTERM);
    holder.wait_with_output().unwrap();
    let no_allocs = system.berth(&["alloc", "ls"]);
    assert!(no_allocs.out.contains("no live allocs; --all"), "{no_allocs:?}");
    system.stop().await;
}
