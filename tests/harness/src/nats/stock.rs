//! Removes and restores a stream as the stock `nats` CLI does, which does not know Berth.

use std::path::Path;

use serde_json::{Value, json};

use super::{Server, raw, wire};

/// Bytes of one message.
const CHUNK: usize = 64 * 1024;

/// Removes the stream of a backup, if it is there, and restores it.
///
/// # Panics
/// When the directory has no backup, or the server refuses it.
pub async fn restore(server: &Server, dir: &Path) {
    let stream = remove(server, dir).await;
    let described = read_description(dir);
    let request = json!({ "config": described["config"], "state": described["state"] });
    let subject = format!("$JS.API.STREAM.RESTORE.{stream}");
    let started = raw::ask(server, &subject, &[], request.to_string().as_bytes()).await;
    let deliver = started["deliver_subject"].as_str().unwrap_or_else(|| panic!("{started}"));
    let content = std::fs::read(dir.join("stream.tar.s2")).expect("the backup has its content");
    for chunk in content.chunks(CHUNK) {
        wire::exchange(server, deliver, &[], chunk).await.expect("the server takes a chunk");
    }
    let ended = raw::ask(server, deliver, &[], b"").await;
    assert!(ended["error"].is_null(), "{stream} is not restored: {ended}");
}

/// Removes the stream of a backup, if it is there. Returns its name.
pub async fn remove(server: &Server, dir: &Path) -> String {
    let described = read_description(dir);
    let stream = described["config"]["name"].as_str().expect("the backup has a name").to_owned();
    raw::ask(server, &format!("$JS.API.STREAM.DELETE.{stream}"), &[], b"").await;
    stream
}

fn read_description(dir: &Path) -> Value {
    let text = std::fs::read(dir.join("backup.json")).expect("the backup has a description");
    serde_json::from_slice(&text).expect("the description is JSON")
}
