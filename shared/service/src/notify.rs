//! Reports the service's state to the service manager (`sd_notify(3)`).
//!
//! **Owns** the datagrams to `NOTIFY_SOCKET`.
//!
//! **Promises** that nothing happens without a service manager, and that a manager that does not
//! read delays nothing: the socket is non-blocking. The crate `sd-notify` blocks (decision 0035).
//!
//! **Never** decides when the service is ready:
//! [`Process::report_ready`](crate::process::Process::report_ready) does that.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Reports that the service answers requests. From then on a task of the runtime feeds the
/// watchdog, so that a hung runtime is noticed.
pub(crate) fn ready() {
    notify_manager("READY=1");
    let Some(interval) = watchdog(|name| std::env::var(name).ok(), std::process::id()) else {
        return;
    };
    tokio::spawn(async move {
        let mut beat = tokio::time::interval(interval);
        loop {
            beat.tick().await;
            notify_manager("WATCHDOG=1");
        }
    });
}

/// Reports that the service is stopping, and finishes its requests in progress.
pub fn stopping() {
    notify_manager("STOPPING=1");
}

/// The pause between two watchdog messages: half of the watchdog's timeout.
fn watchdog(variable: impl Fn(&str) -> Option<String>, own: u32) -> Option<Duration> {
    // Child processes inherit the variables, but the watchdog does not watch them.
    if variable("WATCHDOG_PID").is_some_and(|pid| pid != own.to_string()) {
        return None;
    }
    let micros: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    Some(Duration::from_micros(micros / 2)).filter(|pause| !pause.is_zero())
}

fn notify_manager(state: &str) {
    let Ok(socket) = std::env::var("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, socket, state, "the state was not reported to the service manager");
    }
}

/// Sends the state to a socket; a name that begins with `@` is an abstract socket.
fn send(name: &str, state: &str) -> io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut text = [0; 64];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_state_arrives_at_a_path_and_at_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.to_str().unwrap(), "READY=1").unwrap();
        assert_eq!(received(&socket), "READY=1");

        let name = format!("berth-notify-{}", std::process::id());
        let socket =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(&format!("@{name}"), "STOPPING=1").unwrap();
        assert_eq!(received(&socket), "STOPPING=1");
        drop(socket);
        send(&format!("@{name}"), "STOPPING=1").unwrap_err();
    }

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time_and_only_by_whom_it_watches() {
        let pause_for = |usec: Option<&str>, pid: Option<&str>| {
            let (usec, pid) = (usec.map(str::to_owned), pid.map(str::to_owned));
            watchdog(move |name| if name == "WATCHDOG_PID" { pid.clone() } else { usec.clone() }, 7)
        };
        assert_eq!(pause_for(Some("30000000"), Some("7")), Some(Duration::from_secs(15)));
        assert_eq!(pause_for(Some("30000000"), None), Some(Duration::from_secs(15)));
        assert_eq!(pause_for(Some("30000000"), Some("8")), None);
        assert_eq!(pause_for(None, Some("7")), None);
        for nothing in ["0", "1", "soon"] {
            assert_eq!(pause_for(Some(nothing), None), None, "{nothing}");
        }
    }
}
