//! Asks plugins for their room (`GetCapacity`), for volumes that their first claims will have
//! created ([`room_table`](crate::store::room_table)).
//!
//! **Promises** bounds: on places of a plugin, and on questions at once.
//!
//! **Never** asks another node's controller where each node may have a storage of its own.

use std::time::Duration;

use berth_contract::problem::Problem;
use berth_domain::plugin::ControllerChoice;
use berth_domain::room::{Capacity, Places};
use berth_domain::volume::storage::Topology;
use berth_service::clock;
use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::ability::Ability;
use super::capacity::{ask_capacity, topologies};
use crate::store::room_table::{ASK_WITHIN, VolumeKind};
use crate::store::state::State;

/// Places of one plugin, at most. Of the others nothing is known.
const PLACES_MAX: usize = 1024;
/// Questions for one kind of volumes at once, at most.
const QUESTIONS_OF_KIND_MAX: usize = 8;
/// Questions at once, at most.
static QUESTIONS: Semaphore = Semaphore::const_new(32);
/// How long a controller may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Asks each plugin when that is due.
pub async fn ask_when_due(state: State) {
    let mut asking = JoinSet::new();
    loop {
        for kind in state.rooms.await_due().await {
            asking.spawn(ask_all_places(state.clone(), kind));
        }
        while asking.try_join_next().is_some() {}
    }
}

/// Asks for each place of the plugin's nodes.
async fn ask_all_places(state: State, kind: VolumeKind) {
    let until = Instant::now() + ASK_WITHIN;
    let places = choose_places(&state, &kind);
    let nothing_to_ask = places.is_empty();
    let questions = places.into_iter().map(|place| ask_at(&state, &kind, place));
    let mut answers = stream::iter(questions).buffer_unordered(QUESTIONS_OF_KIND_MAX);
    let mut known = Places::new();
    let mut failure = None;
    while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
        match answer {
            Ok((place, capacity)) => {
                known.insert(place, capacity);
            }
            Err(problem) => failure = Some(problem),
        }
    }
    if let Some(problem) = failure {
        let (plugin, places) = (&kind.plugin, known.len());
        tracing::info!(%plugin, places, %problem, "the room is not known at other places");
    }
    state.rooms.set_places(&kind, known);
    if nothing_to_ask {
        // Its controllers may be reported soon. To look costs no call.
        state.rooms.doubt_plugin(&kind.plugin);
    }
}

/// The places to ask for; none if the plugin has no choice, or does not say how much room it has.
fn choose_places(state: &State, kind: &VolumeKind) -> Vec<Topology> {
    if state.require(&kind.plugin, Ability::GetCapacity).is_err() {
        return Vec::new();
    }
    let places: Vec<Topology> = topologies(state, &kind.plugin).into_iter().flatten().collect();
    let known = state.with_plugin(&kind.plugin, |plugin, _| {
        // Another node's controller would tell of a storage of its own.
        let is_shared = plugin.local_hosts().is_empty();
        let is_known = |place: &Topology| {
            let choice = plugin.controller_of(std::slice::from_ref(place));
            is_shared || matches!(choice, ControllerChoice::Only(_))
        };
        places.into_iter().filter(is_known).take(PLACES_MAX).collect()
    });
    known.unwrap_or_default()
}

/// What the plugin says of one place.
async fn ask_at(
    state: &State,
    kind: &VolumeKind,
    place: Topology,
) -> Result<(Topology, Capacity), Problem> {
    // The semaphore is never closed.
    let _place = QUESTIONS.acquire().await;
    let (trace, until) = (clock::begin_trace(), Instant::now() + ANSWER_WITHIN);
    let answer = ask_capacity(state, kind, Some(place.clone()), trace, until).await?;
    let (available_bytes, max_volume_bytes) = (answer.available_bytes, answer.max_volume_bytes);
    Ok((place, Capacity { available_bytes, max_volume_bytes }))
}
