//! Asks plugins for their room (`GetCapacity`), for volumes that their first claims will have
//! created ([`room_table`](crate::store::room_table)).
//!
//! **Promises** bounds: on places of a plugin, and on questions to it at once.

use std::time::Duration;

use berth_domain::room::{Places, Room};
use berth_domain::volume::storage::Topology;
use berth_service::clock;
use futures_util::{StreamExt as _, stream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::ability::Ability;
use super::capacity::{ask_capacity, topologies};
use crate::store::room_table::{ASK_WITHIN, VolumeKind};
use crate::store::state::State;

/// Places of one plugin, at most. Of the others nothing is known.
const PLACES_MAX: usize = 1024;
/// Questions to one plugin at once, at most.
const QUESTIONS_MAX: usize = 8;
/// How long a controller may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Asks each plugin when that is due.
pub async fn ask_when_due(state: State) {
    let mut asking = JoinSet::new();
    loop {
        for kind in state.rooms.due().await {
            asking.spawn(ask_all_places(state.clone(), kind));
        }
        while asking.try_join_next().is_some() {}
    }
}

/// Asks for each place of the plugin's nodes.
async fn ask_all_places(state: State, kind: VolumeKind) {
    let until = Instant::now() + ASK_WITHIN;
    // A plugin without topology has one place only, and no choice.
    let places = match state.require(&kind.plugin, Ability::GetCapacity) {
        Ok(_) => topologies(&state, &kind.plugin),
        Err(_) => Vec::new(),
    };
    let places = places.into_iter().flatten().take(PLACES_MAX);
    let questions = places.map(|place| ask_at(&state, &kind, place));
    let mut answers = stream::iter(questions).buffer_unordered(QUESTIONS_MAX);
    let mut known = Places::new();
    while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
        known.extend(answer);
    }
    let is_unknown = known.is_empty();
    state.rooms.set(&kind, known);
    if is_unknown {
        // Its controllers may be known soon.
        state.rooms.doubt(&kind.plugin);
    }
}

/// What the plugin says of one place; nothing if it does not answer.
async fn ask_at(state: &State, kind: &VolumeKind, place: Topology) -> Option<(Topology, Room)> {
    let until = Instant::now() + ANSWER_WITHIN;
    let (trace, at) = (clock::begin_trace(), Some(place.clone()));
    match ask_capacity(state, kind, at, trace, until).await {
        Ok(answer) => {
            let (available_bytes, max_volume_bytes) =
                (answer.available_bytes, answer.max_volume_bytes);
            Some((place, Room { available_bytes, max_volume_bytes }))
        }
        Err(problem) => {
            let (plugin, trace) = (&kind.plugin, trace.trace_id());
            tracing::info!(%plugin, ?place, %problem, trace, "its room is not known");
            None
        }
    }
}
