//! The events that the services publish while a scene is played.

use std::sync::{Arc, Mutex, PoisonError};

use berth_bus::Bus;
use berth_contract::event::{Event, EventName};
use berth_contract::subject::{EventsOf, event_filter};
use berth_domain::Namespace;
use tokio::task::JoinHandle;

/// All events of a namespace, in the order of their arrival.
#[derive(Debug)]
pub struct EventLog {
    events: Arc<Mutex<Vec<Event>>>,
    task: JoinHandle<()>,
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl EventLog {
    /// Receives events from now on.
    pub async fn listen(bus: &Bus) -> Self {
        let namespace = Namespace::default();
        let filter = event_filter(EventsOf::Namespace(&namespace), None, None);
        let mut live = bus.live_events(&[filter]).await.expect("events can be had");
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let received = Arc::clone(&events);
        let task = tokio::spawn(async move {
            while let Some(body) = live.next().await {
                if let Ok(event) = serde_json::from_slice(&body) {
                    received.lock().unwrap_or_else(PoisonError::into_inner).push(event);
                }
            }
        });
        Self { events, task }
    }

    /// The events of an alloc so far, with their times in milliseconds since 1970.
    pub fn of_alloc(&self, id: &str) -> Vec<(u64, EventName)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let own = events
            .iter()
            .filter(|event| event.alloc.as_ref().is_some_and(|alloc| alloc.as_str() == id));
        own.map(|event| (event.at.unix_ms(), event.event)).collect()
    }
}
