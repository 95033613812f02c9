//! What plugins last said of their room, in the memory of this replica, and when each is asked
//! again.
//!
//! **Owns** for which kinds of volumes plugins are asked: for those that were read lately.
//!
//! **Promises** that a plugin is asked at intervals, sooner after it had no room for a volume, and
//! not again while it is being asked; and that the table is bounded.
//!
//! **Never** stores anything. After a start nothing is known, and readers of a kind wait for its
//! first answers for a moment only, all together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_bus::caller::wait_aside;
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
/// How long the first answers about a kind of volumes are waited for.
const FIRST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How long a kind of volumes is kept that is not read.
const KEPT: Duration = Duration::from_secs(3600);
/// Kinds of volumes, at most. One more replaces one that was not read since it was last due.
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
            capabilities: spec.capabilities.to_value(),
            parameters: spec.parameters.to_value(),
        }
    }
}

#[derive(Debug, Default)]
pub struct RoomTable {
    kinds: Mutex<BTreeMap<VolumeKind, RoomsOfKind>>,
    /// A question is due sooner than it was.
    is_sooner: Notify,
}

#[derive(Debug)]
struct RoomsOfKind {
    /// None before the first answers.
    places: watch::Sender<Option<Arc<Places>>>,
    added: Instant,
    read: Instant,
    due: Instant,
    /// When the plugin began to be asked, while it is.
    asking_since: Option<Instant>,
}

impl RoomsOfKind {
    fn new(now: Instant) -> Self {
        let places = watch::Sender::new(None);
        Self { places, added: now, read: now, due: now, asking_since: None }
    }

    /// When the plugin is asked. Answers that were lost are not waited for without end.
    fn next_question(&self) -> Instant {
        self.asking_since.map_or(self.due, |since| self.due.max(since + ASK_WITHIN))
    }
}

impl RoomTable {
    /// What the plugin last said; none if nothing is known yet.
    pub async fn read_places(&self, kind: VolumeKind, until: Instant) -> Option<Arc<Places>> {
        let (mut places, known_by) = self.add_reader(kind)?;
        // Part of the time is for the answer to the caller.
        let now = Instant::now();
        let until = known_by.min(now + until.saturating_duration_since(now) / 2);
        if places.borrow().is_none() && until > now {
            let first = timeout_at(until, places.wait_for(Option::is_some));
            wait_aside(async { first.await.is_ok() }).await.ok();
        }
        places.borrow().clone()
    }

    /// The places of a kind, and until when their first answers are waited for. None if as many
    /// kinds as may be were read lately.
    fn add_reader(
        &self,
        kind: VolumeKind,
    ) -> Option<(watch::Receiver<Option<Arc<Places>>>, Instant)> {
        let now = Instant::now();
        let mut kinds = self.lock();
        if !kinds.contains_key(&kind) {
            if kinds.len() >= KINDS_MAX {
                let unread = kinds.iter().min_by_key(|(_, rooms)| rooms.read)?;
                let unread = (unread.1.read + ASK_INTERVAL < now).then(|| unread.0.clone())?;
                kinds.remove(&unread);
            }
            self.is_sooner.notify_one();
        }
        let rooms = kinds.entry(kind).or_insert_with(|| RoomsOfKind::new(now));
        rooms.read = now;
        Some((rooms.places.subscribe(), rooms.added + FIRST_ANSWERS_WITHIN))
    }

