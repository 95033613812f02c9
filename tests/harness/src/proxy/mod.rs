//! A cable between a process and a server, that a test can cut.
//!
//! Owns: the connections that go through it. Promises: bytes pass unchanged and in order until told
//! otherwise. Never: looks at them, but for a tripwire's sake ([`Proxy::across`]), which also lets
//! it withhold what a consumer delivers. It runs on the test's own runtime and ends with the
//! [`Proxy`].
//!
//! ```text
//! frame  what a NATS client and its server say, one operation at a time
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
    /// How often all connections were broken: those made before it are no more.
    breaks: u64,
    /// How often all connections were lost: those made before it carry nothing, ever.
    losses: u64,
    /// How many of these losses are over: both ends know.
    told: u64,
    /// Of which stream no consumer delivers anything.
    withheld: Option<&'static str>,
}

/// A loopback address that leads to another one.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

/// A tripwire and what this cable is called there.
#[derive(Clone, Debug)]
struct Tap {
    wire: Wire,
    label: String,
}

impl Proxy {
    /// Starts one in front of `target`.
    pub async fn start(target: SocketAddr) -> Self {
        Self::launch(target, None).await
    }

    /// Starts one in front of a nats-server, with a tripwire across it.
    pub async fn across(target: SocketAddr, label: &str, wire: &Wire) -> Self {
        Self::launch(target, Some(Tap { wire: wire.clone(), label: label.to_owned() })).await
    }

