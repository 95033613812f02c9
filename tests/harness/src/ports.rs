//! Loopback ports that stay the caller's for as long as it lives.
//!
//! Owns: which process of this machine uses which port of [`RANGE`]. Promises: no two harnesses
//! hold the same port, also while nothing listens on it, so that a server killed now can come back
//! on its port later. Never: hands out a port from the range the kernel draws from for outgoing
//! connections: a client that keeps dialling such a port ends up connected to itself.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below the kernel's own range, which starts at 32768.
pub const RANGE: Range<u16> = 20_000..32_000;

/// A reserved port of 127.0.0.1; free again when dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// An abstract socket named after the port. The kernel keeps such names per network namespace,
    /// as it does ports, and forgets them with the process: no lock file, nothing to clean up.
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a port on which nothing listens now.
    ///
    /// # Panics
    /// When every port of [`RANGE`] is taken.
    pub fn reserve() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Processes begin at different places, to try few ports in vain; the reservation decides.
        let first = std::process::id() as usize * 61;
        for _ in RANGE {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = RANGE.clone().nth((first + step) % RANGE.len());
            if let Some(port) = number.and_then(Self::try_reserve) {
                return port;
            }
        }
        panic!("every port of {RANGE:?} is taken");
    }

    fn try_reserve(number: u16) -> Option<Self> {
        let name = UnixAddr::from_abstract_name(format!("berth-test-port-{number}")).ok()?;
        let reservation = UnixListener::bind_addr(&name).ok()?;
        // A program that knows nothing of reservations may be using it.
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Self { number, _reservation: reservation })
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:<number>`.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.number))
    }
}
