//! One node for a test: a bus, the development driver, the agent, and the agent's callers.
//!
//! **Owns** the processes, and the answers that the test gives in place of the claim service and
//! the registry. **Promises** that all processes and mounts go when the world is dropped.
//!
//! **Never** stands in for the agent, the driver, the bus or the kernel.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_bus::{Bus, Call as Sending, Change, Config, Guard, Service, Write};
use berth_contract::bucket;
use berth_contract::message::agent::{AgentQuery, AgentStatus, Mount, Mounted};
use berth_contract::message::alloc::StopAlloc;
use berth_contract::message::call::{Call, Called, ClaimCall, ClaimDetails};
use berth_contract::message::claim::Grant;
use berth_contract::message::registry::{NodeReport, Reported, ReportedInstance};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::plugin::NodeState;
use berth_domain::proof::Proof;
use berth_domain::volume::{CallKind, MountOptions};
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, PluginId, VolumeId};
use berth_harness::dirs::{Dir, mounts_beneath};
use berth_harness::nats::Server;
use berth_harness::process::{Daemon, Program, binary};
use berth_harness::{judge, namespace, wait};
use berth_service::clock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::claims::ClaimAnswers;
use crate::others::{self, Grants, Stopped};

/// How long anything may take in a test.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How often the agent probes its plugins here.
pub const PROBE: Duration = Duration::from_millis(100);
/// The plugin's id, and the volume at it.
pub const PLUGIN: &str = "dev.berth";
pub const EXTERNAL: &str = "vol/1";

/// The node and everything around it.
pub struct World {
    // Dropped in this order: processes before the directories and the server they use.
    pub agent: Daemon,
    pub driver: Daemon,
    pub bus: Bus,
    grants: Grants,
    reports: Arc<Mutex<Vec<NodeReport>>>,
    answer: Arc<Mutex<Reported>>,
    stopped: Arc<Mutex<Stopped>>,
    pub claims: ClaimAnswers,
    _others: Service,
    pub dir: Dir,
    _server: Server,
}

/// How the world differs from the usual one.
#[derive(Default)]
pub struct Differences<'a> {
    pub driver: &'a [&'a str],
    /// `{dir}` in it stands for the test's directory.
    pub agent: &'a str,
}

impl World {
    /// A world whose driver attaches and stages.
    pub async fn start() -> Self {
        Self::start_with(Differences::default()).await
    }

    pub async fn start_with(differences: Differences<'_>) -> Self {
        let world = Self::start_without_waiting(differences).await;
        world.healthy(true).await;
        wait::until("the agent answers", PATIENCE, async || {
            world.status().await.map(drop).map_err(|problem| problem.to_string())
        })
        .await;
        world
    }

    pub async fn start_without_waiting(differences: Differences<'_>) -> Self {
        let server = Server::start().await;
        let dir = Dir::new("agent");
        let bus = Bus::connect(Config::new([server.url()], "test").insecure()).await.unwrap();
        let (grants, reports, stopped) = (Grants::default(), Arc::default(), Arc::default());
        let ready = Reported {
            clock_skew_ms: 0,
            clock: None,
            state: NodeState::Ready,
            gone: None,
            pace_s: 0,
            unproven: Vec::new(),
        };
        let answer = Arc::new(Mutex::new(ready));
        let others = others::serve(&bus, &grants, &reports, &answer, &stopped).await;
        let claims = ClaimAnswers::default();
        claims.serve(&bus, &others, &reports).await;
        provision(&dir);
        let driver = driver(&dir, &[], differences.driver);
        let agent = agent(&dir, &server.url(), differences.agent);
        Self {
            agent,
            driver,
            bus,
            grants,
            reports,
            answer,
            stopped,
            claims,
            _others: others,
            dir,
            _server: server,
        }
    }

    /// Ends the driver and starts another in its place, run by `wrapper` where there is one.
    pub async fn replace_driver(&mut self, wrapper: &[&str], more: &[&str]) {
        let served = |daemon: &Daemon| daemon.log().matches("serves node").count();
        self.driver.kill9();
        let before = served(&self.driver);
        self.driver = driver(&self.dir, wrapper, more);
        wait::until("the driver serves", PATIENCE, async || {
            if served(&self.driver) > before { Ok(()) } else { Err(self.driver.log()) }
        })
        .await;
    }

