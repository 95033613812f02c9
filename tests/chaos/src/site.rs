//! The system under chaos: every process, and a cable between each client and each nats-server.
//!
//! Owns: the start of everything with real configuration, and the ways to hurt a process and to
//! heal it. Promises: whatever was hurt can be healed, and nothing outlives the site. Never: judges
//! what happens.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_bus::Bus;
use berth_contract::bucket;
use berth_domain::VolumeId;
use berth_harness::dirs::{Dir, Disk, mounts_beneath};
use berth_harness::nats::{Login, NatsOptions, NatsServers, Server};
use berth_harness::process::{Daemon, Program, binary, clock};
use berth_harness::proxy::Proxy;
use berth_harness::storage;
use serde_json::{Value, json};

use crate::identity::{self, Identities};
use crate::plan::{Kind, PLUGINS, SMALLEST, Shape, Target, VOLUMES};

/// How long a plugin may take before its agent lets the next call at the volume. This is longer
/// than any fault after which a call goes on, and shorter than a run waits at its end.
pub const PLUGIN_PATIENCE: Duration = Duration::from_secs(25);

/// The size of the disk of each store and each journal, in bytes. A run writes less. A server
/// offers streams three quarters of the free space, and the stream of events reserves 256 MiB.
const DISK_BYTES: u64 = 1 << 30;

/// The running system.
pub struct Site {
    /// The number of each kind of process in it.
    pub shape: Shape,
    /// The test's own connection, which no fault hits.
    pub bus: Bus,
    admin: Login,
    daemons: BTreeMap<Target, Daemon>,
    cables: BTreeMap<Target, Vec<Proxy>>,
    /// The nats-servers.
    pub nats: NatsServers,
    journals: Vec<Disk>,
    // It is dropped last, because it undoes what the processes left.
    dir: Dir,
}

/// Makes the directory or the image of a volume. That happens before any process starts.
fn provision(dir: &Dir, kind: &Kind) {
    let made = std::process::Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", kind.id, "--backend"])
        .arg(backend(dir.path(), kind.plugin))
        .args(kind.backing)
        .output()
        .expect("the driver runs");
    assert!(made.status.success(), "{made:?}");
}

fn backend(dir: &Path, plugin: usize) -> PathBuf {
    dir.join(format!("backend-{}", plugin + 1))
}

impl Site {
    /// Starts everything, and waits for the bus only.
    pub async fn start(shape: Shape) -> Self {
        let dir = Dir::new("chaos");
        for kind in &VOLUMES {
            provision(&dir, kind);
        }
        let journals = (0..shape.nodes)
            .map(|node| Disk::mount(state_dir(&dir, node).join("journal"), DISK_BYTES))
            .collect();
        let identities = Identities::make(dir.path());
        let (extra, admin) = (&identities.server_config(), identities.admin());
        let (login, disk_bytes, breakable) = (Some(&admin), Some(DISK_BYTES), true);
        let options = NatsOptions { extra, login, disk_bytes, breakable, ..NatsOptions::default() };
        let nats = NatsServers::start_with(shape.servers, options).await;
        let bus = Bus::connect(identity::config(nats.url(), &admin)).await;
        let bus = bus.expect("the test reaches the bus");
        for spec in bucket::ALL.iter().filter(|spec| spec.history > 1) {
            // A service takes an existing bucket as it is.
            let mut spec = *spec;
            if shape.is_purged_soon() {
                (spec.marker_ttl, spec.purged_after) = (Duration::from_secs(shape.marker_ttl_s), 0);
            }
            bus.bucket(&spec, nats.copies()).await.expect("the bucket can be made");
        }
        let (mut daemons, mut cables) = (BTreeMap::new(), BTreeMap::new());
        for target in Target::processes(shape) {
            let mut url = nats.url();
            if target.is_client() {
                let mut own = Vec::new();
                for server in nats.servers() {
                    own.push(Proxy::start(server.address()).await);
                }
                url = own.iter().map(Proxy::url).collect::<Vec<_>>().join(",");
                cables.insert(target, own);
            }
            if let Some(mut program) = program(&dir, shape, target, &url, nats.copies()) {
                if let Some(login) = identities.process(target) {
                    program = program.identified(&login);
                }
                if target.has_clock() {
                    clock::set(&clock_file(&dir, target), 0);
                    program = program.envs(clock::settable(&clock_file(&dir, target)));
                }
                daemons.insert(target, program.start());
            }
        }
        Self { shape, bus, admin, daemons, cables, nats, journals, dir }
    }

