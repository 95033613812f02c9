//! A message of bytes and headers that no client of ours would send.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::{Server, wire};

/// How long an answer is waited for: also one that comes long after its caller's deadline.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who sends to Berth's subjects, at their end: a person without an agent or a service of ours.
const ACTOR: &str = "user.test";

/// Asks, and reads the answer as JSON. A subject of Berth's is given without the actor at its end.
pub async fn ask(server: &Server, subject: &str, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let subject = signed(subject);
    let answer = timeout(PATIENCE, wire::exchange(server, &subject, headers, body)).await;
    let answer = answer.expect("an answer comes in time").expect("the server can be talked to");
    serde_json::from_slice(&answer).expect("the answer is JSON")
}

/// Sends the same message so often, on one connection, and waits for no answer.
pub async fn flood(server: &Server, subject: &str, body: &[u8], times: u64) -> io::Result<()> {
    timeout(PATIENCE, wire::publish(server, &signed(subject), body, times)).await?
}

/// The subject as it is sent.
fn signed(subject: &str) -> String {
    if subject.starts_with("berth.") { format!("{subject}.{ACTOR}") } else { subject.to_owned() }
}
