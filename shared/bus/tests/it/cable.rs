//! A cable in which one direction can be lost: a write that arrives, an acknowledgement that does
//! not.

use std::net::{Ipv4Addr, SocketAddr};

use berth_harness::nats::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Whole,
    /// The server's bytes are lost.
    Deaf,
    /// The client's bytes are lost.
    Mute,
    /// The client's writes to buckets are lost; everything else arrives.
    Unwritten,
    /// Connections break, also new ones.
    Cut,
}

/// A loopback address that leads to a server.
pub struct Cable {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    accepting: JoinHandle<()>,
}

impl Cable {
    pub async fn to(server: &Server) -> Self {
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, modes) = watch::channel(Mode::Whole);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(join(client, target, modes.clone()));
            }
        });
        Self { address, mode, accepting }
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// From now on everything that the server sends is lost. Only [`cut`](Self::cut) may follow.
    pub fn deafen(&self) {
        self.mode.send_replace(Mode::Deaf);
    }

    /// From now on everything that the client sends is lost. Only [`cut`](Self::cut) may follow.
    pub fn mute(&self) {
        self.mode.send_replace(Mode::Mute);
    }

    /// No write arrives from now on, and each read does: as a server answers whose disk is full.
    pub fn lose_writes(&self) {
        self.mode.send_replace(Mode::Unwritten);
    }

    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Everything arrives; after a cut, on new connections.
    pub fn heal(&self) {
        self.mode.send_replace(Mode::Whole);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn join(client: TcpStream, target: SocketAddr, modes: watch::Receiver<Mode>) {
    let mut broken = modes.clone();
    let carry = async {
        let Ok(server) = TcpStream::connect(target).await else { return };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let up = modes.clone();
        tokio::join!(
            async {
                let mut buffer = vec![0; 65536];
                while let Ok(size @ 1..) = from_client.read(&mut buffer).await {
                    // Bytes that were read before the cut, but not passed on, are lost, too.
                    let lost = match *up.borrow() {
                        Mode::Mute | Mode::Cut => true,
                        Mode::Unwritten => is_write(&buffer[..size]),
                        Mode::Whole | Mode::Deaf => false,
                    };
                    if !lost && to_server.write_all(&buffer[..size]).await.is_err() {
                        break;
                    }
                }
            },
            async {
                let mut buffer = vec![0; 65536];
                while let Ok(size @ 1..) = from_server.read(&mut buffer).await {
                    let lost = matches!(*modes.borrow(), Mode::Deaf | Mode::Cut);
                    if !lost && to_client.write_all(&buffer[..size]).await.is_err() {
                        break;
                    }
                }
            }
        );
    };
    tokio::select! {
        () = carry => {}
        _ = broken.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

fn is_write(sent: &[u8]) -> bool {
    const START: &[u8] = b"HPUB $KV.";
    sent.windows(START.len()).any(|part| part == START)
}