    /// Ends the agent and starts it again, run by `wrapper`.
    pub fn replace_agent(&mut self, wrapper: &[&str]) {
        self.agent.kill9();
        let [program, rest @ ..] = wrapper else { return self.agent.restart() };
        self.agent = Program::new("berth-node-agent", program, self.dir.join("agent.log"))
            .args(rest)
            .arg(binary("berth-node-agent"))
            .arg("--config")
            .arg(self.dir.join("agent.toml"))
            .start();
    }

    /// Waits until the agent, which was started again, answers and has found its plugin well.
    pub async fn healthy_now(&self) {
        self.reports.lock().unwrap().clear();
        self.healthy(true).await;
        wait::until("the agent answers", PATIENCE, async || {
            self.status().await.map(drop).map_err(|problem| problem.to_string())
        })
        .await;
    }

    /// Waits until the last report says of every instance that it is, or is not, healthy.
    pub async fn healthy(&self, healthy: bool) -> NodeReport {
        wait::until("the plugin's health is reported", PATIENCE, async || {
            let last = self.reports.lock().unwrap().last().cloned();
            let last = last.ok_or("nothing was reported")?;
            let all = !last.instances.is_empty()
                && last.instances.iter().all(|one| one.instance.healthy == healthy);
            if all { Ok(last) } else { Err("it is reported otherwise") }
        })
        .await
    }

    pub fn reports(&self) -> Vec<NodeReport> {
        self.reports.lock().unwrap().clone()
    }

    pub fn last_report(&self) -> Option<NodeReport> {
        self.reports.lock().unwrap().last().cloned()
    }

    /// From now on the registry answers so.
    pub fn answer_report(&self, state: NodeState, gone: Option<Proof>) {
        *self.answer.lock().unwrap() = Reported {
            clock_skew_ms: 0,
            clock: None,
            state,
            gone,
            pace_s: 0,
            unproven: Vec::new(),
        };
    }

    /// The allocs that the agent said have ended, with its words.
    pub fn stopped(&self) -> Vec<(String, String)> {
        let stopped = self.stopped.lock().unwrap();
        let said = |stop: &StopAlloc| (stop.id.to_string(), stop.note.clone().unwrap_or_default());
        stopped.all.iter().map(said).collect()
    }

    /// Whether the claim service refuses from now on to note that an alloc has ended.
    pub fn refuse_stops(&self, refuses: bool) {
        self.stopped.lock().unwrap().refuses = refuses;
    }

    /// From now on the claim service grants the volume to the alloc, at this epoch.
    pub fn grant(&self, alloc: &str, epoch: u64, publish_context: &BTreeMap<String, String>) {
        self.answer_take(alloc, Ok(grant(alloc, epoch, publish_context)));
    }

    pub fn answer_take(&self, alloc: &str, answer: Result<Grant, Problem>) {
        self.grants.lock().unwrap().insert(id(alloc), answer);
    }

    pub async fn mount(&self, alloc: &str) -> Result<Mounted, Problem> {
        self.mount_within(alloc, PATIENCE).await
    }

