//! The engine, asked who uses a volume.
//!
//! **Never** changes anything there.

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

/// How long the engine may take; one that starts answers nothing for a while.
const ANSWER: Duration = Duration::from_secs(10);
/// The same where Docker waits for us meanwhile; its list of containers takes no lock of theirs.
const QUICK_ANSWER: Duration = Duration::from_millis(500);
/// The longest answer that is read: some thousand containers.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The states in which a container uses its volumes.
const USING: [&str; 4] = ["running", "paused", "restarting", "removing"];
/// The state of a container that has not been started.
const CREATED: &str = "created";

/// Why it is not known.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Nobody listens there.
    #[error("the engine is not reached")]
    Connect(#[source] std::io::Error),
    /// It did not speak HTTP, or stopped.
    #[error("the engine did not answer")]
    Http(#[source] hyper::Error),
    /// It answered something else.
    #[error("the engine answered {0}")]
    Status(StatusCode),
    /// The answer cannot be read.
    #[error("the engine's answer cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("the engine did not answer in time")]
    Late,
}

/// A container in the engine's list.
#[derive(Debug, Deserialize)]
struct Container {
    #[serde(rename = "Id")]
    id: String,
    #[serde(rename = "State", default)]
    state: String,
    #[serde(rename = "Mounts", default)]
    mounts: Vec<MountPoint>,
}

#[derive(Debug, Deserialize)]
struct MountPoint {
    #[serde(rename = "Type", default)]
    kind: String,
    #[serde(rename = "Name", default)]
    name: String,
}

impl MountPoint {
    fn is_volume(&self, name: &str) -> bool {
        self.kind == "volume" && self.name == name
    }
}

/// The containers that use the volume of this name now, by their ids.
pub async fn users(engine: &Path, volume: &str) -> Result<Vec<String>, EngineError> {
    let asked = timeout(ANSWER, list(engine, volume)).await.map_err(|_| EngineError::Late)?;
    let uses = |container: &Container| {
        USING.contains(&container.state.as_str())
            && container.mounts.iter().any(|at| at.is_volume(volume))
    };
    let using = asked?.into_iter().filter(uses);
    Ok(using.map(|container| container.id.chars().take(12).collect()).collect())
}

/// Whether the engine is making a container with the volume: none uses it, and one was created and
/// not started. Older engines do not list a container before they have copied into its volumes
/// what the image has there, so none at all says the same.
pub async fn makes_container(engine: &Path, volume: &str) -> Result<bool, EngineError> {
    let asked = timeout(QUICK_ANSWER, list(engine, volume)).await.map_err(|_| EngineError::Late)?;
    let has = |container: &Container| container.mounts.iter().any(|at| at.is_volume(volume));
    let states: Vec<String> =
        asked?.into_iter().filter(has).map(|container| container.state).collect();
    Ok(is_made(&states))
}

/// The same by the states of all containers with the volume.
fn is_made<S: AsRef<str>>(states: &[S]) -> bool {
    let is_used = states.iter().any(|state| USING.contains(&state.as_ref()));
    let waits = states.iter().any(|state| state.as_ref() == CREATED);
    !is_used && (waits || states.is_empty())
}

async fn list(engine: &Path, volume: &str) -> Result<Vec<Container>, EngineError> {
    let stream = UnixStream::connect(engine).await.map_err(EngineError::Connect)?;
    let (mut ask, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(EngineError::Http)?;
    // It ends with the question: nothing is sent after it.
    let connection = tokio::spawn(connection);
    let filters = serde_json::json!({"volume": [volume]}).to_string();
    let filters = utf8_percent_encode(&filters, NON_ALPHANUMERIC);
    let request = Request::get(format!("/containers/json?all=1&filters={filters}"))
        .header("Host", "docker")
        .body(Empty::<Bytes>::new())
        .map_err(|error| EngineError::Answer(Box::new(error)))?;
    let response = ask.send_request(request).await.map_err(EngineError::Http);
    let response = match response {
        Ok(response) if response.status() == StatusCode::OK => response,
        Ok(response) => return Err(EngineError::Status(response.status())),
        Err(error) => return Err(error),
    };
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(EngineError::Answer)?.to_bytes();
    connection.abort();
    serde_json::from_slice(&body).map_err(|error| EngineError::Answer(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_being_made_while_none_uses_the_volume() {
        for (states, is) in [
            (&[][..], true),
            (&["created"], true),
            (&["exited", "created"], true),
            (&["exited"], false),
            (&["created", "running"], false),
            (&["removing"], false),
        ] {
            assert_eq!(is_made(states), is, "{states:?}");
        }
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_an_error_and_not_an_absence() {
        let dir = tempfile::tempdir().unwrap();
        let error = users(&dir.path().join("none.sock"), "data").await.unwrap_err();
        assert!(matches!(error, EngineError::Connect(_)), "{error}");
    }
}
