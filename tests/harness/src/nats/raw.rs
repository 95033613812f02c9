//! Messages with any bytes and headers, which no client of Berth would send.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::{Server, wire};

/// How long an answer may take. An answer may come long after its caller's deadline.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sender, the end of each of Berth's subjects: a person, and no agent or service.
const ACTOR: &str = "user.test";

/// Sends a request, and reads the answer as JSON. Berth's subjects are given without the actor.
pub async fn ask(server: &Server, subject: &str, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let subject = with_actor(subject);
    let answer = timeout(PATIENCE, wire::exchange(server, &subject, headers, body)).await;
    let answer = answer.expect("an answer comes in time").expect("the server can be reached");
    serde_json::from_slice(&answer).expect("the answer is JSON")
}

/// Sends the same message `times` times, on one connection, and waits for no answer.
pub async fn flood(server: &Server, subject: &str, body: &[u8], times: u64) -> io::Result<()> {
    timeout(PATIENCE, wire::publish(server, &with_actor(subject), body, times)).await?
}

/// Appends the actor to a subject of Berth's. Other subjects have no actor.
fn with_actor(subject: &str) -> String {
    if subject.starts_with("berth.") { format!("{subject}.{ACTOR}") } else { subject.to_owned() }
}
