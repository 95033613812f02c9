//! The configuration files of a `berth dev`.
//!
//! **Promises** that the nats-server runs with the shipped configuration, syncs included; only
//! address and store differ. Calls fail within seconds, so that a user sees the retries.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_service::seal;
use serde_json::{Value, json};

use super::identities::{Identities, Proof, SERVER};
use super::layout::{Layout, PLUGIN};
use super::own_plugin::OwnPlugin;
use crate::failure::Failure;

/// The shipped configuration of a single server.
const SHIPPED: &str = include_str!("../../../../deploy/nats/nats.conf");
/// The line of the shipped configuration that includes the host's own file. The address is written
/// in its place.
const SHIPPED_HOST_FILE: &str = "include \"nats/host.conf\"";
const SHIPPED_STORE: &str = "store_dir: \"/var/lib/nats-server\"";

/// Largest difference between two clocks on one machine, in milliseconds.
const CLOCK_SKEW_MAX_MS: u64 = 500;
/// How long a reservation lasts without a request of its caller, in milliseconds.
const ABANDONED_MS: u64 = 5000;

/// The settings that differ between runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The port of the nats-server.
    pub port: u16,
    /// How long one plugin call may take.
    pub call_timeout: Duration,
    /// Below which directories callers may choose paths.
    pub bind_below: Vec<PathBuf>,
}

/// The real paths of these directories, because the agent compares real paths.
pub fn find_dirs(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let find = |dir: &PathBuf| {
        let real = fs::canonicalize(dir);
        let is_dir = |real: &PathBuf| real.is_dir();
        real.ok().filter(is_dir).ok_or_else(|| {
            let message =
                format_args!("--bind-below {}: there is no such directory", dir.display());
            Failure::usage(message, "make it first")
        })
    };
    dirs.iter().map(find).collect()
}

impl Settings {
    /// Where the bus is.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// Writes every file.
pub fn write(
    layout: &Layout,
    nodes: &[String],
    own: &[OwnPlugin],
    settings: &Settings,
    identities: &Identities,
) -> Result<(), Failure> {
    let unwritten = |error: io::Error| Failure::local(error, "name a directory that you may write");
    let server = layout.config("nats-server", "conf");
    let who = identities.server_config(server.parent().unwrap_or(layout.dir()))?;
    fs::write(server, nats(layout, settings.port, &who)).map_err(unwritten)?;
    make_key(&layout.secrets_key()).map_err(unwritten)?;
    for (name, own) in services(layout, settings) {
        let proof = identities.of_service(name)?;
        let text = service(settings, own, proof.as_ref()).map_err(unwritten)?;
        fs::write(layout.config(name, "toml"), text).map_err(unwritten)?;
    }
    let own_ids = own.iter().map(|plugin| plugin.id.as_str());
    let hosted: Vec<&str> = std::iter::once(PLUGIN).chain(own_ids).collect();
    for node in nodes {
        let proof = identities.of_node(node, &hosted)?;
        let agent = agent(layout, node, own, &settings.bind_below);
        let text = service(settings, agent, proof.as_ref()).map_err(unwritten)?;
        fs::write(layout.config(&format!("agent-{node}"), "toml"), text).map_err(unwritten)?;
    }
    Ok(())
}

/// Creates the key for secrets, unless an earlier start has.
fn make_key(path: &Path) -> io::Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(mut file) => {
            let (seed, _) = seal::new_seed().map_err(io::Error::other)?;
            writeln!(file, "{seed}")
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The shipped configuration, on this port and with this store, for these identities.
fn nats(layout: &Layout, port: u16, identities: &str) -> String {
    // The server accepts strings in JSON's syntax.
    let store = json!(layout.store());
    SHIPPED
        .replace(
            SHIPPED_HOST_FILE,
            &format!("server_name: {SERVER}\nlisten: \"127.0.0.1:{port}\"\n{identities}"),
        )
        .replace(SHIPPED_STORE, &format!("store_dir: {store}"))
}

/// Each service and its settings besides the bus address.
fn services(layout: &Layout, settings: &Settings) -> [(&'static str, Value); 4] {
    let call_timeout_ms = u64::try_from(settings.call_timeout.as_millis()).unwrap_or(u64::MAX);
    let policy = json!({
        "call_timeout_ms": call_timeout_ms,
        "clock_margin_ms": CLOCK_SKEW_MAX_MS,
        "abandoned_after_ms": ABANDONED_MS,
        "retry_first_ms": 200,
        "retry_max_ms": 5000,
    });
    [
        ("claim", json!({ "policy": policy, "secrets": { "key_file": layout.secrets_key() } })),
        ("plugin-registry", json!({ "registry": { "rescan_ms": 5000 } })),
        ("volumewatcher", json!({ "watcher": { "rescan_ms": 1000 } })),
        ("gc", json!({ "gc": { "interval_ms": 5000, "grace_ms": 5000, "lease_ttl_s": 3 } })),
    ]
}

fn agent(layout: &Layout, node: &str, own: &[OwnPlugin], bind_below: &[PathBuf]) -> Value {
    let development = json!({ "id": PLUGIN, "socket": layout.socket(node) });
    let own = own.iter().map(|plugin| plugin.declaration(layout, node));
    let plugins: Vec<Value> = std::iter::once(development).chain(own).collect();
    json!({
        "node": node,
        "state_dir": layout.state(node),
        "lease_ttl_s": 3,
        "probe_interval_ms": 500,
        "report_interval_ms": 2000,
        "bind_below": bind_below,
        "plugin": plugins,
    })
}

fn service(settings: &Settings, mut own: Value, proof: Option<&Proof>) -> io::Result<String> {
    own["nats"] = Proof::nats(proof, &settings.url());
    let text = toml::to_string(&own).map_err(io::Error::other)?;
    Ok(format!("# Written anew by each `berth dev`.\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings { port: 20_123, call_timeout: Duration::from_secs(4), bind_below: Vec::new() }
    }

    #[test]
    fn the_nats_server_is_configured_as_shipped_but_for_address_and_store() {
        let conf = nats(&Layout::in_dir(PathBuf::from("/d/\"q\"")), 20_123, "");
        assert!(conf.contains("listen: \"127.0.0.1:20123\"\n"), "{conf}");
        assert!(conf.contains("store_dir: \"/d/\\\"q\\\"/nats\"\n"), "{conf}");
        assert!(conf.contains("sync_interval: always"), "{conf}");
        assert!(!conf.contains("4222\"") && !conf.contains("/var/lib"), "{conf}");
    }

    #[test]
    fn the_files_look_as_they_did() {
        let dir = tempfile::tempdir().unwrap();
        let (layout, _claimed) = Layout::make(dir.path(), &["n1".to_owned()]).unwrap();
        let identities = Identities::prepare(&layout, false).unwrap();
        write(&layout, &["n1".to_owned()], &[], &settings(), &identities).unwrap();
        let names = ["claim", "plugin-registry", "volumewatcher", "gc", "agent-n1"];
        let file = |name| fs::read_to_string(layout.config(name, "toml")).unwrap();
        let text: Vec<String> =
            names.iter().map(|name| format!("==> {name}.toml\n{}", file(name))).collect();
        let text = text.join("\n").replace(layout.dir().to_str().unwrap(), "DIR");
        insta::assert_snapshot!(text);
    }
}
