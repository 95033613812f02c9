//! A driver with a proxy in front.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_csi::rpc::Unary;
use berth_csi::v1::volume_capability::access_mode::Mode;
use berth_csi::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use berth_csi::{CallError, Client, Code, v1};
use berth_csi_proxy::faults::{self, Fault};
use berth_csi_proxy::log::{CallEnd, LogEntry};
use berth_harness::dirs::Dir;
use berth_harness::process::{Daemon, Program, binary};
use berth_harness::wait;

/// Longer than any call takes; only hanging calls reach it.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// Long enough for a call to begin and end.
pub const SHORT: Duration = Duration::from_millis(700);

/// Both processes, and a client of the proxy.
pub struct World {
    // Dropped in this order: the processes, then their files.
    pub proxy: Daemon,
    pub driver: Daemon,
    pub client: Client,
    pub dir: Dir,
}

impl World {
    /// A driver with these flags, and the proxy.
    pub async fn start(name: &str, flags: &[&str]) -> Self {
        let dir = Dir::new(name);
        let driver = driver(dir.path(), flags).start();
        let proxy = proxy(dir.path()).start();
        let client = Client::new(dir.path().join("csi.sock"));
        let world = Self { proxy, driver, client, dir };
        world.ready().await;
        world
    }

    /// Waits until the driver answers through the proxy.
    pub async fn ready(&self) {
        let probe = async || {
            let probed = self.client.call(v1::ProbeRequest {}, Duration::from_secs(1)).await;
            probed.map_err(|error| format!("{error}; its output:\n{}", self.proxy.log()))
        };
        wait::until("the proxy answers", TIMEOUT, probe).await;
    }

    pub async fn call<R: Unary>(&self, request: R) -> Result<R::Response, CallError> {
        self.client.call(request, TIMEOUT).await
    }

    /// Makes a call that must be refused with `code`, and returns the message.
    pub async fn refused<R: Unary>(&self, request: R, code: Code) -> String {
        match self.call(request).await {
            Err(error) if error.code() == Some(code) => error.to_string(),
            Err(error) => panic!("{} instead of {code}: {error}", R::RPC),
            Ok(_) => panic!("{} instead of {code}: OK", R::RPC),
        }
    }

    pub fn plant(&self, faults: &[Fault]) {
        faults::write(&self.dir.path().join("faults.json"), faults).unwrap();
    }

    /// Plants the faults in the driver itself.
    pub fn plant_in_driver(&self, faults: &[Fault]) {
        faults::write(&self.dir.path().join("driver-faults.json"), faults).unwrap();
    }

    /// The proxy's log.
    pub fn log(&self) -> PathBuf {
        self.dir.path().join("proxy.log")
    }

    pub fn entries(&self) -> Vec<LogEntry> {
        entries(&self.log())
    }

    /// The entries of the driver's own log.
    pub fn driver_entries(&self) -> Vec<LogEntry> {
        entries(&self.dir.path().join("driver.log"))
    }

    /// The end of the latest call that ended.
    pub fn last_end(&self) -> CallEnd {
        let mut newest_first = self.entries().into_iter().rev();
        let end = |entry| if let LogEntry::End(end) = entry { Some(*end) } else { None };
        newest_first.find_map(end).unwrap()
    }
}

pub fn entries(log: &Path) -> Vec<LogEntry> {
    let text = fs::read_to_string(log).unwrap();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let lines = whole.filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn driver(dir: &Path, flags: &[&str]) -> Program {
    Program::new("driver", binary("berth-csi-dev"), dir.join("driver.out"))
        .args(["serve", "--node-id", "n1", "--no-attach"])
        .args(flags.iter().copied())
        .arg("--backend")
        .arg(dir.join("backend"))
        .arg("--log")
        .arg(dir.join("driver.log"))
        .arg("--faults")
        .arg(dir.join("driver-faults.json"))
        .arg("--endpoint")
        .arg(format!("unix://{}", dir.join("behind.sock").display()))
}

pub fn proxy(dir: &Path) -> Program {
    Program::new("proxy", env!("CARGO_BIN_EXE_berth-csi-proxy"), dir.join("proxy.out"))
        .arg("serve")
        .arg("--log")
        .arg(dir.join("proxy.log"))
        .arg("--faults")
        .arg(dir.join("faults.json"))
        .arg("--endpoint")
        .arg(format!("unix://{}", dir.join("csi.sock").display()))
        .arg("--to")
        .arg(format!("unix://{}", dir.join("behind.sock").display()))
}

/// For one node, mounted.
pub fn capability() -> v1::VolumeCapability {
    let mode = AccessMode { mode: Mode::SingleNodeWriter.into() };
    let access_type = Some(AccessType::Mount(MountVolume::default()));
    v1::VolumeCapability { access_type, access_mode: Some(mode) }
}

pub fn create(name: &str) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.into(),
        volume_capabilities: vec![capability()],
        ..Default::default()
    }
}

pub fn delete(volume: &str) -> v1::DeleteVolumeRequest {
    v1::DeleteVolumeRequest { volume_id: volume.into(), ..Default::default() }
}
