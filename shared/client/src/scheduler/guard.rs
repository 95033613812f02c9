//! The guard of an alloc, for its node's agent.

use std::fs::File;
use std::io;

use berth_contract::message::agent::Guard;
use procfs_core::FromRead as _;
use procfs_core::process::Stat;

/// A process of this host as a guard, with the time of its start.
pub fn process_guard(pid: u32) -> io::Result<Guard> {
    let stat = Stat::from_read(File::open(format!("/proc/{pid}/stat"))?);
    let stat = stat.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Guard { pid: Some(pid), start: Some(stat.starttime), ..Guard::default() })
}