    /// The command-line tool with the login of an operator. It uses none of the cables.
    pub fn berth(&self) -> tokio::process::Command {
        let Login { creds_file, ca_file } = &self.admin;
        let mut berth = tokio::process::Command::new(binary("berth"));
        berth.env("BERTH_NATS_URL", self.nats.url());
        berth.env("BERTH_CREDS", creds_file).env("BERTH_TLSCA", ca_file);
        berth
    }

    /// The process of a target.
    pub fn daemon(&self, target: Target) -> &Daemon {
        match target {
            Target::Nats(at) => self.nats.servers()[at].daemon(),
            other => &self.daemons[&other],
        }
    }

    /// The cables of a client to the bus, one for each server.
    pub fn cables(&self, target: Target) -> &[Proxy] {
        self.cables.get(&target).map_or(&[], Vec::as_slice)
    }

    /// The disk of a store or a journal; `None` for other processes.
    pub fn disk(&self, target: Target) -> Option<&Disk> {
        match target {
            Target::Agent(node) => self.journals.get(node),
            Target::Nats(at) => self.nats.servers()[at].disk(),
            _ => None,
        }
    }

    /// A server that answers without a cable; `None` if none does.
    pub fn server(&self) -> Option<&Server> {
        self.nats.servers().iter().find(|server| server.daemon().is_running())
    }

    /// Sets a process's clock this many milliseconds ahead of the machine's.
    pub fn set_clock(&self, target: Target, ahead_ms: i64) {
        clock::set(&clock_file(&self.dir, target), ahead_ms);
    }

    /// Fences a node at the storage of every plugin, or lifts the fences.
    pub fn fence(&self, node: usize, fenced: bool) {
        for plugin in 0..PLUGINS.len() {
            let status = std::process::Command::new(binary("berth-csi-dev"))
                .args(["fence", "--node-id", &external_node(node), "--backend"])
                .arg(backend(self.dir.path(), plugin))
                .arg("--log")
                .arg(self.dir.join(format!("{}.calls", Target::Driver { plugin, node })))
                .args((!fenced).then_some("--lift"))
                .output()
                .expect("the driver runs");
            assert!(status.status.success(), "{status:?}");
        }
    }

    /// The mounts of volumes on a node, or on all nodes.
    pub fn mounts(&self, node: Option<usize>) -> Vec<PathBuf> {
        let root = node.map_or(self.dir.path().to_owned(), |node| state_dir(&self.dir, node));
        let is_disk = |mount: &PathBuf| self.journals.iter().any(|disk| disk.path() == mount);
        mounts_beneath(&root).into_iter().filter(|mount| !is_disk(mount)).collect()
    }

    /// Plants faults in a driver, which reads them at each call.
    pub fn plant(&self, target: Target, faults: &Value) {
        let file = self.dir.join(format!("{target}.faults"));
        let fresh = file.with_extension("new");
        std::fs::write(&fresh, faults.to_string()).expect("faults can be written");
        std::fs::rename(&fresh, &file).expect("faults can be put in place");
    }

    /// The directory of everything that the run leaves, except the servers' stores.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The call logs of a plugin's drivers that exist.
    pub fn call_logs(&self, plugin: usize) -> Vec<PathBuf> {
        let drivers = (0..self.shape.nodes).map(|node| Target::Driver { plugin, node });
        let logs = drivers.map(|driver| self.dir.join(format!("{driver}.calls")));
        logs.filter(|log| log.exists()).collect()
    }

    /// What the storage of a plugin lists as in use.
    pub fn in_use(&self, plugin: usize) -> Vec<Value> {
        storage::in_use(&self.backend(plugin))
    }

    /// The directory of the storage of a plugin.
    pub fn backend(&self, plugin: usize) -> PathBuf {
        backend(self.dir.path(), plugin)
    }
}

