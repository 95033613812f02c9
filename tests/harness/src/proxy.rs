//! A cable between a process and a server, that a test can cut.
//!
//! Owns: the connections that go through it. Promises: bytes pass unchanged and in order until told
//! otherwise. Never: looks at them. It runs on the test's own runtime and ends with the [`Proxy`].

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ports::Port;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cable {
    Whole,
    /// Connections stay, nothing moves.
    Silent,
    /// Connections break, also new ones.
    Cut,
}

/// A loopback address that leads to another one.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    cable: watch::Sender<Cable>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await;
        let listener = listener.expect("a reserved port can be listened on");
        let (cable, state) = watch::channel(Cable::Whole);
        let accepting = tokio::spawn(accept(listener, target, state));
        Self { port, cable, accepting }
    }

    /// Where to connect instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `nats://<address>`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Breaks every connection, and new ones at once, until healed.
    pub fn cut(&self) {
        self.cable.send_replace(Cable::Cut);
    }

    /// Lets connections stand, and be made, with nothing passing in either direction until healed.
    pub fn half_open(&self) {
        self.cable.send_replace(Cable::Silent);
    }

    /// Lets bytes pass again: those held back come first, broken connections stay broken.
    pub fn heal(&self) {
        self.cable.send_replace(Cable::Whole);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, cable: watch::Receiver<Cable>) {
    // A failed accept is the client's loss; it sees its connection break.
    while let Ok((client, _)) = listener.accept().await {
        if *cable.borrow() != Cable::Cut {
            tokio::spawn(join(client, target, cable.clone()));
        }
    }
}

/// Carries one connection until either side closes it or the cable is cut.
async fn join(client: TcpStream, target: SocketAddr, cable: watch::Receiver<Cable>) {
    let mut broken = cable.clone();
    let carry = async {
        let mut open = cable.clone();
        // A silent cable reaches nobody: the target learns of the connection later.
        open.wait_for(|cable| *cable == Cable::Whole).await.map_err(io::Error::other)?;
        let (from_client, to_client) = client.into_split();
        let (from_target, to_target) = TcpStream::connect(target).await?.into_split();
        tokio::try_join!(
            pump(from_client, to_target, cable.clone()),
            pump(from_target, to_client, cable),
        )
    };
    tokio::select! {
        _ = carry => {}
        // Also ends when the proxy is gone.
        _ = broken.wait_for(|cable| *cable == Cable::Cut) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut cable: watch::Receiver<Cable>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let size = from.read(&mut buffer).await?;
        cable.wait_for(|cable| *cable == Cable::Whole).await.map_err(io::Error::other)?;
        if size == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..size]).await?;
    }
}
