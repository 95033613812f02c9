//! Two nodes on one backend, and what a CO would keep for them.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_csi::rpc::Unary;
use berth_csi::{CallError, Client, Code, v1};
use berth_csi_dev::backend::{Backend, VolumeMeta};
use berth_csi_dev::capability::AccessMode;
use berth_csi_proxy::faults::{self, Fault};
use berth_csi_proxy::log::{CallEnd, LogEntry};
use berth_harness::dirs::{self, Dir};
use berth_harness::process::{Daemon, Program};
use berth_harness::{root, wait};
use berth_judge::{Finding, judge_files};

use crate::request;

/// Longer than any call takes; only hanging ones reach it.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Two instances on one backend. What they mounted goes when this does.
pub struct World {
    // Dropped in this order: the processes, then their mounts and files.
    pub n1: Node,
    pub n2: Node,
    dir: Dir,
}

/// One instance.
pub struct Node {
    pub id: String,
    pub daemon: Daemon,
    pub client: Client,
    dir: PathBuf,
}

impl World {
    /// Starts nodes `n1` and `n2` with these flags; `None` where mounting is not possible.
    pub async fn start(name: &str, flags: &[&str]) -> Option<Self> {
        if !root::or_skip("mounts volumes") {
            return None;
        }
        let dir = Dir::new(name);
        let (n1, n2) = (Node::start(dir.path(), "n1", flags), Node::start(dir.path(), "n2", flags));
        for node in [&n1, &n2] {
            node.ready().await;
        }
        Some(Self { n1, n2, dir })
    }

    pub fn backend(&self) -> Backend {
        self.n1.backend()
    }

    pub fn provision(&self, volume: &str) {
        let meta = VolumeMeta {
            volume_id: volume.to_owned(),
            capacity_bytes: 1 << 20,
            volume_context: request::volume_context(),
            ..VolumeMeta::default()
        };
        self.backend().provision(&meta).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Has `script` run in place of the system's `program` from now on.
    pub fn replace_program(&self, program: &str, script: &str) {
        let bin = self.path().join("bin");
        fs::create_dir_all(&bin).unwrap();
        let path = bin.join(program);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    pub fn mounts(&self) -> Vec<PathBuf> {
        dirs::mounts_beneath(self.dir.path())
    }

    pub fn logs(&self) -> Vec<PathBuf> {
        vec![self.n1.log(), self.n2.log()]
    }

    pub fn findings(&self) -> Vec<Finding> {
        judge_files(&self.logs()).unwrap()
    }

    /// The rules that the judge finds broken, each once.
    pub fn rules_broken(&self) -> BTreeSet<String> {
        self.findings().into_iter().map(|finding| finding.rule.name).collect()
    }

    /// What a workload on `node` needs first: the volume attached (by the other node's instance:
    /// any may do it) and staged. Returns the publish context.
    pub async fn stage(&self, node: &Node, volume: &str, mode: AccessMode) -> request::Context {
        let other = if node.id == "n1" { &self.n2 } else { &self.n1 };
        let attached = other.call(request::attach(volume, &node.id, mode)).await.unwrap();
        let context = attached.publish_context;
        node.call(request::stage(volume, &node.staging(volume), mode, &context)).await.unwrap();
        context
    }
}

impl Node {
    fn start(world: &Path, id: &str, flags: &[&str]) -> Self {
        let dir = world.join(id);
        fs::create_dir(&dir).unwrap();
        let client = Client::new(dir.join("csi.sock"));
        Self { id: id.to_owned(), daemon: program(world, &dir, id, flags).start(), client, dir }
    }

    /// Waits until it answers.
    pub async fn ready(&self) {
        let what = format!("{} answers", self.id);
        let probe = async || {
            let probed = self.client.call(v1::ProbeRequest {}, Duration::from_secs(1)).await;
            probed.map_err(|error| format!("{error}; its output:\n{}", self.daemon.log()))
        };
        wait::until(&what, TIMEOUT, probe).await;
    }

    pub async fn call<R: Unary>(&self, request: R) -> Result<R::Response, CallError> {
        self.client.call(request, TIMEOUT).await
    }

    /// Makes a call that must be refused with `code`, and returns the message.
    #[track_caller]
    pub fn refused<R: Unary>(&self, request: R, code: Code) -> impl Future<Output = String>
    where
        R::Response: std::fmt::Debug,
    {
        let caller = std::panic::Location::caller();
        async move {
            match self.call(request).await {
                Err(error) if error.code() == Some(code) => error.to_string(),
                other => panic!("{caller}: {} instead of {code}: {other:?}", R::RPC),
            }
        }
    }

    /// The staging directory of `volume`, which a CO makes beforehand.
    pub fn staging(&self, volume: &str) -> String {
        let dir = self.dir.join("staging").join(volume.replace('/', "_"));
        fs::create_dir_all(&dir).unwrap();
        dir.to_str().unwrap().to_owned()
    }

    /// A target called `name`, of which a CO makes the parent beforehand.
    pub fn target(&self, name: &str) -> String {
        let parent = self.dir.join("targets");
        fs::create_dir_all(&parent).unwrap();
        parent.join(name).to_str().unwrap().to_owned()
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("calls.log")
    }

    pub fn entries(&self) -> Vec<LogEntry> {
        let text = fs::read_to_string(self.log()).unwrap();
        // A line without its end is being written, or was when its writer was killed.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines = whole.filter(|line| !line.trim().is_empty());
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The end of the latest call that ended here.
    pub fn last_end(&self) -> CallEnd {
        let ends = self.entries().into_iter().rev();
        let mut ends =
            ends.filter_map(|entry| if let LogEntry::End(end) = entry { Some(end) } else { None });
        *ends.next().expect("a call ended")
    }

    pub fn backend(&self) -> Backend {
        let world = self.dir.parent().unwrap();
        Backend::open(world.join("backend")).unwrap()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("csi.sock")
    }

    pub fn plant(&self, fault: Fault) {
        faults::write(&self.dir.join("faults.json"), &[fault]).unwrap();
    }

    pub fn plant_nothing(&self) {
        faults::write(&self.dir.join("faults.json"), &[]).unwrap();
    }

    /// Ends it as a crash would, and starts it again.
    pub async fn crash(&self) {
        self.daemon.restart();
        self.ready().await;
    }
}

pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_berth-csi-dev")
}

/// The instance of the node `id`, with its files in `dir`. A program in `bin` of the world is run
/// in place of the system's.
pub fn program(world: &Path, dir: &Path, id: &str, flags: &[&str]) -> Program {
    Program::new(id, binary(), dir.join("output.log"))
        .args(["serve", "--node-id", id])
        .arg("--backend")
        .arg(world.join("backend"))
        .arg("--log")
        .arg(dir.join("calls.log"))
        .arg("--faults")
        .arg(dir.join("faults.json"))
        .env("PATH", format!("{}:{}", world.join("bin").display(), env::var("PATH").unwrap()))
        .env("CSI_ENDPOINT", format!("unix://{}", dir.join("csi.sock").display()))
        .args(flags.iter().copied())
}
