//! What is told of one name: a volume, an alloc, a node, a plugin or a snapshot.

mod alloc;
mod node;
mod plugin;
mod snapshot;
mod volume;
mod worst;

pub use volume::find_volume;

use crate::facts::{Facts, Names};
use crate::finding::Diagnosis;
use crate::service;

/// The diagnoses of everything with this name; nothing when nothing has it.
pub fn diagnose(facts: &Facts) -> Vec<Diagnosis> {
    let Names { volume, alloc, node, plugin, snapshot } = &facts.names;
    let mut found: Vec<Diagnosis> = Vec::new();
    found.extend(volume.as_ref().and_then(|id| volume::diagnose(facts, id)));
    found.extend(alloc.as_ref().and_then(|id| alloc::diagnose(facts, id)));
    found.extend(node.as_ref().and_then(|id| node::diagnose(facts, id)));
    found.extend(plugin.as_ref().and_then(|id| plugin::diagnose(facts, id)));
    found.extend(snapshot.as_ref().and_then(|name| snapshot::diagnose(facts, name)));
    if found.is_empty() {
        found.extend(service::unanswered(facts));
    }
    found
}
