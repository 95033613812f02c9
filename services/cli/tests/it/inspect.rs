//! `docs/inspect.md` names commands, subjects, buckets, keys, steps and codes; each of them exists.
//!
//! Commands that an operator copies from the page while a claim hangs must work. They are checked
//! with the command line's own parser and the contract.

mod check;
mod commands;
pub mod words;

use std::fs;

fn page() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/inspect.md")).unwrap()
}

/// Names on the page that do not exist, each with its line.
fn faults(page: &str) -> Vec<String> {
    let commands = words::commands(page).into_iter().filter_map(|(line, command)| {
        let fault = commands::fault(&command)?;
        Some(format!("line {line}: `{command}`: {fault}"))
    });
    let names = words::names(page).into_iter().filter_map(|(line, name)| {
        let fault = check::fault(&name)?;
        Some(format!("line {line}: {name}: {fault}"))
    });
    commands.chain(names).collect()
}

#[test]
fn everything_that_the_page_names_exists() {
    let faults = faults(&page());
    assert!(faults.is_empty(), "docs/inspect.md: {faults:#?}");
}

/// A command that a reader copies from any page is accepted. `docs/contract.md` is generated, and
/// shows `berth explain CODE` with a placeholder.
#[test]
fn the_commands_of_every_page_exist() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let pages = fs::read_dir(format!("{root}/docs")).unwrap();
    let pages = pages.map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|its| its == "md"));
    let pages = pages.filter(|path| !path.ends_with("contract.md"));
    let mut faults = Vec::new();
    for path in pages.chain([format!("{root}/README.md").into()]) {
        let page = fs::read_to_string(&path).unwrap();
        for (line, commands) in words::commands(&page) {
            // A line may have several commands, or one in the background.
            let commands = commands.trim_end_matches(" &").split(" && ");
            let mut commands = commands.filter(|command| command.starts_with("berth "));
            let fault = commands.find_map(commands::fault);
            faults.extend(fault.map(|fault| format!("{}:{line}: {fault}", path.display())));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Replacements that make one name of each kind on the page wrong.
const MUTATIONS: &[(&str, &str)] = &[
    // Commands, their verbs, their flags and the values of these.
    ("berth claim status --volume ref", "berth claim status --volumes ref"),
    ("`berth volume status`", "`berth volume stats`"),
    ("berth alloc stop holder", "berth alloc end holder"),
    ("berth node gone n2", "berth node lost n2"),
    ("berth events --volume ref --follow", "berth events --volume ref --tail"),
    ("berth claim status --timeout 3s", "berth claim status --timeout soon"),
    ("berth explain BERTH0207", "berth explain BERTH0299"),
    ("`berth run --wait`", "`berth run --queue`"),
    ("nats micro ls  ", "nats micros ls  "),
    // Buckets, streams and keys.
    ("nats kv ls berth-volumes", "nats kv ls berth-volume"),
    ("KV_berth-volumes", "KV_berth-claims"),
    ("get berth-volumes default.down.claim.d1", "get berth-volumes default.down.claims.d1"),
    ("get berth-volumes default.down.claim.d1", "get berth-allocs default.down.claim.d1"),
    ("# <namespace>.<volume>.claim.<alloc>", "# <namespace>.<volume>.<alloc>"),
    ("'default.down.>'", "'default.>'"),
    ("dev=2Eberth.instance.n1.controller", "dev=2Eberth.instances.n1.controller"),
    ("dev=2Eberth.instance.n1.controller", "dev=2eberth.instance.n1.controller"),
    ("# node.n1, leader.gc", "# nodes.n1, leader.gc"),
    ("# node.n1, leader.gc", "# node.n1, leader.claim"),
    // Services, endpoints, subjects and requests.
    ("nats micro info berth-claim ", "nats micro info berth-claims "),
    ("nats micro ping berth-claim", "nats micro ping claim"),
    ("req berth-claim claim-status", "req berth-claim claim-states"),
    ("req berth-claim claim-status", "req berth-gc claim-status"),
    ("detach Endpoint Statistics", "dismount Endpoint Statistics"),
    ("berth.v1.claim.status.default", "berth.v1.claims.status.default"),
    ("berth.v1.claim.status.default.user", "berth.v1.claim.status.user"),
    ("claim.status.default.user.anna", "claim.status.default"),
    ("claim.status.default.user.anna", "claim.status.default.human.anna"),
    ("user.anna '{\"volume\":\"down\"}'", "user.anna '{\"volumes\":\"down\"}'"),
    ("claim-status '{\"volume\":\"down\"}'", "claim-status '{volume: down}'"),
    (
        "nats sub 'berth.v1.event.default.claim.down.>'",
        "nats sub 'berth.v1.event.default.lease.down.>'",
    ),
    (
        "nats sub 'berth.v1.event.default.claim.down.>'",
        "nats sub 'berth.v1.event.default.claim.down'",
    ),
    ("claim.down.d1.user.anna.service.claim\"", "lease.down.d1.user.anna.service.claim\""),
    // Steps, events, codes and metrics, anywhere on the page.
    ("waits for: controller.unpublish, again", "waits for: controller.detach, again"),
    ("agent.detach by volumewatcher", "agent.dismount by volumewatcher"),
    ("\"event\":\"claim.failed\"", "\"event\":\"claim.failing\""),
    ("BERTH0216", "BERTH0916"),
    ("`berth.reconcile.held_back`", "`berth.reconcile.heldback`"),
    ("`berth-volumewatcher`", "`berth-watcher`"),
];

#[test]
fn names_that_do_not_exist_are_found() {
    let page = page();
    for (is, is_not) in MUTATIONS {
        assert!(page.contains(is), "the page has no {is:?} any more: take another");
        let faults = faults(&page.replacen(is, is_not, 1));
        assert!(!faults.is_empty(), "nobody finds {is_not:?}");
    }
}
