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
use berth_service::config::{SHARED_FIELDS, check_socket_path};
use serde_json::Value;

/// The configuration of `berth-docker`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The node of this host's agent, which mounts the volumes.
    pub node: NodeId,
    /// The directory of [`names`](crate::names); no other process uses it.
    pub state_dir: PathBuf,
    /// The socket of the volume plugin; Docker takes the name of the file for the name of the
    /// driver.
    pub socket: PathBuf,
    /// The socket of Docker's engine, which is asked which containers use a volume.
    pub engine: PathBuf,
    /// How long the engine may have to wait for a mount.
    pub mount_timeout: Duration,
    /// How long requests may still run after the shutdown.
    pub drain: Duration,
}

impl Decode for Config {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let node = fields.field("node");
        let state_dir = fields.field::<String>("state_dir");
        let socket = fields.field::<Option<String>>("socket");
        let engine = fields.field::<Option<String>>("engine");
        let mount_timeout = fields.field::<Option<u64>>("mount_timeout_ms");
        let drain = fields.number("drain_ms", 10_000, 0..=3_600_000);
        fields.finish(&SHARED_FIELDS);
        let socket = socket.map(|path| path.unwrap_or("/run/docker/plugins/berth.sock".to_owned()));
        let engine = engine.map(|path| path.unwrap_or("/run/docker.sock".to_owned()));
        let mount_timeout = mount_timeout.map(|ms| ms.unwrap_or(110_000));
        let is_absolute = state_dir.as_ref().is_none_or(|dir| Path::new(dir).is_absolute());
        let sound = decoder.demand(is_absolute, "state_dir", "must be an absolute path")
            & socket.as_ref().is_none_or(|path| check_socket_path(decoder, "socket", path))
            & engine.as_ref().is_none_or(|path| check_socket_path(decoder, "engine", path))
            & decoder.demand(
                mount_timeout.is_none_or(|ms| (100..=115_000).contains(&ms)),
                "mount_timeout_ms",
                "must be from 100 to 115000: the engine waits for 120 s",
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
