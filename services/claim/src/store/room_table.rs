//! What plugins last said of their room, in the memory of this replica, and when each is asked
//! again.
//!
//! **Owns** for which kinds of volumes plugins are asked: for those that somebody looked at lately.
//!
//! **Promises** that a plugin is asked at intervals, sooner after it had no room for a volume, and
//! not again while it is being asked; and that the table is bounded.
//!
//! **Never** stores anything: after a start it knows nothing, and what is not known holds up nobody
//! for longer than a moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::PluginId;
use berth_domain::access::Capability;
use berth_domain::room::Places;
use berth_domain::volume::VolumeSpec;
use berth_service::clock;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Time between two questions about one place.
const ASK_INTERVAL: Duration = Duration::from_secs(300);
/// The same after the plugin had no room for a volume.
const ASK_SOONER_INTERVAL: Duration = Duration::from_secs(30);
/// How long a plugin may take to answer for all places. What it has not said by then is not known.
pub const ASK_WITHIN: Duration = Duration::from_secs(120);
/// How long somebody who looks waits for the first answers.
const FIRST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How long a kind of volume is kept that nobody looks at.
const KEPT: Duration = Duration::from_secs(3600);
/// Kinds of volumes, at most. One more replaces the one that was looked at least lately.
const KINDS_MAX: usize = 64;

/// Volumes for which a plugin has the same room.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VolumeKind {
    pub plugin: PluginId,
    pub capabilities: Vec<Capability>,
    pub parameters: BTreeMap<String, String>,
}