/// How a process is run; `None` for a nats-server, which is started elsewhere.
fn program(dir: &Dir, shape: Shape, target: Target, url: &str, copies: u8) -> Option<Program> {
    let (program, own) = match target {
        Target::Nats(_) | Target::Link(..) | Target::Records => return None,
        Target::Driver { plugin, node } => return Some(driver(dir, shape, plugin, node)),
        Target::Claim(_) => (
            "berth-claim",
            "[policy]\ncall_timeout_ms = 2000\nclock_margin_ms = 300\nabandoned_after_ms = 3000\n\
             place_kept_ms = 12000\nretry_first_ms = 200\nretry_max_ms = 2000\n"
                .to_owned(),
        ),
        Target::Registry(_) => ("berth-plugin-registry", String::new()),
        Target::Watcher(_) => {
            ("berth-volumewatcher", "[watcher]\nrescan_ms = 1000\ndrain_ms = 500\n".to_owned())
        }
        Target::Gc(_) => ("berth-gc", "[gc]\ninterval_ms = 1000\ngrace_ms = 1000\n".to_owned()),
        Target::Agent(node) => ("berth-node-agent", agent(dir, node)),
    };
    let program = Program::service(program, &target.to_string(), dir).configured(&own);
    Some(program.on_bus(url, copies).env("BERTH__LOG__FILTER", "info,berth=debug"))
}

/// The directory of a node's agent, with its journal and its mounts.
fn state_dir(dir: &Dir, node: usize) -> PathBuf {
    dir.join(format!("n{}", node + 1))
}

fn clock_file(dir: &Dir, target: Target) -> PathBuf {
    dir.join(format!("{target}.clock"))
}

fn agent(dir: &Dir, node: usize) -> String {
    let mut text = format!(
        "node = \"n{}\"\nstate_dir = \"{}\"\nlease_ttl_s = 3\nprobe_interval_ms = 300\n\
         drain_ms = 1000\nfinish_releases_ms = 3000\nplugin_patience_ms = {}\n",
        node + 1,
        state_dir(dir, node).display(),
        PLUGIN_PATIENCE.as_millis()
    );
    for (plugin, id) in PLUGINS.iter().enumerate() {
        let socket = dir.join(format!("{}.sock", Target::Driver { plugin, node }));
        write!(text, "\n[[plugin]]\nid = \"{id}\"\nsocket = \"{}\"\n", socket.display())
            .expect("text can be written");
    }
    text
}

fn driver(dir: &Dir, shape: Shape, plugin: usize, node: usize) -> Program {
    let target = Target::Driver { plugin, node };
    let file = |kind: &str| dir.join(format!("{target}.{kind}"));
    Program::service("berth-csi-dev", &target.to_string(), dir)
        .args(["serve", "--driver-name", PLUGINS[plugin], "--endpoint"])
        .arg(format!("unix://{}", file("sock").display()))
        .args(["--node-id".to_owned(), external_node(node)])
        .arg("--backend")
        .arg(backend(dir.path(), plugin))
        .arg("--log")
        .arg(file("calls"))
        .arg("--faults")
        .arg(file("faults"))
        .args((plugin == 1).then_some(shape.lacks))
        .args(shape.lenient.then_some("--lenient"))
}

/// The name of a node at the drivers.
pub fn external_node(node: usize) -> String {
    format!("external-n{}", node + 1)
}

/// The document of a volume. `change` makes one update differ from another.
pub fn document(kind: &Kind, change: usize) -> Value {
    let attachment = if kind.block { "block-device" } else { "file-system" };
    json!({
        "id": kind.id,
        "plugin": PLUGINS[kind.plugin],
        "name": format!("change {change}"),
        "capability": [{"access": kind.access, "attachment": attachment}],
    })
}

/// The document that creates a volume of this kind.
pub fn creation(kind: &Kind, id: &VolumeId) -> Value {
    let mut document = json!({
        "id": id,
        "plugin": PLUGINS[kind.plugin],
        "size": SMALLEST,
        "capability": [{"access": kind.access, "attachment": "file-system"}],
    });
    if !kind.backing.is_empty() {
        document["parameters"] = json!({"backing": "image", "fs-type": "ext4"});
    }
    document
}
