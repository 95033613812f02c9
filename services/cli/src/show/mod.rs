//! The text forms of replies.
//!
//! **Owns** which parts of each reply are shown, and as which text. **Promises** that nothing here
//! reads the clock: the time is passed in, so that a table is the same in a test.

use std::fmt;

use berth_contract::message::query::RefusedRequest;
use berth_domain::{AllocId, Namespace, Timestamp, VolumeId};

use crate::span::ago;

pub mod access;
mod alloc;
mod bus;
mod claim;
mod class;
mod doctor;
mod events;
mod external;
mod list;
mod node_overview;
mod plugins_here;
mod registry;
mod search;
mod snapshot;
mod storage;
mod sweep;
mod time;
pub mod trace;
mod volume;
mod why;

pub use alloc::{alloc, owners};
pub use bus::{backed_up, begun, copies, copies_progress, restore_step};
pub use class::{capacities, class};
pub use doctor::doctor;
pub use events::event;
pub use external::{external_snapshots, external_volumes, places};
pub use list::{Listed, headings, list};
pub use node_overview::{NodeOverview, node_overview};
pub use plugins_here::plugins_here;
pub use registry::{declared, departed, node, plugin};
pub use search::search;
pub use snapshot::snapshot_groups;
pub use sweep::sweep;
pub use time::Zone;
pub use volume::{placements, stage, volume};
pub use why::why;

/// The names of one claim.
type ClaimKey<'a> = (&'a Namespace, &'a VolumeId, &'a AllocId);

fn health_word(healthy: bool) -> &'static str {
    if healthy { "healthy" } else { "unhealthy" }
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// `key=value` pairs, sorted as they are; nothing for none.
fn listed<'a>(map: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let pairs: Vec<String> = map.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(", ")
}

/// `ext4, 2 mount flags`
fn mounted_as(fs_type: Option<&str>, flags: usize) -> String {
    let fs_type = fs_type.unwrap_or("the plugin's file system");
    format!("{fs_type}, {}", flag_count(flags))
}

/// `2 mount flags`
fn flag_count(flags: usize) -> String {
    format!("{flags} mount flag{}", if flags == 1 { "" } else { "s" })
}

/// `claim.take of data by web-1 on n2: the volume is held by others (BERTH0106)`
fn refused(refusal: &RefusedRequest) -> String {
    let RefusedRequest { step, code, message, volume, alloc, node, .. } = refusal;
    let volume = volume.as_ref().map(|volume| format!(" of {volume}")).unwrap_or_default();
    let alloc = alloc.as_ref().map(|alloc| format!(" by {alloc}")).unwrap_or_default();
    let node = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    format!("{step}{volume}{alloc}{node}: {message} ({code})")
}

/// The newest refused request of a volume or an alloc, in a line.
fn last_refusal(refusal: &RefusedRequest, now: Timestamp) -> String {
    let trace = refusal.trace.as_deref();
    let trace = trace.map(|trace| format!("; see `berth trace {trace}`")).unwrap_or_default();
    format!("{} ago, {}{trace}", ago(refusal.at, now), refused(refusal))
}

/// The namespace before an id, when the ids of a list are of several namespaces.
fn within<'a>(
    listed: impl IntoIterator<Item = &'a Namespace>,
) -> impl Fn(&Namespace, &dyn fmt::Display) -> String {
    let mut listed = listed.into_iter();
    let first = listed.next();
    let several = listed.any(|other| Some(other) != first);
    move |namespace, id| if several { format!("{namespace}/{id}") } else { id.to_string() }
}
