//! Asks Docker's engine which containers use a volume.
//!
//! **Never** changes anything in the engine.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long the engine may take. It does not answer while it starts.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it may take if Docker waits for this plugin at the same time. The engine's list of
/// containers needs no lock that Docker's request holds.
const QUICK_LIST_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest response that is read, in bytes: some thousand containers.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The states in which a container uses its volumes.
const STATES_IN_USE: [&str; 4] = ["running", "paused", "restarting", "removing"];
/// The state of a container that was never started.
const STATE_CREATED: &str = "created";

/// Why the users are unknown.
#[derive(Debug, Error)]
pub enum EngineError {
    #[error("the engine is not reached")]
    Connect(#[source] std::io::Error),
    #[error("the engine did not answer")]
    Http(#[source] hyper::Error),
    #[error("the engine answered {0}")]
    Status(StatusCode),
    #[error("the engine's answer cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the engine did not answer in time")]
    Late,
}

/// A container in the engine's list.
#[derive(Debug, Deserialize)]
struct EngineContainer {
    #[serde(rename = "Id")]
    id: String,
    #[serde(rename = "State", default)]
    state: String,
    #[serde(rename = "Mounts", default)]
    mounts: Vec<EngineMount>,
}

#[derive(Debug, Deserialize)]
struct EngineMount {
    #[serde(rename = "Type", default)]
    kind: String,
    #[serde(rename = "Name", default)]
    name: String,
}

impl EngineMount {
    fn is_volume(&self, name: &str) -> bool {
        self.kind == "volume" && self.name == name
    }
}

/// The ids of the containers that use the volume of this name now.
pub async fn list_users(engine: &Path, volume: &str) -> Result<Vec<String>, EngineError> {
    let containers = list_containers(engine, volume, LIST_TIMEOUT).await?.into_iter();
    let using = containers.filter(|container| STATES_IN_USE.contains(&container.state.as_str()));
    Ok(using.map(|container| container.id.chars().take(12).collect()).collect())
}

/// The ids of all containers with the volume of this name, also of those that do not run.
pub async fn list_holders(engine: &Path, volume: &str) -> Result<Vec<String>, EngineError> {
    let containers = list_containers(engine, volume, LIST_TIMEOUT).await?.into_iter();
    Ok(containers.map(|container| container.id.chars().take(12).collect()).collect())
}

/// Whether the engine is making a container with the volume: no container uses it, and one was
/// created and never started. Old engines list a container only after they have copied the image's
/// files into its volumes, so a volume without any container counts, too.
pub async fn makes_container(engine: &Path, volume: &str) -> Result<bool, EngineError> {
    let containers = list_containers(engine, volume, QUICK_LIST_TIMEOUT).await?;
    let states: Vec<&str> = containers.iter().map(|container| container.state.as_str()).collect();
    Ok(is_container_being_made(&states))
}

fn is_container_being_made(states: &[&str]) -> bool {
    let is_used = states.iter().any(|state| STATES_IN_USE.contains(state));
    !is_used && (states.is_empty() || states.contains(&STATE_CREATED))
}

/// All containers with the volume.
async fn list_containers(
    engine: &Path,
    volume: &str,
    within: Duration,
) -> Result<Vec<EngineContainer>, EngineError> {
    let listed = timeout(within, fetch_containers(engine, volume)).await;
    let mut containers = listed.map_err(|_| EngineError::Late)??;
    // The engine's filter also matches the paths of mount points.
    containers.retain(|container| container.mounts.iter().any(|mount| mount.is_volume(volume)));
    Ok(containers)
}

async fn fetch_containers(
    engine: &Path,
    volume: &str,
) -> Result<Vec<EngineContainer>, EngineError> {
    let stream = UnixStream::connect(engine).await.map_err(EngineError::Connect)?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(EngineError::Http)?;
    // The task ends with this request: nothing is sent after it.
    let connection = tokio::spawn(connection);
    let filters = serde_json::json!({"volume": [volume]}).to_string();
    let filters = utf8_percent_encode(&filters, NON_ALPHANUMERIC);
    let request = Request::get(format!("/containers/json?all=1&filters={filters}"))
        .header("Host", "docker")
        .body(Empty::<Bytes>::new())
        .map_err(|error| EngineError::Answer(Box::new(error)))?;
    let response = sender.send_request(request).await.map_err(EngineError::Http)?;
    if response.status() != StatusCode::OK {
        return Err(EngineError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
    let body = body.map_err(EngineError::Answer)?.to_bytes();
    connection.abort();
    serde_json::from_slice(&body).map_err(|error| EngineError::Answer(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_is_being_made_while_none_uses_the_volume() {
        for (states, expected) in [
            (&[][..], true),
            (&["created"], true),
            (&["exited", "created"], true),
            (&["exited"], false),
            (&["created", "running"], false),
            (&["removing"], false),
        ] {
            assert_eq!(is_container_being_made(states), expected, "{states:?}");
        }
    }

    #[tokio::test]
    async fn absent_engine_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = list_users(&dir.path().join("none.sock"), "data").await.unwrap_err();
        assert!(matches!(error, EngineError::Connect(_)), "{error}");
    }
}
