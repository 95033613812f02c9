//! What the services tell while a scene is played.

use std::sync::{Arc, Mutex, PoisonError};

use berth_bus::Bus;
use berth_contract::event::{Event, EventName};
use berth_contract::subject::{EventsOf, event_filter};
use berth_domain::Namespace;
use tokio::task::JoinHandle;

/// All events of a namespace, as they come.
#[derive(Debug)]
pub struct Told {
    events: Arc<Mutex<Vec<Event>>>,
    task: JoinHandle<()>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Told {
    /// Listens from now on.
    pub async fn listen(bus: &Bus) -> Self {
        let namespace = Namespace::default();
        let filter = event_filter(EventsOf::Namespace(&namespace), None, None);
        let mut live = bus.live_events(&[filter]).await.expect("events can be had");
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let told = Arc::clone(&events);
        let task = tokio::spawn(async move {
            while let Some(body) = live.next().await {
                if let Ok(event) = serde_json::from_slice(&body) {
                    told.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                }
            }
        });
        Self { events, task }
    }

    /// The events of an alloc so far, and their times.
    pub fn of_alloc(&self, id: &str) -> Vec<(u64, EventName)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let own = events
            .iter()
            .filter(|event| event.alloc.as_ref().is_some_and(|alloc| alloc.as_str() == id));
        own.map(|event| (event.at.unix_ms(), event.event)).collect()
    }
}