    /// Waits until a plugin is to be asked. Returns the kinds of volumes to ask for: each counts as
    /// being asked for from now on.
    pub async fn await_due(&self) -> Vec<VolumeKind> {
        loop {
            let (due, next) = self.begin_due();
            if !due.is_empty() {
                return due;
            }
            tokio::select! {
                () = self.is_sooner.notified() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn begin_due(&self) -> (Vec<VolumeKind>, Instant) {
        let now = Instant::now();
        let mut kinds = self.lock();
        kinds.retain(|_, rooms| now.duration_since(rooms.read) < KEPT);
        let mut begun = Vec::new();
        for (kind, rooms) in kinds.iter_mut().filter(|(_, rooms)| rooms.next_question() <= now) {
            rooms.asking_since = Some(now);
            rooms.due = now + clock::jittered(ASK_INTERVAL);
            begun.push(kind.clone());
        }
        let next = kinds.values().map(RoomsOfKind::next_question).min();
        (begun, next.unwrap_or(now + ASK_INTERVAL))
    }

    /// Keeps what the plugin answered, in place of all that it said before.
    pub fn set_places(&self, kind: &VolumeKind, places: Places) {
        if let Some(rooms) = self.lock().get_mut(kind) {
            rooms.asking_since = None;
            rooms.places.send_replace(Some(Arc::new(places)));
        }
        // A doubt may have come meanwhile.
        self.is_sooner.notify_one();
    }

    /// What is known of the plugin's room may be wrong by now: it is asked again soon.
    pub fn doubt_plugin(&self, plugin: &PluginId) {
        let soon = Instant::now() + clock::jittered(ASK_SOONER_INTERVAL);
        for (_, rooms) in self.lock().iter_mut().filter(|(kind, _)| kind.plugin == *plugin) {
            rooms.due = rooms.due.min(soon);
        }
        self.is_sooner.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<VolumeKind, RoomsOfKind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::room::Capacity;
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
        let capacity = Capacity { available_bytes: Some(bytes), max_volume_bytes: None };
        Places::from([(BTreeMap::new(), capacity)])
    }

    async fn read(table: &RoomTable, tier: usize) -> Option<Arc<Places>> {
        table.read_places(kind(tier), Instant::now() + Duration::from_secs(60)).await
    }

    /// What becomes due within this time.
    async fn due_within(table: &RoomTable, secs: u64) -> Vec<VolumeKind> {
        timeout(Duration::from_secs(secs), table.await_due()).await.unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_is_asked_as_long_as_its_rooms_are_read() {
        let table = RoomTable::default();
        assert_eq!(due_within(&table, 10_000).await, []);
        assert_eq!(read(&table, 1).await, None);
        assert_eq!(due_within(&table, 0).await, [kind(1)]);
        table.set_places(&kind(1), places(7));
        assert_eq!(read(&table, 1).await, Some(Arc::new(places(7))));
        assert_eq!(due_within(&table, 200).await, [], "it was asked lately");
        assert_eq!(due_within(&table, 200).await, [kind(1)]);
        table.set_places(&kind(1), places(8));
        assert_eq!(read(&table, 1).await, Some(Arc::new(places(8))));
        advance(KEPT).await;
        assert_eq!(due_within(&table, 1000).await, [], "nothing was read for long");
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reader_gets_the_first_answers() {
        let table = RoomTable::default();
        let ask = async {
            for kind in table.await_due().await {
                table.set_places(&kind, places(7));
            }
        };
        let (seen, ()) = tokio::join!(read(&table, 1), ask);
        assert_eq!(seen, Some(Arc::new(places(7))));
    }

    /// 64 placements in one message would wait for a plugin that hangs one after the other.
    #[tokio::test(start_paused = true)]
    async fn readers_wait_for_the_first_answers_once() {
        let table = RoomTable::default();
        let began = Instant::now();
        assert_eq!(read(&table, 1).await, None);
        assert_eq!(began.elapsed(), FIRST_ANSWERS_WITHIN);
        assert_eq!(read(&table, 1).await, None);
        assert_eq!(began.elapsed(), FIRST_ANSWERS_WITHIN);
        let began = Instant::now();
        table.read_places(kind(2), began + Duration::from_millis(500)).await;
        assert_eq!(began.elapsed(), Duration::from_millis(250), "its caller needs the rest");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_without_room_is_asked_sooner_but_not_while_it_is_asked() {
        let table = RoomTable::default();
        read(&table, 1).await;
        assert_eq!(due_within(&table, 0).await, [kind(1)]);
        table.doubt_plugin(&kind(1).plugin);
        assert_eq!(due_within(&table, 110).await, [], "it is being asked");
        // The task that waits learns that the answers came.
        let answer = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            table.set_places(&kind(1), places(7));
        };
        let (due, ()) = tokio::join!(due_within(&table, 2), answer);
        assert_eq!(due, [kind(1)]);
        table.doubt_plugin(&kind(1).plugin);
        assert_eq!(due_within(&table, 110).await, [], "the answers are awaited");
        assert_eq!(due_within(&table, 20).await, [kind(1)], "they were lost");
        table.set_places(&kind(1), places(7));
        table.doubt_plugin(&PluginId::new("other").unwrap());
        assert_eq!(due_within(&table, 100).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn one_kind_more_replaces_only_one_that_was_not_read_lately() {
        let table = RoomTable::default();
        for tier in 0..=KINDS_MAX {
            read(&table, tier).await;
        }
        let due = due_within(&table, 0).await;
        assert_eq!((due.len(), due.contains(&kind(KINDS_MAX))), (KINDS_MAX, false));
        advance(ASK_INTERVAL).await;
        read(&table, KINDS_MAX).await;
        let due = due_within(&table, 400).await;
        assert_eq!((due.contains(&kind(0)), due.contains(&kind(KINDS_MAX))), (false, true));
    }
}
