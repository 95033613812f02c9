//! Identities, servers and revocations.

use std::path::{Path, PathBuf};

use berth_access::Role;
use berth_access::host::Host;
use berth_access::record::{AuthorityRecord, KeyRecord, KeyState, ServerRecord};
use berth_domain::Timestamp;
use serde::Serialize;

use super::time::Zone;
use crate::span::{ago, until};
use crate::table::{Table, pairs};

/// An identity as it is shown.
#[derive(Debug, Serialize)]
pub struct IdentityView {
    /// Its name.
    pub name: String,
    /// Its role, with what belongs to it.
    pub role: Role,
    /// Whether servers accept its newest key.
    pub state: KeyState,
    /// Its newest key.
    pub key: Option<KeyRecord>,
    /// Earlier keys that servers still accept.
    pub replaced: Vec<KeyRecord>,
    /// What it may do, in words.
    pub may: Vec<String>,
    /// Its file, if it is there.
    pub creds: Option<PathBuf>,
}

/// A fleet as it is shown.
#[derive(Debug, Serialize)]
pub struct FleetView {
    /// The directory.
    pub directory: PathBuf,
    /// Where each host has its files.
    pub installed: Option<String>,
    /// The serial of the servers' files.
    pub serial: u64,
    /// Everything that was issued before this time is revoked.
    pub all_before: Option<Timestamp>,
    /// Revoked keys of identities that this directory does not know.
    pub unknown_revoked: Vec<String>,
    /// The trusted authorities.
    pub ca: PathBuf,
    /// The servers, each with its certificate.
    pub servers: Vec<ServerRecord>,
    /// The authorities, the newest last.
    pub authorities: Vec<AuthorityRecord>,
    /// The identities.
    pub identities: Vec<IdentityView>,
}

/// What a revocation did.
#[derive(Debug, Serialize)]
pub struct RevocationView {
    /// The identity.
    pub name: String,
    /// The keys that were revoked now.
    pub revoked: Vec<String>,
    /// What each server has to load.
    pub files: Vec<PathBuf>,
}

/// What was taken over from the files of servers.
#[derive(Debug, Serialize)]
pub struct AdoptionView {
    /// The serial of the files that were written.
    pub serial: u64,
    /// Identities, and keys of unknown ones, that are revoked by this.
    pub revoked: Vec<String>,
    /// Everything that was issued before this time is revoked.
    pub all_before: Option<Timestamp>,
    /// What each server has to load.
    pub files: Vec<PathBuf>,
}

/// What an installation did.
#[derive(Debug, Serialize)]
pub struct InstallationView {
    /// The serial of the files that were there.
    pub before: Option<u64>,
    /// The serial of the files that are there now.
    pub serial: u64,
    /// The files that were written.
    pub files: Vec<PathBuf>,
}

/// `2026-11-21, in 90d`, or `never`.
fn end(expires: Option<Timestamp>, now: Timestamp) -> String {
    expires.map_or_else(
        || "never".to_owned(),
        |at| {
            let distance = if at <= now { format!("{} ago", ago(at, now)) } else { until(at, now) };
            format!("{}, {distance}", Zone::local().date(at))
        },
    )
}

fn display_path(path: &Path) -> String {
    path.display().to_string()
}

/// One identity, in words.
pub fn identity(view: &IdentityView, now: Timestamp) -> String {
    let mut lines = vec![("identity", view.name.clone())];
    let revoked = view.key.as_ref().and_then(|key| key.revoked);
    let state = match revoked {
        Some(at) => format!("revoked {} ago", ago(at, now)),
        None => view.state.as_str().to_owned(),
    };
    lines.push(("state", state));
    if let Some(key) = &view.key {
        lines.push(("key", key.public.clone()));
        lines.push(("issued", Zone::local().date(key.issued)));
        lines.push(("expires", end(key.expires, now)));
    }
    lines.push(("file", view.creds.as_deref().map(display_path).unwrap_or_default()));
    for key in &view.replaced {
        lines.push(("also valid", format!("the earlier key {}", key.public)));
    }
    for (index, line) in view.may.iter().enumerate() {
        lines.push((if index == 0 { "may" } else { "" }, line.clone()));
    }
    pairs(&lines)
}

/// The servers, the authorities and the identities.
pub fn fleet(view: &FleetView, now: Timestamp) -> String {
    let mut servers = Table::new(["SERVER", "ALSO", "CERTIFICATE UNTIL", "AUTHORITY"]);
    for server in &view.servers {
        let also: Vec<&str> = server.also.iter().map(Host::as_str).collect();
        servers.row([
            server.host.to_string(),
            also.join(", "),
            end(Some(server.expires), now),
            server.authority.to_string(),
        ]);
    }
    let mut authorities = Table::new(["AUTHORITY", "NAME", "UNTIL"]);
    for authority in &view.authorities {
        authorities.row([
            authority.number.to_string(),
            authority.name.clone(),
            end(Some(authority.expires), now),
        ]);
    }
    let mut identities = Table::new(["IDENTITY", "STATE", "ISSUED", "EXPIRES", "EARLIER KEYS"]);
    for identity in &view.identities {
        let key = identity.key.as_ref();
        identities.row([
            identity.name.clone(),
            identity.state.as_str().to_owned(),
            key.map(|key| Zone::local().date(key.issued)).unwrap_or_default(),
            end(key.and_then(|key| key.expires), now),
            if identity.replaced.is_empty() {
                String::new()
            } else {
                identity.replaced.len().to_string()
            },
        ]);
    }
    let mut lines = vec![("serial", view.serial.to_string())];
    if let Some(at) = view.all_before {
        lines.push(("revoked", format!("all that was issued before {at}")));
    }
    let unknown = view.unknown_revoked.iter();
    lines.extend(unknown.map(|key| ("revoked", format!("{key}, which no identity here has"))));
    format!("{servers}\n{authorities}\n{identities}\n{}", pairs(&lines))
}

/// What a revocation did.
pub fn revocation(view: &RevocationView) -> String {
    let mut lines = vec![match view.name.as_str() {
        "*" => ("identity", "all that are older".to_owned()),
        name => ("identity", name.to_owned()),
    }];
    if view.revoked.is_empty() {
        lines.push((
            "revoked",
            "no key on record: none of these was valid; the files are written again".to_owned(),
        ));
    }
    for key in &view.revoked {
        lines.push(("revoked", key.clone()));
    }
    for file in &view.files {
        lines.push(("to load", display_path(file)));
    }
    pairs(&lines)
}

/// What was taken over.
pub fn adoption(view: &AdoptionView) -> String {
    let mut lines = vec![("serial", view.serial.to_string())];
    if let Some(at) = view.all_before {
        lines.push(("revoked", format!("all that was issued before {at}")));
    }
    if view.revoked.is_empty() {
        lines.push(("revoked", "nothing that was not revoked here".to_owned()));
    }
    lines.extend(view.revoked.iter().map(|name| ("revoked", name.clone())));
    lines.extend(view.files.iter().map(|file| ("to load", display_path(file))));
    pairs(&lines)
}

/// What an installation did.
pub fn installation(view: &InstallationView) -> String {
    let before = view.before.map_or("none".to_owned(), |before| before.to_string());
    let mut lines = vec![("serial", format!("{}, before: {before}", view.serial))];
    lines.extend(view.files.iter().map(|file| ("wrote", display_path(file))));
    pairs(&lines)
}
