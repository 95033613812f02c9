//! A whole system: nats-server, every service, and an agent and a driver for each node.
//!
//! **Owns** the processes, their configuration and their directory ([`System`], made by
//! [`Options`]). **Promises** that no process, mount or file is left when it is dropped.
//!
//! **Never** replaces a part that a user would run: each process is the real program.

mod docker;
mod for_refusals;
mod identities;
mod version;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use berth_access::Role;
use berth_bus::Bus;
use berth_contract::bucket::{self, BucketSpec};
use berth_harness::dirs::Dir;
use berth_harness::nats::{NatsOptions, NatsServers, Server};
use berth_harness::process::{Daemon, Program, binary, clock};
use berth_harness::proxy::{Proxy, Wire};
use berth_harness::wait;

use self::identities::Identities;
pub use self::version::Version;

/// Services log Berth's crates at debug and others at info. Debug lines of other crates, one for
/// each frame of a connection, would hide a failure.
const LOG_FILTER: &str = "info,berth=debug";

/// The id of the plugin in every test.
pub const PLUGIN: &str = "dev.berth";

/// How a system is built and configured.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch, named where it is set")]
pub struct Options {
    /// Nodes `n1`, `n2`, …, each with an agent and a driver.
    pub nodes: usize,
    /// NATS servers: 1 or 3.
    pub servers: usize,
    /// Processes with a wall clock of their own, and how far it is ahead at the start, in
    /// milliseconds. Needs `faketime`.
    pub clocks: &'static [(&'static str, i64)],
    /// The size of a disk below each server's store. None: the store has no disk of its own. Needs
    /// root.
    pub disk_bytes: Option<u64>,
    /// Whether the driver has a controller with publish and unpublish.
    pub attach: bool,
    /// Whether the driver stages.
    pub stage: bool,
    /// Whether the driver has a controller service at all.
    pub controller: bool,
    /// Replicas of each service, agents excluded.
    pub replicas: usize,
    /// How long a call may take.
    pub call_timeout_ms: u64,
    /// Interval of the watchers' rescans, in milliseconds.
    pub rescan_ms: u64,
    /// The first and the longest delay before a failed call is retried, in milliseconds.
    pub retry_ms: (u64, u64),
    /// How long a node counts as there after its agent was last heard of, in seconds.
    pub lease_ttl_s: u64,
    /// How long a waiter that sends no retry keeps its position in the queue, in milliseconds.
    pub place_kept_ms: u64,
    /// How long markers of deleted keys stay in buckets that keep history; an hour without it.
    pub marker_ttl: Option<Duration>,
    /// How many volumes the driver can attach to a node; 0 means no limit.
    pub max_volumes: u64,
    /// The secret that the driver requires in each call that takes secrets.
    pub secret: Option<&'static str>,
    /// Whose programs the processes run at first. It needs to be here.
    pub version: Version,
    /// Whether the bus has neither identities nor TLS, for a test that switches them on. With
    /// cables it has none either.
    pub plain: bool,
    /// Whether each process reaches the bus by its own cable, which can be cut, with a tripwire
    /// across all cables.
    pub cables: bool,
    /// Deadline of one request of the test, in milliseconds. Then the test retries.
    pub patience_ms: u64,
    /// The port of a collector of OTLP over HTTP on this host, where there is one.
    pub otlp: Option<u16>,
    /// Where set, each node has a `berth-docker` at [`System::docker_socket`]. The value is how
    /// long a mount may keep the engine waiting, in milliseconds.
    pub docker_ms: Option<u64>,
    /// Extra arguments for the driver of a node (from 0).
    pub driver: fn(usize) -> Vec<String>,
    /// The plugin's id of a node (from 0).
    pub external_node: fn(usize) -> String,
    /// Faults that every driver has from its start, as JSON.
    pub planted: Option<&'static str>,
    /// Healthy node services and controllers that the start waits for. None: as many as there are
    /// nodes.
    pub healthy: Option<(usize, usize)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 2,
            servers: 1,
            clocks: &[],
            disk_bytes: None,
            attach: true,
            stage: true,
            controller: true,
            replicas: 1,
            call_timeout_ms: 3_000,
            rescan_ms: 500,
            retry_ms: (200, 2_000),
            lease_ttl_s: 3,
            place_kept_ms: 20_000,
            marker_ttl: None,
            max_volumes: 0,
            secret: None,
            version: Version::This,
            plain: false,
            cables: false,
            patience_ms: 10_000,
            otlp: None,
            docker_ms: None,
            driver: |_| Vec::new(),
            external_node: |node| format!("external-n{}", node + 1),
            planted: None,
            healthy: None,
        }
    }
}

