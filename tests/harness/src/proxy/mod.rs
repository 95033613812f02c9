//! A cable between a process and a server, that a test can cut.
//!
//! Owns: the connections that go through it. Promises: bytes pass unchanged and in order until a
//! test stops them. Never: reads them, except for a tripwire ([`Proxy::across`]), which also allows
//! to withhold what a consumer delivers. It runs on the test's own runtime and ends with the
//! [`Proxy`].
//!
//! ```text
//! frame  the operations of a NATS client and its server, one at a time
//! wire   counting messages, and stopping at one
//! ```

mod frame;
mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use wire::{Passed, Point, Side, Wire};

use crate::ports::Port;
use wire::Verdict;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cable {
    Whole,
    /// Connections stay, nothing moves.
    Silent,
    /// Connections stay, and only this direction carries bytes.
    OneWay(Direction),
    /// New connections break at once.
    Cut,
}

/// A direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the process that connects to the target.
    ToTarget,
    /// From the target to the process that connected.
    FromTarget,
}

impl Cable {
    fn carries(self, direction: Direction) -> bool {
        self == Self::Whole || self == Self::OneWay(direction)
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    cable: Cable,
    /// How often all connections were broken. A connection made before the last break is closed.
    breaks: u64,
    /// How often all connections were lost. A connection made before the last loss carries nothing.
    losses: u64,
    /// How many of these losses have ended: their connections are closed.
    ended_losses: u64,
    /// The stream whose consumers deliver nothing.
    withheld: Option<&'static str>,
}

/// A loopback address that leads to another one.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

/// A tripwire, and the label of this cable there.
#[derive(Clone, Debug)]
struct Tap {
    wire: Wire,
    label: String,
}

impl Proxy {
    /// Starts a cable in front of `target`.
    pub async fn start(target: SocketAddr) -> Self {
        Self::launch(target, None).await
    }

    /// Starts a cable in front of a nats-server, with a tripwire across it.
    pub async fn across(target: SocketAddr, label: &str, wire: &Wire) -> Self {
        Self::launch(target, Some(Tap { wire: wire.clone(), label: label.to_owned() })).await
    }

    async fn launch(target: SocketAddr, tap: Option<Tap>) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await;
        let listener = listener.expect("a reserved port can be listened on");
        let whole =
            State { cable: Cable::Whole, breaks: 0, losses: 0, ended_losses: 0, withheld: None };
        let state = watch::Sender::new(whole);
        let accepting = tokio::spawn(accept(listener, target, state.clone(), tap));
        Self { port, state, accepting }
    }

    /// Where to connect instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// `nats://<address>`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Breaks every connection, and each new one, until healed.
    pub fn cut(&self) {
        self.state.send_modify(|state| {
            state.cable = Cable::Cut;
            state.breaks += 1;
        });
    }

    /// Breaks every connection, and drops the bytes it holds back; new connections are whole.
    pub fn snap(&self) {
        self.state.send_modify(|state| {
            state.cable = Cable::Whole;
            state.breaks += 1;
        });
    }

    /// Keeps connections open and takes new ones, but passes nothing in either direction until
    /// healed.
    pub fn half_open(&self) {
        self.state.send_modify(|state| state.cable = Cable::Silent);
    }

    /// Keeps connections open, but passes bytes only in this direction until healed. The other
    /// direction and every new connection are held back.
    pub fn one_way(&self, direction: Direction) {
        self.state.send_modify(|state| state.cable = Cable::OneWay(direction));
    }

    /// Loses every connection: both ends keep it open, and all that either sends vanishes, with the
    /// bytes held back. New connections are whole.
    pub fn lose(&self) {
        self.state.send_modify(|state| {
            state.cable = Cable::Whole;
            state.losses += 1;
        });
    }

    /// Closes the lost connections, so that both ends learn of the loss.
    pub fn tell_lost(&self) {
        self.state.send_modify(|state| state.ended_losses = state.losses);
    }

    /// Drops everything that a consumer of this stream delivers; `None` drops nothing. A follower
    /// of the stream falls behind, and can do everything else. Needs a tripwire.
    pub fn withhold(&self, stream: Option<&'static str>) {
        self.state.send_modify(|state| state.withheld = stream);
    }

    /// Passes bytes again, those held back first; broken connections stay broken.
    pub fn heal(&self) {
        self.state.send_modify(|state| state.cable = Cable::Whole);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        // Ends the connections, whose tasks also keep the state.
        self.cut();
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    state: watch::Sender<State>,
    tap: Option<Tap>,
) {
    // If accept fails, the client sees its connection break.
    while let Ok((client, _)) = listener.accept().await {
        let born = *state.borrow();
        if born.cable != Cable::Cut {
            tokio::spawn(join(
                client,
                target,
                Connection { state: state.clone(), born, tap: tap.clone() },
            ));
        }
    }
}

/// One connection through the cable.
#[derive(Clone)]
struct Connection {
    state: watch::Sender<State>,
    born: State,
    tap: Option<Tap>,
}

impl Connection {
    fn carries(&self, direction: Direction) -> bool {
        self.state.borrow().cable.carries(direction)
    }

