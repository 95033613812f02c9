//! Requests to a server, by a client that none of Berth's crates configured.
//!
//! The harness tests the crate of Berth's client, so it does not use that crate.

use std::io;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, HeaderMap, Request, Subscriber};
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Server;

/// The longest wait for a greeting or a reply. Short, since a cluster without a leader gives none.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects and reads the server's `INFO` line: it serves clients.
pub(super) async fn greeting(server: &Server) -> io::Result<()> {
    in_time(async {
        let mut line = String::new();
        BufReader::new(TcpStream::connect(server.address()).await?).read_line(&mut line).await?;
        if line.starts_with("INFO ") { Ok(()) } else { Err(io::Error::other(line)) }
    })
    .await
}

/// Sends a request to a JetStream API subject and returns the reply, which must not be an error.
pub(super) async fn ask(server: &Server, subject: &str, body: &Value) -> io::Result<Value> {
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
    server: &Server,
    subject: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Vec<u8>> {
    let mut header_map = HeaderMap::new();
    for (name, value) in headers {
        header_map.append(*name, *value);
    }
    let request = Request::new().headers(header_map).payload(body.to_vec().into()).timeout(None);
    let client = connect(server).await?;
    let reply = client.send_request(subject.to_owned(), request).await;
    Ok(reply.map_err(io::Error::other)?.payload.into())
}

/// Sends a message `times` times, with an inbox for answers that is not read. The server has all of
/// them when this returns.
pub(super) async fn publish(
    server: &Server,
    subject: &str,
    body: &[u8],
    times: u64,
) -> io::Result<()> {
    let client = connect(server).await?;
    for _ in 0..times {
        let (subject, inbox) = (subject.to_owned(), "_INBOX.unread");
        let sent = client.publish_with_reply(subject, inbox, body.to_vec().into()).await;
        sent.map_err(io::Error::other)?;
    }
    wait_until_read(&client).await
}

/// The messages of a subject. The server has the subscription when this returns.
pub(super) async fn subscribe(server: &Server, subject: &str) -> io::Result<Subscriber> {
    let client = connect(server).await?;
    let subscriber = client.subscribe(subject.to_owned()).await.map_err(io::Error::other)?;
    wait_until_read(&client).await?;
    Ok(subscriber)
}

/// Waits until the server has read what the client sent so far: until a message of its own is back.
/// A flush only hands it to the kernel.
async fn wait_until_read(client: &Client) -> io::Result<()> {
    let inbox = client.new_inbox();
    let mut echo = client.subscribe(inbox.clone()).await.map_err(io::Error::other)?;
    client.publish(inbox, Vec::new().into()).await.map_err(io::Error::other)?;
    client.flush().await.map_err(io::Error::other)?;
    echo.next().await.map(drop).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

async fn in_time<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn connect(server: &Server) -> io::Result<Client> {
    let options = ConnectOptions::new().ignore_discovered_servers().max_reconnects(1);
    let options = match server.login() {
        None => options,
        Some(login) => options
            .credentials_file(&login.creds_file)
            .await?
            .add_root_certificates(login.ca_file.clone())
            .require_tls(true),
    };
    // Boxed: its future is larger than all the futures around it.
    Box::pin(options.connect(server.url())).await.map_err(io::Error::other)
}
