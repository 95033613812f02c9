//! Servers that are no plugin, at a plugin's socket.
//!
//! Owns: a silent server and an HTTP/1 server. Promises: both accept connections until SIGTERM or
//! SIGINT. Never: answers a call.

use std::io;

use clap::ValueEnum;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// The answer of an HTTP/1 server to a gRPC request.
const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/// Connections that are held at most; more are closed at once.
const HELD_MAX: usize = 256;

/// What the server at the endpoint speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Speech {
    /// The plugin
    #[default]
    Grpc,
    /// Connections are accepted, and nothing is ever sent
    Nothing,
    /// A web server that speaks HTTP/1 only
    Http1,
}

/// Holds connections, or answers and closes them, until `stop` is done.
pub async fn sit(
    listener: UnixListener,
    speech: Speech,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    tokio::pin!(stop);
    let mut streams = Vec::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            () = &mut stop => return Ok(()),
        };
        match speech {
            Speech::Http1 => _ = tokio::spawn(turn_away(stream)),
            Speech::Grpc | Speech::Nothing if streams.len() < HELD_MAX => streams.push(stream),
            Speech::Grpc | Speech::Nothing => {}
        }
    }
}

/// A client that disconnects early needs no answer.
async fn turn_away(mut stream: UnixStream) {
    let mut request = [0; 1024];
    _ = stream.read(&mut request).await;
    _ = stream.write_all(BAD_REQUEST).await;
}