/// A process of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// nats-server; the only one, or the first of three.
    Nats,
    /// The first claim service.
    Claim,
    /// The first plugin registry.
    Registry,
    /// The second plugin registry, where there are two.
    SecondRegistry,
    /// The second claim service, where there are two.
    SecondClaim,
    /// The first volumewatcher.
    Watcher,
    /// The second volumewatcher, where there are two.
    SecondWatcher,
    /// The first collector.
    Gc,
    /// The second collector, where there are two.
    SecondGc,
    /// The agent of a node, from 0.
    Agent(usize),
    /// The driver of a node, from 0.
    Driver(usize),
    /// The `berth-docker` of a node, from 0, where there are any.
    Docker(usize),
}

impl Part {
    /// Every process of a system with these options that tests may kill.
    pub fn all(options: Options) -> impl Iterator<Item = Self> {
        let seconds =
            [Self::SecondClaim, Self::SecondWatcher, Self::SecondRegistry, Self::SecondGc];
        [Self::Nats, Self::Claim, Self::Watcher, Self::Registry, Self::Gc]
            .into_iter()
            .chain(seconds.into_iter().filter(move |_| options.replicas > 1))
            .chain((0..options.nodes).flat_map(|node| [Self::Agent(node), Self::Driver(node)]))
            .chain(
                options
                    .docker_ms
                    .into_iter()
                    .flat_map(move |_| (0..options.nodes).map(Self::Docker)),
            )
    }

    /// Its client name on the bus.
    fn name(self) -> Option<String> {
        Some(match self {
            Self::Nats | Self::Driver(_) => return None,
            Self::Claim => "claim-0".to_owned(),
            Self::SecondClaim => "claim-1".to_owned(),
            Self::Watcher => "volumewatcher-0".to_owned(),
            Self::SecondWatcher => "volumewatcher-1".to_owned(),
            Self::Registry => "plugin-registry-0".to_owned(),
            Self::SecondRegistry => "plugin-registry-1".to_owned(),
            Self::Gc => "gc-0".to_owned(),
            Self::SecondGc => "gc-1".to_owned(),
            Self::Agent(node) => format!("agent-{}", node + 1),
            Self::Docker(node) => format!("docker-{}", node + 1),
        })
    }
}

/// A running system.
pub struct System {
    /// What kind it is.
    pub options: Options,
    /// The test's own connection.
    pub bus: Bus,
    claims: Vec<Daemon>,
    watchers: Vec<Daemon>,
    registries: Vec<Daemon>,
    collectors: Vec<Daemon>,
    agents: Vec<Daemon>,
    drivers: Vec<Daemon>,
    dockers: Vec<Daemon>,
    /// Trips at the n-th message of a kind from any process.
    pub wire: Wire,
    cables: Cables,
    identities: Identities,
    /// The servers of the bus.
    pub nats: NatsServers,
    // Last: it unmounts and removes what the processes left.
    dir: Dir,
}

/// Each process's cables to the bus, one to each server. Empty when the system has no cables.
type Cables = BTreeMap<String, Vec<Proxy>>;

async fn lay(nats: &NatsServers, options: Options, wire: &Wire) -> Cables {
    let mut cables = Cables::new();
    if !options.cables {
        return cables;
    }
    for name in Part::all(options).filter_map(Part::name) {
        for server in nats.servers() {
            let cable = Proxy::across(server.address(), &name, wire).await;
            cables.entry(name.clone()).or_default().push(cable);
        }
    }
    cables
}

