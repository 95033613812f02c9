//! Loopback ports that stay reserved while their [`Port`] lives.
//!
//! Owns: which process of this machine uses which port of [`RANGE`]. Promises: no two processes
//! reserve the same port, even while nothing listens on it, so a killed server can come back on its
//! port. Never: reserves a port of the kernel's range for outgoing connections: a client that keeps
//! dialling such a port ends up connected to itself.

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
    /// like ports, and frees them when the process ends: there is no lock file to clean up.
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a port on which nothing listens now.
    ///
    /// # Panics
    /// When every port of [`RANGE`] is taken.
    pub fn reserve() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Each process begins at another port, so that few attempts fail.
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
        // A program without reservations may use the port.
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
