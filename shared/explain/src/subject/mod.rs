//! Diagnoses of what a name means: a volume, an alloc, a node, a plugin or a snapshot.

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

/// The diagnoses of everything with this name; empty if nothing has it.
pub fn diagnose(facts: &Facts) -> Vec<Diagnosis> {
    let Names { volume, alloc, node, plugin, snapshot } = &facts.names;
    let mut diagnoses: Vec<Diagnosis> = Vec::new();
    diagnoses.extend(volume.as_ref().and_then(|id| volume::diagnose(facts, id)));
    diagnoses.extend(alloc.as_ref().and_then(|id| alloc::diagnose(facts, id)));
    diagnoses.extend(node.as_ref().and_then(|id| node::diagnose(facts, id)));
    diagnoses.extend(plugin.as_ref().and_then(|id| plugin::diagnose(facts, id)));
    diagnoses.extend(snapshot.as_ref().and_then(|name| snapshot::diagnose(facts, name)));
    if diagnoses.is_empty() {
        diagnoses.extend(service::unanswered(facts));
    }
    diagnoses
}
