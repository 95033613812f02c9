//! The messages of `history.list`: the events that are stored.
//!
//! **Owns** which events a reader asks for, and a page of them.
//!
//! **Promises** that an event goes through as it is stored, also one that a newer version wrote.

use berth_domain::{AllocId, Namespace, NodeId, PluginId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::query::Page;
use crate::event::Event;
use crate::{decode_leaf, decode_struct};

/// `history.list`: events that match everything that is given. Without `after`: the newest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListEvents {
    /// Only events of these kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<EventKind>,
    /// Only events that name one of these volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeId>,
    /// Only events that name one of these allocs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocs: Vec<AllocId>,
    /// Only events that name this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only events that name this plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// Only events of this trace, or of the release of a claim that was made in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Only events that were stored at this time or after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// In a request for all namespaces: only events of this one and of no namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_namespace: Option<Namespace>,
    /// Which page. `after` takes `next` for the page behind this one, or `end` for what was stored
    /// since.
    #[serde(flatten)]
    pub page: Page,
}
decode_struct!(
    ListEvents { kinds, volumes, allocs, node, plugin, trace, since, only_namespace } + page
);

/// What an event is about: the first word of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// Volumes: registered, mounted, …
    Volume,
    /// Snapshots: cut, ready, deleted, …
    Snapshot,
    /// Claims: waiting, taken, freed, …
    Claim,
    /// Calls of plugins, as the claim protocol makes them.
    Call,
    /// Allocs: registered, complete, …
    Alloc,
    /// Requests for a change that were refused.
    Request,
    /// Plugin instances: healthy, unhealthy, … They are in no namespace.
    Plugin,
    /// Nodes: ready, down, left. They are in no namespace.
    Node,
}
decode_leaf!(EventKind);

impl EventKind {
    /// The word in names and subjects.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Claim => "claim",
            Self::Call => "call",
            Self::Alloc => "alloc",
            Self::Request => "request",
            Self::Plugin => "plugin",
            Self::Node => "node",
        }
    }

    /// Whether its events are in no namespace.
    pub const fn is_of_fleet(self) -> bool {
        matches!(self, Self::Plugin | Self::Node)
    }
}

/// A page of events, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventPage {
    /// The events. Fewer than asked for, even none, is not the end: `next` is.
    pub events: Vec<EventEntry>,
    /// Where the next page begins, as `after`: of older events, or after `end` of newer ones. None
    /// when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Where to go on later, as `after`, with the events that are stored from now on. After older
    /// pages, `end` of the first page counts.
    pub end: String,
    /// When the oldest event that is kept was stored; none when none was removed by age or size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins: Option<Timestamp>,
}

/// One event in the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventEntry {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When the server stored it.
    pub stored: Timestamp,
    /// The event as it is stored.
    pub event: EventBody,
}

/// An event with everything that is stored of it, also the name and the fields of a newer version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct EventBody(Event, Value);

impl EventBody {
    /// Reads a stored event; none when it is no event.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// What this version understands of it.
    pub const fn event(&self) -> &Event {
        &self.0
    }

    /// Its name, also one that a newer version gave it.
    pub fn name(&self) -> &str {
        self.1["event"].as_str().unwrap_or_default()
    }

    /// All of it, in one line of JSON.
    pub fn to_json(&self) -> String {
        // The fields are in the usual order, unless that would lose some.
        match serde_json::to_value(&self.0) {
            Ok(known) if known == self.1 => serde_json::to_string(&self.0),
            _ => serde_json::to_string(&self.1),
        }
        .unwrap_or_default()
    }
}

impl TryFrom<Value> for EventBody {
    type Error = serde_json::Error;

    fn try_from(whole: Value) -> Result<Self, Self::Error> {
        Ok(Self(Event::deserialize(&whole)?, whole))
    }
}

impl From<EventBody> for Value {
    fn from(body: EventBody) -> Self {
        body.1
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::EventName;
    use crate::service::CLAIM;

    #[test]
    fn an_event_of_a_newer_version_goes_through_whole() {
        let newer = json!({"event": "backup.made", "at": Timestamp::default(), "service": "x",
            "size": {"bytes": 7}});
        let body = EventBody::read(serde_json::to_string_pretty(&newer).unwrap().as_bytes());
        let body = body.unwrap();
        assert_eq!((body.name(), body.to_json()), ("backup.made", newer.to_string()));
        assert_eq!(serde_json::to_value(&body).unwrap(), newer);
        for no_event in ["{}", "[]", "", "{\"event\": \"claim.taken\"}"] {
            assert_eq!(EventBody::read(no_event.as_bytes()), None, "{no_event}");
        }
    }

    #[test]
    fn a_known_event_is_printed_in_the_order_of_its_fields() {
        let known = Event {
            node: Some(NodeId::new("n1").unwrap()),
            ..Event::new(EventName::NodeReady, Timestamp::default(), CLAIM)
        };
        let line = serde_json::to_string(&known).unwrap();
        assert!(line.starts_with(r#"{"event":"node.ready","at":"#), "{line}");
        assert_eq!(EventBody::read(line.as_bytes()).unwrap().to_json(), line);
    }
}
