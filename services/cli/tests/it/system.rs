//! A `berth dev` for one test.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_bus::{Config, Credentials, Tls};
use berth_contract::actor::Actor;
use berth_harness::dirs::Dir;
use berth_harness::process::{Daemon, Program, binary};
use berth_harness::{judge, nats, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::berth::{self, Ran};

/// Deadline of each wait of a test.
pub const SOON: Duration = Duration::from_secs(60);

/// The whole system. The test that started it must stop it.
pub struct System {
    pub daemon: Daemon,
    pub dir: Dir,
    nodes: usize,
}

impl System {
    /// Starts the system and waits until it reports that it is healthy.
    pub async fn start(nodes: usize) -> Self {
        Self::start_with(nodes, |_| Vec::new()).await
    }

    /// The same with more arguments, which may name files in its directory.
    pub async fn start_with(nodes: usize, more: impl FnOnce(&Dir) -> Vec<String>) -> Self {
        // The programs must exist, and be as new as their sources.
        for name in ["claim", "plugin-registry", "volumewatcher", "gc", "node-agent", "csi-dev"] {
            binary(&format!("berth-{name}"));
        }
        let dir = Dir::new("dev");
        let state = dir.join("s");
        let daemon = Program::new("berth dev", env!("CARGO_BIN_EXE_berth"), dir.join("dev.log"))
            .args(["dev", "--nodes", &nodes.to_string(), "--volume-timeout", "1500ms"])
            .arg("--dir")
            .arg(&state)
            .arg("--ready-file")
            .arg(dir.join("ready"))
            .args(more(&dir))
            .env("BERTH_NATS_SERVER", nats::program())
            .start();
        let system = Self { daemon, dir, nodes };
        system.ready().await;
        system
    }

    /// Waits until the system reports that it is healthy.
    pub async fn ready(&self) {
        wait::until("berth dev is healthy", SOON, async || {
            assert!(self.daemon.is_running(), "it ended: {}", self.daemon.log());
            fs::read_to_string(self.dir.join("ready")).map_err(|_| self.daemon.log())
        })
        .await;
    }

    /// The URL of its bus.
    pub fn url(&self) -> String {
        fs::read_to_string(self.dir.join("ready")).unwrap().trim().to_owned()
    }

    /// A file in its directory.
    pub fn state(&self, name: &str) -> PathBuf {
        self.dir.join("s").join(name)
    }

    /// Creates a volume at the storage and registers it.
    pub fn volume(&self, id: &str, access: &str) {
        self.volume_of("dev.berth", "backend", id, access);
    }

    /// The same with a plugin whose storage is in this directory.
    pub fn volume_of(&self, plugin: &str, backend: &str, id: &str, access: &str) {
        let backend = self.state(backend);
        let provision = Command::new(binary("berth-csi-dev"))
            .args(["provision", "--volume", id, "--backend"])
            .arg(backend)
            .output()
            .unwrap();
        assert!(provision.status.success(), "{provision:?}");
        let spec =
            format!("id = '{id}'\nplugin = '{plugin}'\n[[capability]]\naccess = '{access}'\n");
        let ran = self.run(&["volume", "register", "-"], &spec);
        assert_eq!(ran.code, 0, "{ran:?}");
    }

    /// The variables with which `berth` reaches the bus, as the user of `berth dev`, over TLS.
    pub fn connection(&self) -> [(&'static str, String); 4] {
        let file = |name: &str| self.state("access").join(name).display().to_string();
        [
            ("BERTH_NATS_URL", self.url()),
            ("BERTH_CREDS", file("creds/admin-dev.creds")),
            ("BERTH_TLSCA", file("ca.pem")),
            ("BERTH_INSECURE", "false".to_owned()),
        ]
    }

    /// The variables for the `nats` CLI.
    pub fn nats_variables(&self) -> [(&'static str, String); 3] {
        let [(_, url), (_, creds), (_, authority), _] = self.connection();
        [("NATS_URL", url), ("NATS_CREDS", creds), ("NATS_CA", authority)]
    }

    /// The settings for a test's own connection.
    pub fn bus_config(&self, name: &str) -> Config {
        let [(_, url), (_, creds), (_, authority), _] = self.connection();
        Config {
            credentials: Credentials::CredsFile(creds.into()),
            tls: Tls { ca_file: Some(authority.into()), client: None },
            actor: Actor::user("dev"),
            ..Config::new([url], name)
        }
    }

    /// Runs `berth` on this bus.
    pub fn berth(&self, args: &[&str]) -> Ran {
        self.run(args, "")
    }

    /// The same with this on stdin.
    pub fn run(&self, args: &[&str], stdin: &str) -> Ran {
        berth::run_with(&self.connection(), args, stdin)
    }

    /// Starts `berth` on this bus; the caller waits for it.
    pub fn spawn(&self, args: &[&str]) -> Child {
        berth::command(args)
            .envs(self.connection())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Waits until these are the claims on a volume, each as `state alloc`.
    pub async fn claims_become(&self, volume: &str, expected: &[&str]) {
        wait::until(&format!("{volume} has the claims {expected:?}"), SOON, async || {
            let ran = self.berth(&["claim", "status", "--volume", volume, "--json"]);
            let reply: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_default();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let claims = reply["claims"].as_array().cloned().unwrap_or_default();
            let claims_found: Vec<String> = claims
                .iter()
                .map(|claim| format!("{} {}", text(&claim["state"]), text(&claim["alloc"])))
                .collect();
            if claims_found == expected { Ok(()) } else { Err(format!("{ran:?}")) }
        })
        .await;
    }

    /// The name and pid of every process.
    pub fn processes(&self) -> Vec<(String, i32)> {
        let mut processes: Vec<(String, i32)> = fs::read_dir(self.state("pids"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter_map(|path| {
                let name = path.file_stem()?.to_str()?.to_owned();
                Some((name, fs::read_to_string(&path).ok()?.trim().parse().ok()?))
            })
            .collect();
        processes.sort();
        processes
    }

    /// Stops the system. All its processes and mounts must be gone, and the judge must find no
    /// breach of CSI.
    pub async fn stop(self) {
        let processes = self.processes();
        let status = self.daemon.terminate().await;
        assert!(status.success(), "{status}: {}", self.daemon.log());
        for (name, pid) in processes {
            assert!(!is_running(pid), "{name} is left, pid {pid}");
        }
        let logs = (1..=self.nodes).map(|node| self.state(&format!("calls/n{node}.jsonl")));
        judge::assert_right(logs);
        let left_mounts = berth_harness::dirs::mounts_beneath(self.dir.path());
        assert!(left_mounts.is_empty(), "still mounted: {left_mounts:?}");
    }
}

/// Whether the process exists and is no zombie.
pub fn is_running(pid: i32) -> bool {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // Only these errors mean that the process is gone: ENOENT, or ESRCH while it exits.
        Err(error) if matches!(error.raw_os_error(), Some(2 | 3)) => return false,
        Err(error) => panic!("process {pid} cannot be looked at: {error}"),
    };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Sends a signal to a process of the test or of its system.
pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}
