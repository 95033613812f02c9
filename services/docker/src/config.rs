//! The service's own configuration.
//!
//! ```toml
//! node = "n1"
//! state_dir = "/var/lib/berth-docker"
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::decode::{Decode, Decoder};
use berth_domain::NodeId;
use serde_json::Value;

/// The longest path of a socket, in bytes (unix(7), `sun_path` with its closing zero).
const SOCKET_BYTES_MAX: usize = 107;

/// What may be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The node of this host's agent, which mounts the volumes.
    pub node: NodeId,
    /// Where the names of Docker's volumes are kept; this process's alone.
    pub state_dir: PathBuf,
    /// Where the volume plugin is served; the name of the file is the name of the driver.
    pub socket: PathBuf,
    /// Where the engine is asked which containers use a volume.
    pub engine: PathBuf,
    /// How long a mount may keep the engine waiting.
    pub mount_timeout: Duration,
    /// How long requests under way may go on after the shutdown.
    pub drain: Duration,
}

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let node = decoder.field(&mut object, "node");
        let state_dir = decoder.field::<String>(&mut object, "state_dir");
        let socket = decoder.field::<Option<String>>(&mut object, "socket");
        let engine = decoder.field::<Option<String>>(&mut object, "engine");
        let mount_timeout = decoder.field::<Option<u64>>(&mut object, "mount_timeout_ms");
        let drain = decoder.field::<Option<u64>>(&mut object, "drain_ms");
        decoder.finish(
            &object,
            &[
                "node",
                "state_dir",
                "socket",
                "engine",
                "mount_timeout_ms",
                "drain_ms",
                "nats",
                "log",
                "telemetry",
            ],
        );
        let socket = socket.map(|path| path.unwrap_or("/run/docker/plugins/berth.sock".to_owned()));
        let engine = engine.map(|path| path.unwrap_or("/run/docker.sock".to_owned()));
        let mount_timeout = mount_timeout.map(|ms| ms.unwrap_or(110_000));
        let drain = drain.map(|ms| ms.unwrap_or(10_000));
        let is_absolute = state_dir.as_ref().is_none_or(|dir| Path::new(dir).is_absolute());
        let sound = decoder.demand(is_absolute, "state_dir", "must be an absolute path")
            & check_socket(decoder, "socket", socket.as_deref())
            & check_socket(decoder, "engine", engine.as_deref())
            & decoder.demand(
                mount_timeout.is_none_or(|ms| (100..=115_000).contains(&ms)),
                "mount_timeout_ms",
                "must be from 100 to 115000: the engine waits for 120 s",
            )
            & decoder.demand(
                drain.is_none_or(|ms| ms <= 3_600_000),
                "drain_ms",
                "must be from 0 to 3600000",
            );
        let config = Self {
            node: node?,
            state_dir: state_dir?.into(),
            socket: socket?.into(),
            engine: engine?.into(),
            mount_timeout: Duration::from_millis(mount_timeout?),
            drain: Duration::from_millis(drain?),
        };
        sound.then_some(config)
    }
}

fn check_socket(decoder: &mut Decoder, field: &str, path: Option<&str>) -> bool {
    let Some(path) = path else { return true };
    let is_absolute = Path::new(path).is_absolute();
    let problem = format!("has {} bytes; a socket's path has {SOCKET_BYTES_MAX}", path.len());
    decoder.demand(is_absolute, field, "must be an absolute path, without unix://")
        & decoder.demand(path.len() <= SOCKET_BYTES_MAX, field, problem)
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_node_and_the_state_directory_are_enough() {
        let input = json!({"node": "n1", "state_dir": "/var/lib/berth-docker"});
        let config: Config = decode(input, Unknown::Fault).unwrap();
        assert_eq!(config.socket, Path::new("/run/docker/plugins/berth.sock"));
        assert_eq!(config.engine, Path::new("/run/docker.sock"));
        assert_eq!(config.mount_timeout, Duration::from_secs(110));
        assert_eq!(config.drain, Duration::from_secs(10));
    }

    #[test]
    fn every_fault_comes_at_once() {
        let input = json!({
            "state_dir": "names",
            "socket": "unix:///run/docker/plugins/berth.sock",
            "engine": format!("/{}", "x".repeat(200)),
            "mount_timeout_ms": 120_000,
            "drain_ms": "long",
            "colour": "red",
        });
        let faults = decode::<Config>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(
            paths,
            ["node", "drain_ms", "colour", "state_dir", "socket", "engine", "mount_timeout_ms"]
        );
    }
}
