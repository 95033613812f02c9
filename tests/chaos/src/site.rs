//! The system under chaos: every process, and a cable between each client and each nats-server.
//!
//! Owns: starting everything with real configuration, hurting one process, and healing it again.
//! Promises: what was hurt can always be healed, and nothing outlives the site. Never: looks at
//! what comes of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use berth_bus::{Bus, Config};
use berth_contract::bucket::{self, BucketSpec};
use berth_harness::dirs::Dir;
use berth_harness::nats::{Cluster, Server};
use berth_harness::process::{Daemon, Program, binary};
use berth_harness::proxy::Proxy;
use serde_json::{Value, json};

use crate::plan::{Kind, PLUGINS, Shape, Target, VOLUMES};

/// How long a plugin may take before its agent lets the next call at the volume: longer than any
/// fault that lets a call go on later, shorter than a run waits at its end.
pub const PLUGIN_PATIENCE: Duration = Duration::from_secs(25);

/// The running system.
pub struct Site {
    /// What it is made of.
    pub shape: Shape,
    /// The test's own connection, which nothing is done to.
    pub bus: Bus,
    daemons: BTreeMap<Target, Daemon>,
    cables: BTreeMap<Target, Vec<Proxy>>,
    nats: Nats,
    // Last: it undoes what the processes left.
    dir: Dir,
}

enum Nats {
    One(Server),
    Three(Cluster),
}

impl Nats {
    async fn start(servers: usize) -> Self {
        if servers == 1 {
            Self::One(Server::start().await)
        } else {
            // Who is given cables stays on them.
            Self::Three(Cluster::start_unadvertised(servers).await)
        }
    }

    fn all(&self) -> &[Server] {
        match self {
            Self::One(server) => std::slice::from_ref(server),
            Self::Three(cluster) => cluster.servers(),
        }
    }

    fn url(&self) -> String {
        self.all().iter().map(Server::url).collect::<Vec<_>>().join(",")
    }
}

/// A volume's directory, or image, is made before anything is started.
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
    /// Starts everything; nothing is waited for but the bus.
    pub async fn start(shape: Shape) -> Self {
        let dir = Dir::new("chaos");
        for kind in &VOLUMES {
            provision(&dir, kind);
        }
        let nats = Nats::start(shape.servers).await;
        let bus = Bus::connect(Config::new([nats.url()], "chaos")).await;
        let bus = bus.expect("the test reaches the bus");
        for spec in bucket::ALL.iter().filter(|spec| spec.history > 1) {
            // Whoever opens a bucket that is there takes it as it is.
            let spec = BucketSpec { marker_ttl: Duration::from_secs(shape.marker_ttl_s), ..*spec };
            let copies = u8::try_from(shape.servers).expect("there are few servers");
            bus.bucket(&spec, copies).await.expect("the bucket can be made");
        }
        let (mut daemons, mut cables) = (BTreeMap::new(), BTreeMap::new());
        for target in Target::all(shape) {
            let mut url = nats.url();
            if target.is_client() {
                let mut own = Vec::new();
                for server in nats.all() {
                    own.push(Proxy::start(server.address()).await);
                }
                url = own.iter().map(Proxy::url).collect::<Vec<_>>().join(",");
                cables.insert(target, own);
            }
            if let Some(program) = program(&dir, shape, target, &url) {
                daemons.insert(target, program.start());
            }
        }
        Self { shape, bus, daemons, cables, nats, dir }
    }

    /// A process.
    pub fn daemon(&self, target: Target) -> &Daemon {
        match target {
            Target::Nats(at) => self.nats.all()[at].daemon(),
            other => &self.daemons[&other],
        }
    }

    /// What leads a client to the bus: one for each server.
    pub fn cables(&self, target: Target) -> &[Proxy] {
        self.cables.get(&target).map_or(&[], Vec::as_slice)
    }

    /// Plants faults in a driver; the file is read at each call.
    pub fn plant(&self, target: Target, faults: &Value) {
        let file = self.dir.join(format!("{target}.faults"));
        let fresh = file.with_extension("new");
        std::fs::write(&fresh, faults.to_string()).expect("faults can be written");
        std::fs::rename(&fresh, &file).expect("faults can be put in place");
    }

    /// Everything the run leaves, but for the servers' stores.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The call logs of a plugin's drivers, as far as there are any.
    pub fn call_logs(&self, plugin: usize) -> Vec<PathBuf> {
        let drivers = (0..self.shape.nodes).map(|node| Target::Driver { plugin, node });
        let logs = drivers.map(|driver| self.dir.join(format!("{driver}.calls")));
        logs.filter(|log| log.exists()).collect()
    }

    /// The judge's word on a plugin's logs.
    pub fn judge(&self, plugin: usize) -> Output {
        std::process::Command::new(binary("berth-csi-dev"))
            .arg("judge")
            .args(self.call_logs(plugin))
            .output()
            .expect("the judge runs")
    }

    /// What the storage says is in use: a line for each volume that is.
    pub fn in_use(&self, plugin: usize) -> Vec<Value> {
        let listed = std::process::Command::new(binary("berth-csi-dev"))
            .args(["provision", "--list", "--backend"])
            .arg(backend(self.dir.path(), plugin))
            .output()
            .expect("the driver runs");
        let text = String::from_utf8_lossy(&listed.stdout);
        let volumes = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let empty = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
        volumes.filter(|one| !empty(&one["attachments"]) || !empty(&one["nodes"])).collect()
    }
}

/// How each process is run; none for a nats-server, which is started otherwise.
fn program(dir: &Dir, shape: Shape, target: Target, url: &str) -> Option<Program> {
    let (binary, own) = match target {
        Target::Nats(_) => return None,
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
    let mut text = own;
    // Its own fields first: in TOML what follows a table belongs to it.
    write!(
        text,
        "\n[nats]\nurl = \"{url}\"\nreplicas = {}\n[log]\nfilter = \"debug,async_nats=warn\"\n",
        shape.servers
    )
    .expect("text can be written");
    let file = dir.join(format!("{target}.toml"));
    std::fs::write(&file, text).expect("the configuration can be written");
    Some(named(dir, target, binary).arg("--config").arg(file))
}

fn named(dir: &Dir, target: Target, program: &str) -> Program {
    Program::new(&target.to_string(), binary(program), dir.join(format!("{target}.log")))
}

fn agent(dir: &Dir, node: usize) -> String {
    let mut text = format!(
        "node = \"n{}\"\nstate_dir = \"{}\"\nlease_ttl_s = 3\nprobe_interval_ms = 300\n\
         drain_ms = 1000\nfinish_releases_ms = 3000\nplugin_patience_ms = {}\n",
        node + 1,
        dir.join(format!("n{}", node + 1)).display(),
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
    named(dir, target, "berth-csi-dev")
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
}

/// What the drivers call a node.
pub fn external_node(node: usize) -> String {
    format!("external-n{}", node + 1)
}

/// A volume's document. `change` makes one update differ from another.
pub fn document(kind: &Kind, change: usize) -> Value {
    let attachment = if kind.block { "block-device" } else { "file-system" };
    json!({
        "id": kind.id,
        "plugin": PLUGINS[kind.plugin],
        "name": format!("change {change}"),
        "capability": [{"access": kind.access, "attachment": attachment}],
    })
}
