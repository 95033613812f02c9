//! The servers of a fleet, and the places where they read their files.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::error::AccessError;
use crate::host::Host;

/// Where the servers of a fleet read their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilePlace {
    /// Each host's files are copied to this directory of the host.
    Installed(PathBuf),
    /// Servers of this machine read the directory itself. Files are not synced to the disk, because
    /// such a fleet can be made again.
    InDirectory,
}

/// Refuses a list of servers that cannot be a fleet.
pub(super) fn check_servers(servers: &[Host], place: &FilePlace) -> Result<(), AccessError> {
    let distinct: BTreeSet<&Host> = servers.iter().collect();
    if servers.is_empty() {
        return Err(AccessError::BadServers("no server is named".to_owned()));
    }
    if distinct.len() != servers.len() {
        return Err(AccessError::BadServers("a server is named twice".to_owned()));
    }
    if *place != FilePlace::InDirectory && servers.len().is_multiple_of(2) {
        return Err(AccessError::BadServers(format!(
            "{} servers survive no more losses than {}: a majority must be left",
            servers.len(),
            servers.len() - 1
        )));
    }
    Ok(())
}
