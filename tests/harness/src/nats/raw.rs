//! A question in bare NATS protocol: bytes and headers that no client of ours would send.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Server;

/// How long an answer is waited for: also one that comes long after its caller's deadline.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks, and reads the answer as JSON.
pub async fn ask(server: &Server, subject: &str, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let answer = timeout(PATIENCE, exchange(server, subject, headers, body)).await;
    let answer = answer.expect("an answer comes in time").expect("the server can be talked to");
    serde_json::from_slice(&answer).expect("the answer is JSON")
}

async fn exchange(
    server: &Server,
    subject: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Vec<u8>> {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let inbox = format!("_INBOX.raw.{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await?;
    let mut stream = BufReader::new(stream);
    let lines: String = headers.iter().flat_map(|(n, value)| [n, ": ", value, "\r\n"]).collect();
    let head = format!("NATS/1.0\r\n{lines}\r\n");
    let (head_len, len) = (head.len(), head.len() + body.len());
    let connect = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
    let opening = format!(
        "CONNECT {connect}\r\nSUB {inbox} 1\r\nHPUB {subject} {inbox} {head_len} {len}\r\n"
    );
    let all = [opening.as_bytes(), head.as_bytes(), body, b"\r\n"].concat();
    stream.get_mut().write_all(&all).await?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let size = |word: &str| word.parse::<usize>().map_err(std::io::Error::other);
        let (head, whole) = match words.as_slice() {
            ["MSG", .., whole] => (0, size(whole)?),
            ["HMSG", .., head, whole] => (size(head)?, size(whole)?),
            ["PING"] => {
                stream.get_mut().write_all(b"PONG\r\n").await?;
                continue;
            }
            ["-ERR", ..] | [] => return Err(std::io::Error::other(line)),
            _ => continue,
        };
        let mut answer = vec![0; whole];
        stream.read_exact(&mut answer).await?;
        return Ok(answer.split_off(head));
    }
}
