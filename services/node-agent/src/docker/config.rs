//! What is configured for Docker: nothing, unless `docker_socket` says where.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::decode::Decoder;
use serde_json::{Map, Value};

/// The longest path of a socket, in bytes (unix(7), `sun_path` with its closing zero).
const SOCKET_BYTES_MAX: usize = 107;
/// Where engines listen.
const ENGINE: &str = "/run/docker.sock";
/// The engine itself waits for 120 s.
const MOUNT_TIMEOUT_MS: u64 = 110_000;

/// The fields at the top level of the agent's configuration.
pub const FIELDS: [&str; 3] = ["docker_socket", "docker_engine", "docker_mount_timeout_ms"];

/// What may be configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerConfig {
    /// Where the volume plugin is served; the name of the file is the name of the driver.
    pub socket: PathBuf,
    /// Where the engine is asked who uses a volume.
    pub engine: PathBuf,
    /// How long a mount may keep the engine waiting.
    pub mount_timeout: Duration,
}

/// Reads the fields; `Some(None)` when Docker is not served.
pub fn decode(
    decoder: &mut Decoder,
    object: &mut Map<String, Value>,
) -> Option<Option<DockerConfig>> {
    let socket = decoder.field::<Option<String>>(object, FIELDS[0]);
    let engine = decoder.field::<Option<String>>(object, FIELDS[1]);
    let timeout = decoder.field::<Option<u64>>(object, FIELDS[2]);
    let (socket, engine) = (socket?, engine?);
    let paths = [(FIELDS[0], &socket), (FIELDS[1], &engine)];
    // All of them, so that every fault is told.
    let mut sound =
        !paths.map(|(field, path)| is_sound(decoder, field, path.as_deref())).contains(&false);
    let timeout = timeout?.unwrap_or(MOUNT_TIMEOUT_MS);
    if !(100..=115_000).contains(&timeout) {
        sound = false;
        decoder.at(format!(".{}", FIELDS[2]), |decoder| {
            decoder.fault("must be from 100 to 115000: the engine waits for 120 s");
        });
    }
    if !sound {
        return None;
    }
    Some(socket.map(|socket| DockerConfig {
        socket: socket.into(),
        engine: engine.unwrap_or_else(|| ENGINE.to_owned()).into(),
        mount_timeout: Duration::from_millis(timeout),
    }))
}

fn is_sound(decoder: &mut Decoder, field: &str, path: Option<&str>) -> bool {
    let problem = match path {
        Some(path) if !Path::new(path).is_absolute() => {
            "must be an absolute path, without unix://".to_owned()
        }
        Some(path) if path.len() > SOCKET_BYTES_MAX => {
            format!("has {} bytes; a socket's path has {SOCKET_BYTES_MAX}", path.len())
        }
        Some(_) | None => return true,
    };
    decoder.at(format!(".{field}"), |decoder| decoder.fault(problem));
    false
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Decode, Unknown, decode as whole};
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Fields(Option<DockerConfig>);

    impl Decode for Fields {
        fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
            let mut object = decoder.object(value)?;
            let read = decode(decoder, &mut object);
            decoder.finish(&object, &FIELDS);
            read.map(Self)
        }
    }

    #[test]
    fn nothing_is_served_unless_it_is_said_where() {
        let none = whole::<Fields>(json!({"docker_engine": "/run/other.sock"}), Unknown::Fault);
        assert_eq!(none.unwrap().0, None);
        let socket = "/run/docker/plugins/berth.sock";
        let served = whole::<Fields>(json!({"docker_socket": socket}), Unknown::Fault);
        let served = served.unwrap().0.unwrap();
        assert_eq!((served.socket, served.engine), (socket.into(), ENGINE.into()));
        assert_eq!(served.mount_timeout, Duration::from_secs(110));
    }

    #[test]
    fn every_fault_comes_at_once() {
        let input = json!({
            "docker_socket": "berth.sock",
            "docker_engine": format!("/{}", "x".repeat(200)),
            "docker_mount_timeout_ms": 120_000,
        });
        let faults = whole::<Fields>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, FIELDS);
    }
}