    async fn launch(target: SocketAddr, tap: Option<Tap>) -> Self {
        let port = Port::reserve();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await;
        let listener = listener.expect("a reserved port can be listened on");
        let whole = State { cable: Cable::Whole, breaks: 0, losses: 0, told: 0, withheld: None };
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

    /// Breaks every connection, and new ones at once, until healed.
    pub fn cut(&self) {
        self.state.send_modify(|state| {
            state.cable = Cable::Cut;
            state.breaks += 1;
        });
    }

    /// Breaks every connection there is, with what it holds back; new ones are whole.
    pub fn snap(&self) {
        self.state.send_modify(|state| {
            state.cable = Cable::Whole;
            state.breaks += 1;
        });
    }

    /// Lets connections stand, and be made, with nothing passing in either direction until healed.
    pub fn half_open(&self) {
        self.state.send_modify(|state| state.cable = Cable::Silent);
    }

    /// Lets connections stand, with bytes passing in this direction only until healed. The other
    /// direction is held back, and so is every new connection.
    pub fn one_way(&self, direction: Direction) {
        self.state.send_modify(|state| state.cable = Cable::OneWay(direction));
    }

    /// Loses every connection there is: both ends keep it open, and whatever either sends, what is
    /// held back included, vanishes, for ever. New connections are whole.
    pub fn lose(&self) {
        self.state.send_modify(|state| {
            state.cable = Cable::Whole;
            state.losses += 1;
        });
    }

    /// Ends the lost connections: a peer that still kept one open learns that it is gone.
    pub fn tell_lost(&self) {
        self.state.send_modify(|state| state.told = state.losses);
    }

    /// Drops everything that a consumer of this stream delivers; `None` drops nothing. A follower
    /// of the stream stays behind, and can do everything else. Only with a tripwire.
    pub fn withhold(&self, stream: Option<&'static str>) {
        self.state.send_modify(|state| state.withheld = stream);
    }

    /// Lets bytes pass again: those held back come first, broken connections stay broken.
    pub fn heal(&self) {
        self.state.send_modify(|state| state.cable = Cable::Whole);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        // The connections end with it: their tasks hold on to the state as well.
        self.cut();
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    state: watch::Sender<State>,
    tap: Option<Tap>,
) {
    // A failed accept is the client's loss; it sees its connection break.
    while let Ok((client, _)) = listener.accept().await {
        let born = *state.borrow();
        if born.cable != Cable::Cut {
            tokio::spawn(join(
                client,
                target,
                Line { state: state.clone(), born, tap: tap.clone() },
            ));
        }
    }
}

/// One connection's part in the cable.
#[derive(Clone)]
struct Line {
    state: watch::Sender<State>,
    born: State,
    tap: Option<Tap>,
}

impl Line {
    fn carries(&self, direction: Direction) -> bool {
        self.state.borrow().cable.carries(direction)
    }

    fn is_lost(&self) -> bool {
        self.state.borrow().losses > self.born.losses
    }

    async fn whole(&self) {
        let mut state = self.state.subscribe();
        // The sender is ours: this cannot fail.
        let _ = state.wait_for(|state| state.cable == Cable::Whole).await;
    }

    async fn open(&self, direction: Direction) {
        let mut state = self.state.subscribe();
        // The sender is ours: this cannot fail.
        let _ = state.wait_for(|state| state.cable.carries(direction)).await;
    }

    async fn broken(&self) {
        let mut state = self.state.subscribe();
        let over = |state: &State| state.breaks > self.born.breaks || state.told > self.born.losses;
        let _ = state.wait_for(over).await;
    }

    /// How much may pass next of what a client sent; none while it is not whole. A message that
    /// trips the wire silences the cable first, so that not a byte of its answer passes.
    fn next(&self, held: &[u8]) -> Option<usize> {
        let Some(tap) = &self.tap else { return (!held.is_empty()).then_some(held.len()) };
        let frame = frame::first(held)?;
        let silence = || self.state.send_modify(|state| state.cable = Cable::Silent);
        let verdict = match &frame.publish {
            Some(publish) => tap.wire.pass(&tap.label, publish, silence),
            None => Verdict::Pass,
        };
        Some(if verdict == Verdict::StopBefore { 0 } else { frame.len })
    }

    /// Takes what may pass next of what the server sent.
    fn take(&self, held: &mut Vec<u8>) -> Vec<u8> {
        if self.tap.is_none() {
            return std::mem::take(held);
        }
        let withheld = self.state.borrow().withheld;
        let withheld = withheld.map(|stream| format!("$JS.ACK.{stream}."));
        let (mut passing, mut end) = (Vec::new(), 0);
        while let Some(frame) = frame::first(&held[end..]) {
            let bytes = &held[end..end + frame.len];
            end += frame.len;
            let out = withheld.as_ref().zip(frame.answer_to);
            if !out.is_some_and(|(prefix, answer_to)| answer_to.starts_with(prefix)) {
                passing.extend_from_slice(bytes);
            }
        }
        held.drain(..end);
        passing
    }
}

/// Carries one connection until either side closes it or the cable is cut.
async fn join(client: TcpStream, target: SocketAddr, line: Line) {
    let carry = async {
        // A silent cable connects to no target: the target learns of the connection later.
        line.whole().await;
        let (from_client, to_client) = client.into_split();
        let (from_target, to_target) = TcpStream::connect(target).await?.into_split();
        tokio::try_join!(
            send(from_client, to_target, line.clone()),
            bring(from_target, to_client, line.clone()),
        )
    };
    tokio::select! {
        _ = carry => {}
        () = line.broken() => {}
    }
}

/// From the client to the server, by the tripwire.
async fn send(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, line: Line) -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        // Looked at once a round: what is healed right after the look is not waited for in vain.
        let mut open = line.carries(Direction::ToTarget);
        while open && !line.is_lost() {
            let Some(size) = line.next(&held) else { break };
            to.write_all(&held[..size]).await?;
            held.drain(..size);
            open = line.carries(Direction::ToTarget);
        }
        tokio::select! {
            () = line.open(Direction::ToTarget), if !open => {}
            size = from.read_buf(&mut held) => if size? == 0 {
                return close(to, &line, Direction::ToTarget, &held).await;
            }
        }
        if line.is_lost() {
            held.clear();
        }
    }
}

/// From the server to the client.
async fn bring(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, line: Line) -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        let open = line.carries(Direction::FromTarget);
        if line.is_lost() {
            held.clear();
        } else if open {
            to.write_all(&line.take(&mut held)).await?;
        } else if let Some(tap) = &line.tap {
            tap.wire.hear(&held);
        }
        tokio::select! {
            () = line.open(Direction::FromTarget), if !open => {}
            size = from.read_buf(&mut held) => if size? == 0 {
                return close(to, &line, Direction::FromTarget, &held).await;
            }
        }
    }
}

/// One side is gone: the other learns of it after all that was sent, unless the connection is lost.
async fn close(
    mut to: OwnedWriteHalf,
    line: &Line,
    direction: Direction,
    held: &[u8],
) -> io::Result<()> {
    if !line.is_lost() {
        line.open(direction).await;
    }
    if line.is_lost() {
        return std::future::pending().await;
    }
    to.write_all(held).await?;
    to.shutdown().await
}
