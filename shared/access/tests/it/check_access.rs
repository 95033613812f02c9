//! `--check-access`, and the same check at a start, by real programs on a real server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use berth_access::creds::{format_creds, inbox_prefix};
use berth_access::jwt::UserToken;
use berth_access::key::{Key, KeyKind};
use berth_access::{Grants, Permissions, Role, derive_permissions};
use berth_domain::{Namespace, NodeId, PluginId};
use berth_harness::process::{Program, binary};
use berth_harness::wait;

use crate::server::{Fleet, SOON, now};

const PROGRAMS: [&str; 6] =
    ["claim", "plugin-registry", "volumewatcher", "gc", "node-agent", "docker"];

/// The arguments with which each program reaches the fleet as this identity.
fn connection(fleet: &Fleet, creds: &Path) -> Vec<String> {
    let (ca, creds) = (fleet.directory.ca(), creds.to_str().unwrap());
    let url = fleet.servers[0].url();
    let ca = ca.to_str().unwrap();
    ["--nats", &url, "--creds", creds, "--tlsca", ca].map(str::to_owned).to_vec()
}

/// The configuration of a program. Only the agent's and the Docker plugin's say anything.
fn write_config(fleet: &Fleet, program: &str) -> PathBuf {
    let file = fleet.dir.join(format!("{program}.toml"));
    let dir = fleet.dir.join("state");
    let plugin = "[[plugin]]\nid = 'a.csi'\nsocket = '/nonexistent/a.sock'\n";
    let text = match program {
        "node-agent" => format!("node = 'n1'\nstate_dir = '{}'\n{plugin}", dir.display()),
        "docker" => format!("node = 'n1'\nstate_dir = '{}'\n", dir.display()),
        _ => String::new(),
    };
    fs::write(&file, text).unwrap();
    file
}

fn check(fleet: &Fleet, program: &str, connection: &[String]) -> (i32, String) {
    let Output { status, stdout, stderr } = Command::new(binary(&format!("berth-{program}")))
        .arg("--check-access")
        .arg("--config")
        .arg(write_config(fleet, program))
        .args(connection)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    (status.code().unwrap(), text.into_owned())
}

fn role(program: &str, controllers: &[&str]) -> Role {
    let node = NodeId::new("n1").unwrap();
    match program {
        "claim" => Role::Claim,
        "plugin-registry" => Role::PluginRegistry,
        "volumewatcher" => Role::Volumewatcher,
        "gc" => Role::Gc,
        "docker" => Role::Docker { node, namespaces: [Namespace::default()].into() },
        _ => {
            let controllers = controllers.iter().map(|id| PluginId::new(*id).unwrap());
            Role::Node { node, controllers: controllers.collect() }
        }
    }
}

/// An identity of the fleet whose rights were changed before its token was signed.
fn sign_changed(fleet: &Fleet, role: &Role, change: impl FnOnce(&mut Permissions)) -> PathBuf {
    let seed = fs::read_to_string(fleet.directory.path().join("account.seed")).unwrap();
    let account = Key::from_seed(&seed, KeyKind::Account).unwrap();
    sign_for(fleet, role, (&account, &Key::make(KeyKind::User)), change)
}

/// As [`sign_changed`], for a key that the caller keeps.
fn sign_for(
    fleet: &Fleet,
    role: &Role,
    (account, key): (&Key, &Key),
    change: impl FnOnce(&mut Permissions),
) -> PathBuf {
    let public = key.public();
    let mut permissions = derive_permissions(role).with_inbox(&inbox_prefix(&public));
    change(&mut permissions);
    let name = role.identity_name(None);
    let token = UserToken { name: &name, public: &public, permissions, expires: None };
    let file = fleet.dir.join("changed.creds");
    let text = format_creds(&token.sign(account, now()).unwrap(), key).unwrap();
    fs::write(&file, text).unwrap();
    file
}

#[tokio::test]
async fn each_program_has_every_right_of_an_identity_of_this_version() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    for program in PROGRAMS {
        let creds = fleet.creds(role(program, &["a.csi"]));
        let (code, text) = check(&fleet, program, &connection(&fleet, &creds));
        assert_eq!(code, 0, "{program}: {text}");
        assert!(text.contains("ok: it has every right"), "{program}: {text}");
        assert!(text.contains("ok: connected to nats-server n1.example"), "{program}: {text}");
        assert!(!text.contains("missing") && !text.contains("warning"), "{program}: {text}");
    }
}

#[tokio::test]
async fn what_an_identity_lacks_is_told_before_and_at_the_start() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    // An earlier version made the identity: rights of this version are not in its token.
    let creds = sign_changed(&fleet, &role("node-agent", &[]), |permissions| {
        let is_later =
            |subject: &String| ["node.hold", "node.tell"].iter().any(|verb| subject.contains(verb));
        permissions.publish_allow.retain(|subject| !is_later(subject));
    });
    let connection_of = |creds: &Path| connection(&fleet, creds);
    let (code, text) = check(&fleet, "node-agent", &connection_of(&creds));
    assert_eq!(code, 1, "{text}");
    for part in [
        "missing: publish: requests berth.v1.node.hold.node.n1 (node.hold)",
        "missing: publish: requests berth.v1.node.tell.node.n1 (node.tell)",
        "may not host the controller of a.csi",
        "next: berth access node n1 --controllers a.csi --replace",
        "ok: connected",
    ] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    assert_eq!(text.matches("missing: ").count(), 2, "{text}");
    let agent = binary("berth-node-agent");
    let config = write_config(&fleet, "node-agent");
    let agent = Program::new("agent", &agent, fleet.dir.join("agent.log"))
        .arg("--config")
        .arg(config)
        .args(connection_of(&creds))
        .start();
    wait::until("the agent warns at its start", SOON, async || {
        let log = agent.log();
        let parts = ["lacks rights", "node.hold", "node.tell", "--controllers a.csi --replace"];
        if parts.iter().all(|part| log.contains(part)) { Ok(()) } else { Err(log) }
    })
    .await;
    drop(agent);

    // An identity of another role, and one that the server does not accept.
    let other_identity = fleet.creds(Role::Gc);
    let (code, text) = check(&fleet, "claim", &connection(&fleet, &other_identity));
    assert!(code == 1 && text.contains("$KV.berth-volumes.>"), "{text}");
    assert!(text.contains("next: berth access service claim --replace"), "{text}");
    let mut elsewhere = Fleet::make(&["n1.example"]);
    let foreign = elsewhere.creds(Role::Claim);
    let (code, text) = check(&fleet, "claim", &connection(&fleet, &foreign));
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("of another operator; get new ones"), "{text}");
}

