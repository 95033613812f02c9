//! What may sit at a plugin's socket without being a plugin.
//!
//! Owns: being there, and being of no use. Promises: it takes every connection, until SIGTERM or
//! SIGINT. Never: answers a call.

use std::io;

use clap::ValueEnum;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// What HTTP/1 servers answer to what they do not understand.
const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/// Connections that are held open; more are closed at once.
const HELD_MAX: usize = 256;

/// What is at the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Speech {
    /// The plugin
    #[default]
    Grpc,
    /// Nobody: connections are taken, and nothing is ever said
    Nothing,
    /// A web server of the first kind, which understands no gRPC
    Http1,
}

/// Holds connections, or turns them away, until `stop` is done.
pub async fn sit(
    listener: UnixListener,
    speech: Speech,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    tokio::pin!(stop);
    let mut held = Vec::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            () = &mut stop => return Ok(()),
        };
        match speech {
            Speech::Http1 => _ = tokio::spawn(turn_away(stream)),
            Speech::Grpc | Speech::Nothing if held.len() < HELD_MAX => held.push(stream),
            Speech::Grpc | Speech::Nothing => {}
        }
    }
}

/// Whoever breaks off has only itself to tell.
async fn turn_away(mut stream: UnixStream) {
    let mut request = [0; 1024];
    _ = stream.read(&mut request).await;
    _ = stream.write_all(BAD_REQUEST).await;
}
