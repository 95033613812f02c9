//! As much of the NATS protocol as asking one question takes.
//!
//! The harness judges the crate that holds Berth's client, so it does not use that client.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest wait for a greeting or a reply. A cluster without a leader gives none, so short.
const PATIENCE: Duration = Duration::from_secs(1);

const INBOX: &str = "_INBOX.berth.harness";

/// Connects and reads the server's `INFO` line: it serves clients.
pub(super) async fn greeting(server: SocketAddr) -> io::Result<()> {
    in_time(async { connect(server).await.map(drop) }).await
}

/// Sends a request to a JetStream API subject and returns the reply, which must not be an error.
pub(super) async fn ask(server: SocketAddr, subject: &str, body: &Value) -> io::Result<Value> {
    in_time(async {
        let mut stream = connect(server).await?;
        let body = body.to_string();
        let request = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {INBOX} 1\r\n\
             PUB {subject} {INBOX} {}\r\n{body}\r\n",
            body.len()
        );
        stream.get_mut().write_all(request.as_bytes()).await?;
        let reply: Value = serde_json::from_slice(&read_message(&mut stream).await?)?;
        match reply.get("error") {
            None => Ok(reply),
            Some(error) => Err(io::Error::other(format!("{subject}: {error}"))),
        }
    })
    .await
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

/// Reads up to the one message that the inbox gets: `MSG <subject> <sid> <size>`, then its body.
async fn read_message(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    loop {
        let line = read_line(stream).await?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["MSG", .., size] => {
                let mut body = vec![0; size.parse().map_err(io::Error::other)?];
                stream.read_exact(&mut body).await?;
                return Ok(body);
            }
            ["PING"] => stream.get_mut().write_all(b"PONG\r\n").await?,
            ["-ERR", ..] => return Err(io::Error::other(line)),
            _ => {}
        }
    }
}