    pub async fn mount_within(&self, alloc: &str, within: Duration) -> Result<Mounted, Problem> {
        let request = Mount {
            namespace: Namespace::default(),
            alloc: id(alloc),
            volume: volume(),
            wait: false,
            alias: None,
            path: None,
        };
        self.ask(
            &verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(node())),
            &request,
            within,
        )
        .await
    }

    /// Mounts the volume under a name, or at a path.
    pub async fn mount_as(
        &self,
        alloc: &str,
        alias: Option<&str>,
        path: Option<&Path>,
    ) -> Result<Mounted, Problem> {
        let request = Mount {
            namespace: Namespace::default(),
            alloc: id(alloc),
            volume: volume(),
            wait: false,
            alias: alias.map(str::to_owned),
            path: path.map(|path| path.to_str().unwrap().to_owned()),
        };
        self.ask(
            &verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(node())),
            &request,
            PATIENCE,
        )
        .await
    }

    pub async fn detach(&self, alloc: &str, epoch: u64, revision: u64) -> Result<Called, Problem> {
        self.call(call(CallKind::NodeDetach, alloc, epoch, revision)).await
    }

    /// Asks for the volume to be taken down, again and again, until it is. Each try is an attempt
    /// of its own: an agent makes an attempt once.
    pub async fn detached(&self, what: &str, alloc: &str, epoch: u64, from_revision: u64) {
        let revision = AtomicU64::new(from_revision);
        wait::until(what, PATIENCE, async || {
            let revision = revision.fetch_add(1, Ordering::Relaxed);
            self.detach(alloc, epoch, revision).await.map_err(|problem| problem.to_string())
        })
        .await;
    }

    /// Asks for the volume to be taken down until it is, or there is no time left for it.
    pub async fn detach_within(
        &self,
        alloc: &str,
        epoch: u64,
        revision: u64,
        within: Duration,
    ) -> Result<Called, Problem> {
        let call = call(CallKind::NodeDetach, alloc, epoch, revision);
        let _held = namespace::lock_for_release().await;
        self.ask(&Call::from(call.clone()).subject(), &call, within).await
    }

    /// Sends a call to where it belongs.
    pub async fn call(&self, call: ClaimCall) -> Result<Called, Problem> {
        let _held = namespace::lock_for_release().await;
        self.ask(&Call::from(call.clone()).subject(), &call, PATIENCE).await
    }

    /// Somebody writes the record of a volume; answers its revision.
    pub async fn write_a_volume(&self) -> u64 {
        let volumes = self.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
        let write = Write {
            key: "default.other.spec",
            change: Change::Put("{}".into()),
            guard: Guard { filter: "default.other.>", revision: 0 },
            operation: "test",
            trace: clock::begin_trace(),
        };
        volumes.commit(write).await.unwrap()
    }

    /// Has the controller attach the volume to the node, and returns what it says the node needs.
    pub async fn attach(&self, revision: u64) -> BTreeMap<String, String> {
        let call = call(CallKind::ControllerPublish, "a", 1, revision);
        self.call(call).await.unwrap().publish_context
    }

    pub async fn status(&self) -> Result<AgentStatus, Problem> {
        self.ask(
            &verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of(node())),
            &AgentQuery {},
            Duration::from_secs(2),
        )
        .await
    }

    pub async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<T, Problem> {
        let sending = Sending::within(clock::begin_trace(), within);
        let answer = self.bus.request(subject, body, &sending).await;
        answer.map_err(|error| error.into_problem("test"))
    }

    /// Plants faults in the driver, over earlier ones.
    pub fn plant(&self, faults: &Value) {
        let (new, file) = (self.dir.join("faults.new"), self.dir.join("faults.json"));
        fs::write(&new, faults.to_string()).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Lets what is [held](hold) go on, once what is asked beside it had time to arrive.
    pub async fn let_go(&self) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.plant(&json!([]));
    }

    /// Every entry of the driver's log.
    pub fn log(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.dir.join("calls.log")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the driver was asked to do and has done, each as `RPC CODE`, probes and questions left
    /// out.
    pub fn calls(&self) -> Vec<String> {
        let entries = self.log().into_iter();
        let ended =
            entries.filter(|entry| entry["entry"] == "end" && entry["volume_id"] != Value::Null);
        ended
            .map(|entry| {
                format!("{} {}", entry["rpc"].as_str().unwrap(), entry["code"].as_str().unwrap())
            })
            .collect()
    }

    /// How often the driver did this.
    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|one| *one == call).count()
    }

    /// Where something is mounted below the agent's state directory.
    pub fn mounts(&self) -> Vec<PathBuf> {
        mounts_beneath(&self.dir.join("state"))
    }

    /// What lies in the agent's directory of volumes.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.join("state/csi"));
        entries.map_or_else(|_| Vec::new(), |all| all.map(|one| one.unwrap().path()).collect())
    }

    /// The development driver's judge finds that no rule of CSI was broken.
    pub fn judge(&self) {
        judge::assert_right([self.dir.join("calls.log")]);
    }
}

pub fn id(alloc: &str) -> AllocId {
    AllocId::new(alloc).unwrap()
}

pub fn node() -> NodeId {
    NodeId::new("n.1").unwrap()
}

pub fn plugin() -> PluginId {
    PluginId::new(PLUGIN).unwrap()
}

fn volume() -> VolumeId {
    VolumeId::new("data").unwrap()
}