impl System {
    /// Starts everything and waits until the plugin is healthy on every node.
    pub async fn start(options: Options) -> Self {
        let dir = Dir::new("flow");
        let Options { disk_bytes, cables: unadvertised, .. } = options;
        let identities = Identities::make(&dir, options);
        let extra = &identities.server_config();
        let admin = Role::Admin { name: "test".to_owned() };
        let login = identities.login(&admin);
        let login = login.as_ref();
        let more = NatsOptions { extra, login, disk_bytes, unadvertised, ..NatsOptions::default() };
        let nats = NatsServers::start_with(options.servers, more).await;
        let wire = Wire::default();
        let cables = lay(&nats, options, &wire).await;
        let (seed, _) = berth_service::seal::new_seed().expect("a key can be made");
        std::fs::write(dir.join("secrets.key"), seed).expect("the key can be written");
        let bus = identities.connect(nats.url(), &admin, admin.actor()).await;
        if let Some(marker_ttl) = options.marker_ttl {
            // Services accept an existing bucket unchanged.
            for spec in bucket::ALL.iter().filter(|spec| spec.history > 1) {
                let spec = BucketSpec { marker_ttl, purged_after: 0, ..*spec };
                bus.bucket(&spec, nats.copies()).await.expect("the bucket can be made");
            }
        }
        let start =
            Start { dir: &dir, nats: &nats, cables: &cables, identities: &identities, options };
        let each = |what: &str| -> Vec<Daemon> {
            (0..options.replicas).map(|at| start.service(what, &format!("{what}-{at}"))).collect()
        };
        let (claims, watchers) = (each("claim"), each("volumewatcher"));
        let (registries, collectors) = (each("plugin-registry"), each("gc"));
        let drivers = (0..options.nodes).map(|at| start.driver(at)).collect();
        let agents = (0..options.nodes).map(|at| start.agent(at)).collect();
        let with_docker = if options.docker_ms.is_some() { options.nodes } else { 0 };
        let dockers = (0..with_docker).map(|at| start.docker(at)).collect();
        let system = Self {
            options,
            bus,
            claims,
            watchers,
            registries,
            collectors,
            agents,
            drivers,
            dockers,
            wire,
            cables,
            identities,
            nats,
            dir,
        };
        system.healthy().await;
        system
    }

    /// Waits until the services answer and every node serves the plugin, and Docker where enabled.
    pub async fn healthy(&self) {
        wait::until("the system is healthy", Duration::from_secs(60), || async {
            self.volumes().await.map_err(|problem| problem.to_string())?;
            for node in 0..self.dockers.len() {
                let connected = UnixStream::connect(self.docker_socket(node));
                connected.map_err(|error| format!("berth-docker {node}: {error}"))?;
            }
            self.count_healthy().await
        })
        .await;
    }

    async fn count_healthy(&self) -> Result<(), String> {
        let plugins = self.plugins().await.map_err(|problem| problem.to_string())?;
        let Some(plugin) = plugins.plugins.first() else {
            return if self.options.nodes == 0 { Ok(()) } else { Err("no plugin".to_owned()) };
        };
        let controllers = plugin.controllers.map_or(0, |count| count.healthy);
        let Options { nodes, controller, healthy, .. } = self.options;
        let wanted = healthy.unwrap_or((nodes, if controller { nodes } else { 0 }));
        if (plugin.nodes.healthy, controllers) == wanted {
            Ok(())
        } else {
            Err(format!("{} nodes, {controllers} controllers are healthy", plugin.nodes.healthy))
        }
    }

    /// The process.
    pub fn daemon(&self, part: Part) -> &Daemon {
        match part {
            Part::Nats => self.nats.first().daemon(),
            Part::Claim => &self.claims[0],
            Part::SecondClaim => &self.claims[1],
            Part::Registry => &self.registries[0],
            Part::SecondRegistry => &self.registries[1],
            Part::Watcher => &self.watchers[0],
            Part::SecondWatcher => &self.watchers[1],
            Part::Gc => &self.collectors[0],
            Part::SecondGc => &self.collectors[1],
            Part::Agent(node) => &self.agents[node],
            Part::Driver(node) => &self.drivers[node],
            Part::Docker(node) => &self.dockers[node],
        }
    }

    /// Kills a process with SIGKILL, and starts it again.
    pub async fn kill9_and_restart(&self, part: Part) {
        if part == Part::Nats {
            self.nats.first().kill9();
            self.nats.first().restart().await;
        } else {
            self.kill9(part);
            self.daemon(part).restart();
        }
    }

    /// Kills a process with SIGKILL without a restart. Messages that its cables held back are lost.
    pub fn kill9(&self, part: Part) {
        self.daemon(part).kill9();
        for cable in self.cables(part) {
            cable.snap();
        }
    }

