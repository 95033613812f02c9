//! As much of the NATS protocol as asking one question takes.
//!
//! The harness judges the crate that holds Berth's client, so it does not use that client.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest wait for a greeting or a reply. A cluster without a leader gives none, so short.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects and reads the server's `INFO` line: it serves clients.
pub(super) async fn greeting(server: SocketAddr) -> io::Result<()> {
    in_time(async { connect(server).await.map(drop) }).await
}

/// Sends a request to a JetStream API subject and returns the reply, which must not be an error.
pub(super) async fn ask(server: SocketAddr, subject: &str, body: &Value) -> io::Result<Value> {
    let body = body.to_string();
    let reply = in_time(exchange(server, subject, &[], body.as_bytes())).await?;
    let reply: Value = serde_json::from_slice(&reply)?;
    match reply.get("error") {
        None => Ok(reply),
        Some(error) => Err(io::Error::other(format!("{subject}: {error}"))),
    }
}

/// Sends a request with these headers and returns the body of its reply, however long that takes.
pub(super) async fn exchange(
    server: SocketAddr,
    subject: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Vec<u8>> {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let inbox = format!("_INBOX.berth.harness.{}", ASKED.fetch_add(1, Ordering::Relaxed));
    let mut stream = connect(server).await?;
    let lines: String = headers.iter().flat_map(|(n, value)| [n, ": ", value, "\r\n"]).collect();
    let head = format!("NATS/1.0\r\n{lines}\r\n");
    let (head_len, len) = (head.len(), head.len() + body.len());
    let options = r#"{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}"#;
    let opening = format!(
        "CONNECT {options}\r\nSUB {inbox} 1\r\nHPUB {subject} {inbox} {head_len} {len}\r\n"
    );
    let all = [opening.as_bytes(), head.as_bytes(), body, b"\r\n"].concat();
    stream.get_mut().write_all(&all).await?;
    read_message(&mut stream).await
}

/// Sends a message so often, with an inbox for answers that is not read. The server has them all
/// when this returns.
pub(super) async fn publish(
    server: SocketAddr,
    subject: &str,
    body: &[u8],
    times: u64,
) -> io::Result<()> {
    let mut stream = connect(server).await?;
    let head = format!("PUB {subject} _INBOX.nobody {}\r\n", body.len());
    let message = [head.as_bytes(), body, b"\r\n"].concat();
    stream.get_mut().write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\n").await?;
    for _ in 0..times {
        stream.get_mut().write_all(&message).await?;
    }
    stream.get_mut().write_all(b"PING\r\n").await?;
    loop {
        let line = read_line(&mut stream).await?;
        match line.trim_end() {
            "PONG" => return Ok(()),
            line if line.starts_with("-ERR") => return Err(io::Error::other(line.to_owned())),
            _ => {}
        }
    }
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn connect(server: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let mut stream = BufReader::new(TcpStream::connect(server).await?);
    let line = read_line(&mut stream).await?;
    if line.starts_with("INFO ") { Ok(stream) } else { Err(io::Error::other(line)) }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

/// Reads up to the one message that the inbox gets: `MSG <subject> <sid> <size>` and its body, or
/// `HMSG <subject> <sid> <size of the headers> <size>`, its headers and its body.
async fn read_message(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let size = |word: &str| word.parse::<usize>().map_err(io::Error::other);
    loop {
        let line = read_line(stream).await?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let (head, whole) = match words.as_slice() {
            ["MSG", .., whole] => (0, size(whole)?),
            ["HMSG", .., head, whole] => (size(head)?, size(whole)?),
            ["PING"] => {
                stream.get_mut().write_all(b"PONG\r\n").await?;
                continue;
            }
            ["-ERR", ..] => return Err(io::Error::other(line)),
            _ => continue,
        };
        let mut message = vec![0; whole];
        stream.read_exact(&mut message).await?;
        return Ok(message.split_off(head));
    }
}