pub fn grant(alloc: &str, epoch: u64, publish_context: &BTreeMap<String, String>) -> Grant {
    Grant {
        epoch,
        namespace: Namespace::default(),
        volume: volume(),
        external_id: EXTERNAL.to_owned(),
        plugin: plugin(),
        alloc: id(alloc),
        mode: Mode::Write,
        access: AccessMode::SingleNodeMultiWriter,
        attachment: AttachmentMode::FileSystem,
        mount: MountOptions::default(),
        context: BTreeMap::new(),
        publish_context: publish_context.clone(),
        secrets: None,
        claims_beside: None,
        claims_beside_digest: None,
        expand_to: None,
        by: None,
        view: None,
    }
}

/// A call with time to spare.
pub fn call(kind: CallKind, alloc: &str, epoch: u64, revision: u64) -> ClaimCall {
    Call {
        call: kind,
        attempt: AttemptId::new(format!("attempt-{kind}-{revision}")).unwrap(),
        revision,
        deadline: clock::now().after(PATIENCE),
        namespace: Namespace::default(),
        volume: volume(),
        external_id: EXTERNAL.to_owned(),
        plugin: plugin(),
        ask_first: Vec::new(),
        secrets: None,
        details: ClaimDetails {
            alloc: id(alloc),
            epoch,
            node: node(),
            external_node: Some("node-1".to_owned()),
            controller: None,
            claims_beside: None,
            claims_beside_digest: None,
            by: None,
            unstaged_by: None,
            access: AccessMode::SingleNodeMultiWriter,
            mode: Mode::Write,
            attachment: AttachmentMode::FileSystem,
            mount: MountOptions::default(),
            context: BTreeMap::new(),
            span: None,
        },
    }
}

/// The instances of one half.
pub fn half(report: &NodeReport, half: berth_domain::plugin::Half) -> Vec<&ReportedInstance> {
    report.instances.iter().filter(|one| one.half == half).collect()
}

fn provision(dir: &Dir) {
    let made = std::process::Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", EXTERNAL, "--backend"])
        .arg(dir.join("backend"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// The driver, run by `wrapper` where there is one.
fn driver(dir: &Dir, wrapper: &[&str], more: &[&str]) -> Daemon {
    let driver = binary("berth-csi-dev");
    let (program, arguments) = match wrapper {
        [] => (driver, vec![]),
        [program, rest @ ..] => {
            let rest = rest.iter().map(OsString::from);
            (program.into(), rest.chain([driver.into_os_string()]).collect())
        }
    };
    Program::new("berth-csi-dev", program, dir.join("driver.log"))
        .args(arguments)
        .args(["serve", "--node-id", "node-1", "--endpoint"])
        .arg(format!("unix://{}", dir.join("csi.sock").display()))
        .arg("--backend")
        .arg(dir.join("backend"))
        .arg("--log")
        .arg(dir.join("calls.log"))
        .arg("--faults")
        .arg(dir.join("faults.json"))
        .args(more)
        .start()
}

fn agent(dir: &Dir, url: &str, more: &str) -> Daemon {
    let more = more.replace("{dir}", &dir.path().display().to_string());
    let config = format!(
        "node = '{}'\n\
         state_dir = '{}'\n\
         bind_below = ['{}']\n\
         probe_interval_ms = {}\n\
         probe_timeout_ms = 1000\n\
         lease_ttl_s = 3\n\
         {more}\n\
         [nats]\nurl = '{url}'\ninsecure = true\n\
         [log]\nfilter = 'info,berth_node_agent=debug'\n\
         [[plugin]]\nid = '{PLUGIN}'\nsocket = '{}'\n",
        node(),
        dir.join("state").display(),
        dir.join("binds").display(),
        PROBE.as_millis(),
        dir.join("csi.sock").display(),
    );
    Program::service("berth-node-agent", "agent", dir).configured(&config).start()
}

/// Whether the node's lease is held, and by which agent since when.
pub async fn lease(bus: &Bus) -> Option<Value> {
    let leases = bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let entry = leases.get(&berth_contract::key::node_lease(&node())).await.unwrap()?;
    entry.value.map(|value| serde_json::from_slice(&value).unwrap())
}

/// A fault that makes the next call of this kind stand still before its work, until another is
/// planted.
pub fn hold(rpc: &str) -> Value {
    json!([{"rpc": rpc, "when": "before", "hang": true, "times": 1}])
}