    /// Ends every service as an operator would. When this returns, each has exported everything to
    /// its collector.
    pub async fn end(&self) {
        let mut services: Vec<Part> = Part::all(self.options).collect();
        services.retain(|part| !matches!(part, Part::Nats | Part::Driver(_)));
        // Agents first: while they end, they send requests to the other services.
        for part in services.into_iter().rev() {
            self.daemon(part).terminate().await;
        }
    }

    /// A process's cables, one to each server; empty when the system has none.
    pub fn cables(&self, part: Part) -> &[Proxy] {
        part.name().and_then(|name| self.cables.get(&name)).map_or(&[], Vec::as_slice)
    }

    /// The process that has the cable with this label.
    ///
    /// # Panics
    /// When no process has it.
    pub fn part_of(&self, label: &str) -> Part {
        let named = |part: &Part| part.name().as_deref() == Some(label);
        Part::all(self.options).find(named).expect("each cable is a process's")
    }

    /// The servers of the bus.
    pub fn servers(&self) -> &[Server] {
        self.nats.servers()
    }

    /// Starts a killed process again.
    pub fn restart(&self, part: Part) {
        self.daemon(part).restart();
    }

    /// Plants faults in a node's driver; the file is read at each call.
    pub fn plant(&self, node: usize, faults: &serde_json::Value) {
        let file = self.faults(node);
        let fresh = file.with_extension("new");
        std::fs::write(&fresh, faults.to_string()).expect("faults can be written");
        std::fs::rename(&fresh, &file).expect("faults can be put in place");
    }

    /// Where a node's agent keeps its journal.
    pub fn journal(&self, node: usize) -> PathBuf {
        self.dir.join(format!("n{}", node + 1)).join("journal")
    }

    fn faults(&self, node: usize) -> PathBuf {
        self.dir.join(format!("faults-{}.json", node + 1))
    }

    /// Fences a node at the storage, or lifts the fence. The volumes of a fenced node can be
    /// detached while they are mounted there.
    pub fn fence(&self, node: usize, fenced: bool) {
        let done = std::process::Command::new(binary("berth-csi-dev"))
            .arg("fence")
            .args(["--node-id".to_owned(), (self.options.external_node)(node)])
            .arg("--backend")
            .arg(self.backend())
            .arg("--log")
            .arg(&self.call_logs()[node])
            .args((!fenced).then_some("--lift"))
            .output()
            .expect("the driver runs");
        assert!(done.status.success(), "{done:?}");
    }

    /// Sets the clock of a process in [`Options::clocks`] so many milliseconds ahead of the
    /// machine's.
    pub fn set_clock(&self, process: &str, ahead_ms: i64) {
        clock::set(&clock_file(&self.dir, process), ahead_ms);
    }

    /// The call logs of all drivers.
    pub fn call_logs(&self) -> Vec<PathBuf> {
        (0..self.options.nodes).map(|at| self.dir.join(format!("calls-{}", at + 1))).collect()
    }

    /// The URL of the bus.
    pub fn url(&self) -> String {
        self.nats.url()
    }

    /// The directory of the bus's store and log.
    pub fn nats_dir(&self) -> PathBuf {
        let log = self.nats.first().daemon().log_path();
        log.parent().unwrap_or(log).to_owned()
    }

    /// The directory of the storage.
    pub fn backend(&self) -> PathBuf {
        self.dir.join("backend")
    }

    /// The directory of the test.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }
}

fn clock_file(dir: &Dir, process: &str) -> PathBuf {
    dir.join(format!("{process}.clock"))
}

struct Start<'a> {
    dir: &'a Dir,
    nats: &'a NatsServers,
    cables: &'a Cables,
    identities: &'a Identities,
    options: Options,
}

