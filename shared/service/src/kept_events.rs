//! Passes events that nats-server refused on from one process of a service to the next.
//!
//! **Owns** the file with them in the service's state directory, which systemd names.
//!
//! **Promises** that no event is lost in a restart with a new identity, which is what refused
//! events need: the next process sends them first.
//!
//! **Never** keeps a service from its start or its end: without a state directory, or with an
//! unreadable file, the events are lost, and the log says so.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use berth_bus::Bus;
use berth_bus::event::RefusedEvent;

/// The variable with the unit's state directory (`StateDirectory=`).
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
const FILE: &str = "refused-events";

/// Reads the events that an earlier process was refused, to be sent first.
pub fn take_up(bus: &Bus) {
    let Some(file) = file() else { return };
    match read(&file) {
        Ok(events) if events.is_empty() => {}
        Ok(events) => {
            tracing::info!(count = events.len(), "events that were refused before are sent");
            bus.take_up_events(events);
        }
        Err(error) => tracing::warn!(file = %file.display(), %error, "refused events are lost"),
    }
}

/// Writes the events that this process was refused, for the next process.
pub fn leave(bus: &Bus) {
    let events = bus.refused_events();
    if events.is_empty() {
        return;
    }
    let written = file().map(|file| write(&file, &events));
    let kept = events.len();
    match written {
        Some(Ok(())) => tracing::info!(kept, "the next process sends what nats-server refused"),
        Some(Err(error)) => tracing::warn!(kept, %error, "refused events end with this process"),
        None => tracing::warn!(kept, "refused events end with this process: it has no directory"),
    }
}

fn file() -> Option<PathBuf> {
    let directories = std::env::var_os(STATE_DIRECTORY)?;
    let first = std::env::split_paths(&directories).next()?;
    Some(first.join(FILE))
}

/// Reads the file and removes it, so that no event is sent twice.
fn read(file: &Path) -> io::Result<Vec<RefusedEvent>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    fs::remove_file(file)?;
    let events = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    events.map_err(io::Error::other)
}

/// Writes the file completely or not at all.
fn write(file: &Path, events: &[RefusedEvent]) -> io::Result<()> {
    let temporary = file.with_extension("next");
    let mut text = Vec::new();
    for event in events {
        serde_json::to_writer(&mut text, event)?;
        text.push(b'\n');
    }
    let mut options = fs::OpenOptions::new();
    let mut written =
        options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    written.write_all(&text)?;
    written.sync_all()?;
    fs::rename(&temporary, file)
}

#[cfg(test)]
mod tests {
    use berth_contract::trace::TraceContext;

    use super::*;

    #[test]
    fn what_is_left_is_read_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        assert!(read(&file).unwrap().is_empty());
        let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let events: Vec<_> = (0..3)
            .map(|at| RefusedEvent {
                subject: format!("berth.v1.event.{at}"),
                traceparent: TraceContext::parse(trace).unwrap(),
                body: format!("{{\"detail\":\"line\\n{at}\"}}"),
            })
            .collect();
        write(&file, &events).unwrap();
        assert_eq!(read(&file).unwrap(), events);
        assert!(read(&file).unwrap().is_empty(), "nothing is sent twice");
        fs::write(&file, "{").unwrap();
        assert!(read(&file).is_err() && !file.exists(), "it stands in nobody's way");
    }
}