    fn is_lost(&self) -> bool {
        self.state.borrow().losses > self.born.losses
    }

    async fn whole(&self) {
        let mut state = self.state.subscribe();
        // Cannot fail: `self` keeps the sender.
        let _ = state.wait_for(|state| state.cable == Cable::Whole).await;
    }

    async fn open(&self, direction: Direction) {
        let mut state = self.state.subscribe();
        // Cannot fail: `self` keeps the sender.
        let _ = state.wait_for(|state| state.cable.carries(direction)).await;
    }

    async fn broken(&self) {
        let mut state = self.state.subscribe();
        let is_broken = |state: &State| {
            state.breaks > self.born.breaks || state.ended_losses > self.born.losses
        };
        let _ = state.wait_for(is_broken).await;
    }

    /// How many bytes of a client may pass next; none while the operation is incomplete. A message
    /// that trips the wire silences the cable first, so that no byte of its answer passes.
    fn passable(&self, held: &[u8]) -> Option<usize> {
        let Some(tap) = &self.tap else { return (!held.is_empty()).then_some(held.len()) };
        let frame = frame::first(held)?;
        let silence = || self.state.send_modify(|state| state.cable = Cable::Silent);
        let verdict = match &frame.publish {
            Some(publish) => tap.wire.pass(&tap.label, publish, silence),
            None => Verdict::Pass,
        };
        Some(if verdict == Verdict::StopBefore { 0 } else { frame.len })
    }

    /// Takes the bytes of the server that may pass next.
    fn take(&self, held: &mut Vec<u8>) -> Vec<u8> {
        if self.tap.is_none() {
            return std::mem::take(held);
        }
        let withheld = self.state.borrow().withheld;
        let withheld_prefix = withheld.map(|stream| format!("$JS.ACK.{stream}."));
        let (mut passing, mut end) = (Vec::new(), 0);
        while let Some(frame) = frame::first(&held[end..]) {
            let bytes = &held[end..end + frame.len];
            end += frame.len;
            let delivery = withheld_prefix.as_ref().zip(frame.answer_to);
            if !delivery.is_some_and(|(prefix, answer_to)| answer_to.starts_with(prefix)) {
                passing.extend_from_slice(bytes);
            }
        }
        held.drain(..end);
        passing
    }
}

/// Carries one connection until either side closes it or the cable is cut.
async fn join(client: TcpStream, target: SocketAddr, connection: Connection) {
    let carry = async {
        // A silent cable connects to the target once it is healed.
        connection.whole().await;
        let (from_client, to_client) = client.into_split();
        let (from_target, to_target) = TcpStream::connect(target).await?.into_split();
        tokio::try_join!(
            send(from_client, to_target, connection.clone()),
            bring(from_target, to_client, connection.clone()),
        )
    };
    tokio::select! {
        _ = carry => {}
        () = connection.broken() => {}
    }
}

/// Carries bytes from the client to the server, through the tripwire.
async fn send(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: Connection,
) -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        // Read once per round: if the cable is healed right after, the wait below ends at once.
        let mut open = connection.carries(Direction::ToTarget);
        while open && !connection.is_lost() {
            let Some(size) = connection.passable(&held) else { break };
            to.write_all(&held[..size]).await?;
            held.drain(..size);
            open = connection.carries(Direction::ToTarget);
        }
        tokio::select! {
            () = connection.open(Direction::ToTarget), if !open => {}
            size = from.read_buf(&mut held) => if size? == 0 {
                return close(to, &connection, Direction::ToTarget, &held).await;
            }
        }
        if connection.is_lost() {
            held.clear();
        }
    }
}

/// Carries bytes from the server to the client.
async fn bring(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: Connection,
) -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        let open = connection.carries(Direction::FromTarget);
        if connection.is_lost() {
            held.clear();
        } else if open {
            to.write_all(&connection.take(&mut held)).await?;
        } else if let Some(tap) = &connection.tap {
            tap.wire.hear(&held);
        }
        tokio::select! {
            () = connection.open(Direction::FromTarget), if !open => {}
            size = from.read_buf(&mut held) => if size? == 0 {
                return close(to, &connection, Direction::FromTarget, &held).await;
            }
        }
    }
}

/// Closes the other side after one has closed and all its bytes were sent; never if it is lost.
async fn close(
    mut to: OwnedWriteHalf,
    connection: &Connection,
    direction: Direction,
    held: &[u8],
) -> io::Result<()> {
    if !connection.is_lost() {
        connection.open(direction).await;
    }
    if connection.is_lost() {
        return std::future::pending().await;
    }
    to.write_all(held).await?;
    to.shutdown().await
}