impl Start<'_> {
    fn service(&self, what: &str, name: &str) -> Daemon {
        let own = match what {
            "claim" => format!(
                "[policy]\ncall_timeout_ms = {}\nclock_margin_ms = 300\nabandoned_after_ms = 2000\n\
                 place_kept_ms = {}\nretry_first_ms = {}\nretry_max_ms = {}\n\
                 [secrets]\nkey_file = {:?}\n",
                self.options.call_timeout_ms,
                self.options.place_kept_ms,
                self.options.retry_ms.0,
                self.options.retry_ms.1,
                self.dir.join("secrets.key").display().to_string(),
            ),
            "volumewatcher" => {
                let rescan_ms = self.options.rescan_ms;
                format!("[watcher]\nrescan_ms = {rescan_ms}\ndrain_ms = 500\n")
            }
            "gc" => "[gc]\ninterval_ms = 1000\ngrace_ms = 1000\nlease_ttl_s = 3\n".to_owned(),
            _ => String::new(),
        };
        self.run(&format!("berth-{what}"), name, &own)
    }

    fn agent(&self, at: usize) -> Daemon {
        let node = at + 1;
        let dir = self.dir.path().display();
        // An agent of the last release does not know the setting.
        let kept = self.options.place_kept_ms;
        let is_default = kept == Options::default().place_kept_ms;
        let kept = if is_default { String::new() } else { format!("place_kept_ms = {kept}\n") };
        let lease = self.options.lease_ttl_s;
        let own = format!(
            "node = \"n{node}\"\nstate_dir = \"{dir}/n{node}\"\nlease_ttl_s = {lease}\n\
             probe_interval_ms = 200\n{kept}\n[[plugin]]\nid = \"{PLUGIN}\"\n\
             socket = \"{dir}/d{node}.sock\"\n"
        );
        self.run("berth-node-agent", &format!("agent-{node}"), &own)
    }

    /// The URL that a process uses for the bus.
    fn url_for(&self, name: &str) -> String {
        match self.cables.get(name) {
            Some(cables) => cables.iter().map(Proxy::url).collect::<Vec<_>>().join(","),
            None => self.nats.url(),
        }
    }

    fn run(&self, program: &str, name: &str, own: &str) -> Daemon {
        // In a test with a secret, other crates log at debug too: none may log it.
        let secret = self.options.secret.is_some();
        let program = version::place(self.dir, program, name, self.options.version);
        let mut program = Program::service_at(program, name, self.dir)
            .configured(own)
            .on_bus(self.url_for(name), self.nats.copies())
            .env("BERTH__LOG__FILTER", if secret { "debug,async_nats=warn" } else { LOG_FILTER });
        program = self.identities.identify(program, name);
        if let Some(port) = self.options.otlp {
            program = program
                .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"))
                .env("OTEL_BSP_SCHEDULE_DELAY", "200")
                .env("OTEL_METRIC_EXPORT_INTERVAL", "500");
        }
        if let Some((_, ahead_ms)) = self.options.clocks.iter().find(|(own, _)| *own == name) {
            let file = clock_file(self.dir, name);
            clock::set(&file, *ahead_ms);
            program = program.envs(clock::settable(&file));
        }
        program.start()
    }

    fn driver(&self, at: usize) -> Daemon {
        let node = at + 1;
        let dir = self.dir.path().display().to_string();
        let Options { attach, stage, controller, .. } = self.options;
        let off = [("--no-attach", attach), ("--no-stage", stage), ("--no-controller", controller)];
        if let Some(faults) = self.options.planted {
            let file = self.dir.join(format!("faults-{node}.json"));
            std::fs::write(file, faults).expect("faults can be written");
        }
        // Every process may read the arguments, so the secret is not among them.
        let secret = self.options.secret.map(|secret| ("BERTH_CSI_DEV_SECRET", secret));
        let name = format!("driver-{node}");
        // Not of the last release, which lacks arguments that tests give.
        let program = version::place(self.dir, "berth-csi-dev", &name, Version::This);
        Program::service_at(program, &name, self.dir)
            .args(["serve", "--endpoint"])
            .arg(format!("unix://{dir}/d{node}.sock"))
            .args(["--node-id".to_owned(), (self.options.external_node)(at)])
            .args(["--backend".to_owned(), format!("{dir}/backend")])
            .args(["--log".to_owned(), format!("{dir}/calls-{node}")])
            .args(["--faults".to_owned(), format!("{dir}/faults-{node}.json")])
            .args(["--max-volumes".to_owned(), self.options.max_volumes.to_string()])
            .args(off.into_iter().filter(|(_, on)| !on).map(|(flag, _)| flag))
            .args((self.options.driver)(at))
            .envs(secret)
            .start()
    }
}
