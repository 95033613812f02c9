//! The shipped systemd units, and the messages of services to a service manager.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, NodeId};
use berth_harness::dirs::Dir;
use berth_harness::nats::{self, NatsServers, Server};
use berth_harness::process::{Daemon, Program, binary};
use berth_harness::{repository, wait};
use berth_service::clock;
use serde_json::{Value, json};

const SERVICES: [&str; 6] =
    ["claim", "plugin-registry", "volumewatcher", "gc", "node-agent", "docker"];
const SOON: Duration = Duration::from_secs(60);

fn units() -> Vec<PathBuf> {
    let dir = fs::read_dir(repository().join("deploy/systemd")).unwrap();
    let paths = dir.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "service")).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// The directives of a unit, without comments.
fn directives(unit: &str) -> String {
    unit.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The example bus starts with the configuration installed beside it. That configuration stores
/// data where the unit allows writes.
#[test]
fn the_bus_takes_its_unit_and_its_configuration_together() {
    let unit = repository().join("deploy/systemd/nats-server.service");
    let unit = fs::read_to_string(unit).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words = command.strip_prefix("/usr/bin/nats-server ").unwrap();
    assert!(unit.contains("\nStateDirectory=nats-server\n"), "{unit}");
    let sample = repository().join("deploy/nats/nats.conf");
    let text = fs::read_to_string(&sample).unwrap();
    assert!(text.contains(r#"store_dir: "/var/lib/nats-server""#), "{text}");
    // `berth access` writes the host's own file.
    let dir = Dir::new("nats-conf");
    let path = dir.join("nats.conf");
    fs::write(&path, text).unwrap();
    fs::create_dir(dir.join("nats")).unwrap();
    fs::write(dir.join("nats/host.conf"), "server_name: n1\n").unwrap();
    let words = words.replace("/etc/berth/nats.conf", path.to_str().unwrap());
    // `-t` reads the configuration like a start, and exits.
    let checked = Command::new(nats::program()).arg("-t").args(words.split(' ')).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let dir = Dir::new("units");
    let mut files = Vec::new();
    for path in units() {
        let mut unit = fs::read_to_string(&path).unwrap();
        // `systemd-analyze` checks that the programs exist, and they are not installed here.
        unit = unit.replace("/usr/bin/nats-server", nats::program().to_str().unwrap());
        for program in SERVICES.map(|service| format!("berth-{service}")) {
            let installed = format!("/usr/bin/{program} ");
            unit = unit.replace(&installed, &format!("{} ", binary(&program).display()));
        }
        let berth = format!("{} run", binary("berth").display());
        unit = unit.replace("/usr/bin/berth run", &berth);
        assert!(!directives(&unit).contains("=/usr/bin/"), "{unit}");
        // A template is verified as one of its instances.
        let file = dir.join(name(&path).replace("@.", "@web."));
        fs::write(&file, unit).unwrap();
        files.push(file);
    }
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(files)
        .output()
        .expect("systemd-analyze of the package systemd is installed");
    let output = [verified.stdout, verified.stderr].concat();
    assert!(verified.status.success() && output.is_empty(), "{}", String::from_utf8_lossy(&output));
}

#[test]
fn every_service_has_a_unit_that_waits_until_it_is_ready() {
    for service in SERVICES {
        let path = repository().join(format!("deploy/systemd/berth-{service}.service"));
        let unit = fs::read_to_string(path).unwrap();
        let start =
            format!("ExecStart=/usr/bin/berth-{service} --config /etc/berth/{service}.toml");
        for line in ["Type=notify", "Restart=always", "StartLimitIntervalSec=0", &start] {
            assert!(
                unit.lines().any(|present| present == line),
                "{service} has no {line}:\n{unit}"
            );
        }
    }
}

/// Each service has its own user and its own files, so an intruder in one service has no other's.
#[test]
fn a_service_is_handed_its_own_files_and_shares_its_user_with_none() {
    let unit_of = |service: &str| {
        let path = repository().join(format!("deploy/systemd/berth-{service}.service"));
        directives(&fs::read_to_string(path).unwrap())
    };
    for service in ["claim", "plugin-registry", "volumewatcher", "gc"] {
        let unit = unit_of(service);
        assert!(unit.contains("\nDynamicUser=yes\n") && !unit.contains("\nUser="), "{unit}");
        let mut expected = vec![format!("{service}.toml"), format!("{service}.creds")];
        expected.extend((service == "claim").then(|| "secrets.key".to_owned()));
        let load = |file: &String| format!("LoadCredential={file}:/etc/berth/{file}");
        let expected: Vec<String> = expected.iter().map(load).collect();
        let loaded: Vec<&str> =
            unit.lines().filter(|line| line.starts_with("LoadCredential=")).collect();
        assert_eq!(loaded, expected, "{service}");
    }
}

/// Settings that give a service its own mount namespace, so that its mounts never reach the host
/// (systemd.exec(5)).
const OWN_NAMESPACE: &[&str] = &[
    "PrivateMounts",
    "PrivateTmp",
    "PrivateDevices",
    "PrivateUsers",
    "PrivateIPC",
    "MountFlags",
    "ProtectSystem",
    "ProtectHome",
    "ProtectProc",
    "ProcSubset",
    "ProtectKernel",
    "ProtectControlGroups",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "InaccessiblePaths",
    "ExecPaths",
    "NoExecPaths",
    "TemporaryFileSystem",
    "BindPaths",
    "BindReadOnlyPaths",
    "RootDirectory",
    "RootImage",
    "MountImages",
    "ExtensionImages",
    "ExtensionDirectories",
    "MountAPIVFS",
    "DynamicUser",
    "LogNamespace",
];

#[test]
fn what_the_agent_mounts_reaches_the_host() {
    // Docker's plugin reads the agent's mounts.
    for service in ["node-agent", "docker"] {
        let path = repository().join(format!("deploy/systemd/berth-{service}.service"));
        let unit = directives(&fs::read_to_string(path).unwrap());
        for setting in OWN_NAMESPACE {
            assert!(
                !unit.contains(&format!("\n{setting}")),
                "{setting} in berth-{service}.service"
            );
        }
    }
}

#[test]
fn what_is_installed_is_whole_and_keeps_configuration_that_is_there() {
    let (dir, programs) = (Dir::new("install"), binary("berth"));
    for service in SERVICES {
        binary(&format!("berth-{service}"));
    }
    let install = || {
        let script = repository().join("deploy/systemd/install");
        let run = Command::new(script)
            .arg(programs.parent().unwrap())
            .env("DESTDIR", dir.path())
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
    };
    install();
    for unit in units() {
        assert!(dir.join("usr/lib/systemd/system").join(name(&unit)).is_file(), "{unit:?}");
    }
    let config = dir.join("etc/berth/claim.toml");
    fs::write(&config, "mine").unwrap();
    install();
    assert_eq!(fs::read_to_string(config).unwrap(), "mine");
    assert!(dir.join("etc/berth/node-agent.toml").is_file());
    assert!(dir.join("usr/bin/berth").is_file());
}

/// A service manager's end of the notify socket: the messages since the last read.
struct Manager(UnixDatagram);

impl Manager {
    fn received(&self) -> Vec<String> {
        let mut messages = Vec::new();
        let mut text = [0; 64];
        loop {
            match self.0.recv(&mut text) {
                Ok(length) => messages.push(String::from_utf8_lossy(&text[..length]).into_owned()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                    return messages;
                }
            }
        }
    }

    /// Waits until the service has sent this state.
    async fn receives(&self, state: &str, service: &Daemon) {
        wait::until(&format!("the service sends {state}"), SOON, async || {
            assert!(service.is_running(), "{}", service.log());
            let messages = self.received();
            if messages.iter().any(|message| message == state) {
                Ok(())
            } else {
                Err(service.log())
            }
        })
        .await;
    }
}

/// How many connections to this port of this host are open, unanswered ones included.
fn connections(port: u16) -> usize {
    let remote = format!("0100007F:{port:04X} 01");
    fs::read_to_string("/proc/net/tcp").unwrap().matches(&remote).count()
}

fn start(service: &str, server: &Server, dir: &Dir) -> (Daemon, Manager) {
    let socket = dir.join(format!("{service}.notify"));
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_nonblocking(true).unwrap();
    let fields = match service {
        "node-agent" => format!("node = 'n1'\nstate_dir = '{}'\n", dir.join("a").display()),
        "docker" => format!(
            "node = 'n1'\nstate_dir = '{}'\nsocket = '{}'\n",
            dir.join("d").display(),
            dir.join("berth.sock").display()
        ),
        _ => String::new(),
    };
    let daemon = Program::service(&format!("berth-{service}"), service, dir)
        .configured(&fields)
        .on_bus(server.url(), 1)
        .env("NOTIFY_SOCKET", socket)
        .env("WATCHDOG_USEC", "200000")
        .start();
    (daemon, Manager(manager))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_says_that_it_is_ready_only_once_it_answers() {
    let (server, dir) = (Server::start().await, Dir::new("notify"));
    let bus =
        Bus::connect(berth_bus::Config::new([server.url()], "test").insecure()).await.unwrap();
    let node = NodeId::new("n1").unwrap();
    let cases = [
        ("claim", Some(verb::VolumeList::subject(&Namespace::default()))),
        ("plugin-registry", Some(verb::NodeStatus::subject(&()))),
        (
            "node-agent",
            Some(verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of(node.clone()))),
        ),
        ("volumewatcher", None),
        ("gc", None),
        ("docker", None),
    ];
    for (service, subject) in cases {
        // An agent sends requests to the registry and the claim service at its start.
        let beside = Dir::new("beside");
        let needed = if service == "node-agent" { &["plugin-registry", "claim"][..] } else { &[] };
        let start_needed = |name: &&str| {
            let program = Program::service(&format!("berth-{name}"), name, &beside);
            program.on_bus(server.url(), 1).start()
        };
        let _needed: Vec<Daemon> = needed.iter().map(start_needed).collect();
        server.pause();
        let before = connections(server.port());
        let (daemon, manager) = start(service, &server, &dir);
        wait::until("the service has connected to the silent bus", SOON, async || {
            let now = connections(server.port());
            if now > before { Ok(()) } else { Err(daemon.log()) }
        })
        .await;
        assert_eq!(manager.received(), Vec::<String>::new(), "{service}: {}", daemon.log());
        server.resume();
        manager.receives("READY=1", &daemon).await;
        if let Some(subject) = subject {
            // One request without a retry: units that start after this service rely on its answer.
            let call = Call::within(clock::begin_trace(), SOON);
            let answer = bus.request::<Value>(&subject, &json!({}), &call).await;
            answer.unwrap_or_else(|error| panic!("{service}: {error}: {}", daemon.log()));
        }
        manager.receives("WATCHDOG=1", &daemon).await;
        assert!(daemon.terminate().await.success(), "{service}: {}", daemon.log());
        assert!(manager.received().iter().any(|message| message == "STOPPING=1"), "{service}");
    }
}

/// With two of three servers down, an agent once did not end at a stop while it waited for them at
/// its start, and the service manager killed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_waits_for_a_quorum_at_its_start_ends_when_it_is_told_to() {
    let (cluster, dir) = (NatsServers::start(3).await, Dir::new("notify"));
    let [only, others @ ..] = cluster.servers() else { panic!("there are three") };
    others.iter().for_each(Server::kill9);
    for service in ["claim", "plugin-registry", "node-agent", "volumewatcher", "gc"] {
        let (daemon, manager) = start(service, only, &dir);
        wait::until("the service has reached the bus", SOON, async || {
            if daemon.log().contains("started") { Ok(()) } else { Err(daemon.log()) }
        })
        .await;
        let status = daemon.terminate().await;
        assert!(status.success(), "{service}: {status}: {}", daemon.log());
        // An agent opens nothing at its start: it waits for its lease.
        let ended = if service == "node-agent" { "ended" } else { "ended before it served" };
        assert!(daemon.log().contains(ended), "{service}: {}", daemon.log());
        assert!(!manager.received().iter().any(|message| message == "READY=1"), "{service}");
    }
}
