//! A client of the plugin's socket that sends HTTP/1.1 by hand, as the engine does.

use std::path::PathBuf;
use std::time::Duration;

use berth_harness::wait;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::PATIENCE;

/// Deadline of an answer, longer than any answer takes.
const ANSWER: Duration = Duration::from_secs(130);

/// A plugin's socket.
pub struct Plugin {
    socket: PathBuf,
}

/// A response of the plugin.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body; null when it is no JSON.
    pub body: Value,
}

impl Answer {
    /// The error, empty when there is none.
    pub fn error(&self) -> &str {
        self.body["Err"].as_str().unwrap_or_default()
    }

    /// Whether the request succeeded.
    pub fn is_done(&self) -> bool {
        self.status == 200 && self.error().is_empty()
    }
}

/// Sends the same request again until it succeeds.
pub async fn until_done(what: &str, send: impl AsyncFn() -> Answer) {
    wait::until(what, PATIENCE, || async {
        let answer = send().await;
        if answer.is_done() { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

impl Plugin {
    pub(crate) fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Sends a request to an endpoint, such as `VolumeDriver.Mount`, and returns its response.
    pub async fn ask(&self, endpoint: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.say(&request("POST", endpoint, &body)).await.expect("the plugin answers")
    }

    /// Mounts a volume for an ID.
    pub async fn mount(&self, name: &str, id: &str) -> Answer {
        self.ask("VolumeDriver.Mount", &json!({"Name": name, "ID": id})).await
    }

    /// Unmounts a volume for an ID.
    pub async fn unmount(&self, name: &str, id: &str) -> Answer {
        self.ask("VolumeDriver.Unmount", &json!({"Name": name, "ID": id})).await
    }

    /// Creates a name with these options.
    pub async fn create(&self, name: &str, options: Value) -> Answer {
        self.ask("VolumeDriver.Create", &json!({"Name": name, "Opts": options})).await
    }

    /// Removes a name.
    pub async fn remove(&self, name: &str) -> Answer {
        self.ask("VolumeDriver.Remove", &json!({"Name": name})).await
    }

    /// The names that the plugin lists.
    ///
    /// # Panics
    /// When it answers with an error.
    pub async fn list(&self) -> Vec<String> {
        let listed = self.ask("VolumeDriver.List", &json!({})).await;
        assert!(listed.is_done(), "{listed:?}");
        let volumes = listed.body["Volumes"].as_array().into_iter().flatten();
        volumes.map(|volume| volume["Name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The response of `VolumeDriver.Get` for a volume.
    pub async fn get(&self, name: &str) -> Answer {
        self.ask("VolumeDriver.Get", &json!({"Name": name})).await
    }

    /// How many references a volume has, by its status.
    pub async fn references(&self, name: &str) -> u64 {
        let shown = self.get(name).await;
        let references = &shown.body["Volume"]["Status"]["references"];
        // A name without a holder shows no mount point.
        assert!(references.is_u64() || shown.body["Volume"].is_object(), "{shown:?}");
        references.as_u64().unwrap_or_default()
    }

    /// Sends these bytes, and returns the response; none when the plugin closes the connection.
    pub async fn say(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.ok()?;
        let mut bytes_read = Vec::new();
        let read = timeout(ANSWER, stream.read_to_end(&mut bytes_read)).await;
        read.expect("the plugin answers in time").ok()?;
        let text = String::from_utf8_lossy(&bytes_read).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { status, body: serde_json::from_str(body).unwrap_or_default() })
    }

    /// Sends a mount request without waiting. The connection closes when the returned value is
    /// dropped.
    pub async fn mount_and_leave(&self, name: &str, id: &str) -> UnixStream {
        let mut stream = self.connect().await;
        let body = json!({"Name": name, "ID": id}).to_string();
        let message = request("POST", "VolumeDriver.Mount", &body);
        stream.write_all(&message).await.expect("the request is sent");
        stream
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.expect("the plugin listens")
    }
}

/// A request as the engine writes it.
pub fn request(method: &str, endpoint: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} /{endpoint} HTTP/1.1\r\nHost: plugin.moby.localhost\r\n\
         Accept: application/vnd.docker.plugins.v1.2+json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