#[tokio::test]
async fn credentials_without_rights_in_them_are_not_checked() {
    let server = berth_harness::nats::Server::start().await;
    let fleet = Fleet::make(&["n1.example"]);
    let connection = ["--nats".to_owned(), server.url(), "--insecure".to_owned()];
    let (code, text) = check(&fleet, "gc", &connection);
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("not checked: ") && text.contains("ok: connected"), "{text}");
}

/// Runs `berth` as an operator; returns its exit code and what it prints.
fn berth(connection: &[String], args: &[&str]) -> (i32, String) {
    let Output { status, stdout, stderr } =
        Command::new(binary("berth")).args(args).args(connection).output().unwrap();
    let text = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    (status.code().unwrap(), text.into_owned())
}

/// Waits until `berth` prints all of these parts.
async fn prints(connection: &[String], args: &[&str], parts: &[&str]) {
    wait::until(&format!("berth {args:?} prints {parts:?}"), SOON, async || {
        let (_, text) = berth(connection, args);
        if parts.iter().all(|part| text.contains(part)) { Ok(()) } else { Err(text) }
    })
    .await;
}

/// An upgraded service with the identity of an older version, until its token is signed again.
#[tokio::test]
async fn rights_that_a_running_service_lacks_are_told_and_its_events_come_later() {
    let mut fleet = Fleet::start(&["n1.example"]).await;
    let grants =
        Grants { operator: true, ..Grants::parse_namespaces(&["*=read,write,mount"]).unwrap() };
    let ops = fleet.creds(Role::User { name: "ops".to_owned(), grants });
    let ops = connection(&fleet, &ops);
    let seed = fs::read_to_string(fleet.directory.path().join("account.seed")).unwrap();
    let keys = (Key::from_seed(&seed, KeyKind::Account).unwrap(), Key::make(KeyKind::User));
    let sign = |change: &dyn Fn(&mut Permissions)| {
        sign_for(&fleet, &Role::Claim, (&keys.0, &keys.1), change)
    };
    let creds = sign(&|permissions| {
        permissions.publish_allow.retain(|subject| !subject.starts_with("berth.v1.event."));
        permissions.subscribe_allow.retain(|subject| !subject.contains(".volume.status."));
    });
    let state = fleet.dir.join("claim-state");
    fs::create_dir(&state).unwrap();
    let claim = Program::new("claim", binary("berth-claim"), fleet.dir.join("claim.log"))
        .args(connection(&fleet, &creds))
        .env("STATE_DIRECTORY", state)
        .start();
    // Refused requests are events.
    for alloc in ["a1", "a2", "a3"] {
        let refused = format!("no alloc {alloc}");
        let stop = ["alloc", "stop", alloc];
        wait::until(&refused, SOON, async || {
            let (_, text) = berth(&ops, &stop);
            if text.contains("BERTH0301") { Ok(()) } else { Err(text) }
        })
        .await;
    }
    let identity = "identity claim lacks 4 rights that its version needs";
    let next = "berth access service claim --replace   # ";
    let right = "(volume.status)";
    prints(&ops, &["doctor", "--quiet"], &[identity, right, "3 refused events wait", next]).await;
    prints(&ops, &["why", "volume/v"], &["may not receive volume.status", next]).await;
    let status = ["volume", "status", "v", "--timeout", "2s"];
    prints(&ops, &status, &["may not receive volume.status", next]).await;
    let count = |text: &str| claim.log().matches(text).count();
    assert_eq!(count("refuses events of this process"), 1, "{}", claim.log());
    assert_eq!(count("permissions do not allow"), 2, "{}", claim.log());

    // A restart, which a new key needs, loses no event.
    claim.terminate().await;
    claim.restart();
    prints(&ops, &["doctor", "--quiet"], &[identity, "3 refused events wait"]).await;

    sign(&|_| {});
    fleet.servers[0].daemon.restart();
    fleet.await_ready().await;
    let args = ["events", "--kind", "request"];
    prints(&ops, &args, &["a1", "a2", "a3"]).await;
    let (_, text) = berth(&ops, &args);
    let position_of = |alloc: &str| text.find(alloc).unwrap();
    assert!(
        position_of("a1") < position_of("a2") && position_of("a2") < position_of("a3"),
        "{text}"
    );
    let (_, text) = berth(&ops, &["doctor"]);
    assert!(!text.contains("lacks"), "{text}");
    assert_eq!(count("had refused are sent"), 1, "{}", claim.log());
}