impl VolumeKind {
    pub fn from_spec(spec: &VolumeSpec) -> Self {
        Self {
            plugin: spec.plugin.clone(),
            capabilities: spec.capabilities.clone(),
            parameters: spec.parameters.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub struct RoomTable {
    kinds: Mutex<BTreeMap<VolumeKind, KnownRooms>>,
    /// Something is due sooner than it was.
    sooner: Notify,
}

#[derive(Debug)]
struct KnownRooms {
    /// None before the first answers.
    places: watch::Sender<Option<Arc<Places>>>,
    looked_at: Instant,
    due: Instant,
    /// When the plugin began to be asked, while it is.
    asking_since: Option<Instant>,
}

impl KnownRooms {
    fn new(now: Instant) -> Self {
        Self { places: watch::Sender::new(None), looked_at: now, due: now, asking_since: None }
    }

    /// When the plugin is asked. A question that was lost is not waited for for ever.
    fn next(&self) -> Instant {
        self.asking_since.map_or(self.due, |since| self.due.max(since + ASK_WITHIN))
    }
}

impl RoomTable {
    /// What the plugin last said. Waits a moment for the first answers.
    pub async fn read_places(&self, kind: VolumeKind, until: Instant) -> Option<Arc<Places>> {
        let mut places = self.follow(kind);
        let until = until.min(Instant::now() + FIRST_ANSWERS_WITHIN);
        // Whoever waited in vain takes what there is, which is nothing.
        let _: Result<_, _> = timeout_at(until, places.wait_for(Option::is_some)).await;
        places.borrow().clone()
    }

    fn follow(&self, kind: VolumeKind) -> watch::Receiver<Option<Arc<Places>>> {
        let now = Instant::now();
        let mut kinds = self.lock();
        if !kinds.contains_key(&kind) {
            if kinds.len() >= KINDS_MAX {
                let least_lately = kinds.iter().min_by_key(|(_, known)| known.looked_at);
                let least_lately = least_lately.map(|(kind, _)| kind.clone());
                least_lately.map(|kind| kinds.remove(&kind));
            }
            self.sooner.notify_one();
        }
        let known = kinds.entry(kind).or_insert_with(|| KnownRooms::new(now));
        known.looked_at = now;
        known.places.subscribe()
    }

    /// Waits until a plugin is to be asked. Returns the kinds of volumes to ask for; each is being
    /// asked for from now on.
    pub async fn due(&self) -> Vec<VolumeKind> {
        loop {
            let (due, next) = self.begin();
            if !due.is_empty() {
                return due;
            }
            tokio::select! {
                () = self.sooner.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn begin(&self) -> (Vec<VolumeKind>, Instant) {
        let now = Instant::now();
        let mut kinds = self.lock();
        kinds.retain(|_, known| now.duration_since(known.looked_at) < KEPT);
        let mut begun = Vec::new();
        for (kind, known) in kinds.iter_mut().filter(|(_, known)| known.next() <= now) {
            known.asking_since = Some(now);
            known.due = now + clock::jittered(ASK_INTERVAL);
            begun.push(kind.clone());
        }
        let next = kinds.values().map(KnownRooms::next).min().unwrap_or(now + ASK_INTERVAL);
        (begun, next)
    }

    /// Keeps what the plugin answered, in place of all that it said before.
    pub fn set(&self, kind: &VolumeKind, places: Places) {
        if let Some(known) = self.lock().get_mut(kind) {
            known.asking_since = None;
            known.places.send_replace(Some(Arc::new(places)));
        }
    }

    /// The plugin had no room for a volume: it is asked again soon.
    pub fn doubt(&self, plugin: &PluginId) {
        let soon = Instant::now() + clock::jittered(ASK_SOONER_INTERVAL);
        for (_, known) in self.lock().iter_mut().filter(|(kind, _)| kind.plugin == *plugin) {
            known.due = known.due.min(soon);
        }
        self.sooner.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<VolumeKind, KnownRooms>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::room::Room;
    use tokio::time::{advance, timeout};

    use super::*;

    fn kind(tier: usize) -> VolumeKind {
        VolumeKind {
            plugin: PluginId::new("p").unwrap(),
            capabilities: Vec::new(),
            parameters: BTreeMap::from([("tier".to_owned(), tier.to_string())]),
        }
    }

    fn places(bytes: u64) -> Places {
        let room = Room { available_bytes: Some(bytes), max_volume_bytes: None };
        Places::from([(BTreeMap::new(), room)])
    }

    async fn look_at(table: &RoomTable, tier: usize) -> Option<Arc<Places>> {
        table.read_places(kind(tier), Instant::now() + Duration::from_secs(60)).await
    }

    /// What becomes due within this time.
    async fn due_within(table: &RoomTable, secs: u64) -> Vec<VolumeKind> {
        timeout(Duration::from_secs(secs), table.due()).await.unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_is_asked_as_long_as_somebody_looks() {
        let table = RoomTable::default();
        assert_eq!(due_within(&table, 10_000).await, []);
        let begin = Instant::now();
        assert_eq!(look_at(&table, 1).await, None);
        assert_eq!(begin.elapsed(), FIRST_ANSWERS_WITHIN, "nobody answered");
        assert_eq!(due_within(&table, 0).await, [kind(1)]);
        table.set(&kind(1), places(7));
        assert_eq!(look_at(&table, 1).await, Some(Arc::new(places(7))));
        assert_eq!(due_within(&table, 200).await, [], "it was asked lately");
        assert_eq!(due_within(&table, 200).await, [kind(1)]);
        table.set(&kind(1), places(8));
        assert_eq!(look_at(&table, 1).await, Some(Arc::new(places(8))));
        advance(KEPT).await;
        assert_eq!(due_within(&table, 1000).await, [], "nobody has looked for long");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_who_looks_gets_the_first_answers() {
        let table = RoomTable::default();
        let ask = async {
            for kind in table.due().await {
                table.set(&kind, places(7));
            }
        };
        let (seen, ()) = tokio::join!(look_at(&table, 1), ask);
        assert_eq!(seen, Some(Arc::new(places(7))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_without_room_is_asked_sooner_and_one_that_is_asked_is_not_asked_again() {
        let table = RoomTable::default();
        look_at(&table, 1).await;
        assert_eq!(due_within(&table, 0).await, [kind(1)]);
        table.doubt(&kind(1).plugin);
        assert_eq!(due_within(&table, 110).await, [], "it is being asked");
        table.set(&kind(1), places(7));
        assert_eq!(due_within(&table, 1).await, [kind(1)]);
        table.doubt(&kind(1).plugin);
        table.doubt(&kind(1).plugin);
        assert_eq!(due_within(&table, 110).await, [], "the answer is awaited");
        assert_eq!(due_within(&table, 20).await, [kind(1)], "it was lost");
        table.doubt(&PluginId::new("other").unwrap());
        table.set(&kind(1), places(7));
        assert_eq!(due_within(&table, 100).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded() {
        let table = RoomTable::default();
        for tier in 0..=KINDS_MAX {
            look_at(&table, tier).await;
        }
        let due = due_within(&table, 0).await;
        assert_eq!((due.len(), due.contains(&kind(0))), (KINDS_MAX, false));
    }
}
