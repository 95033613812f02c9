//! The words that a stream carries: its description, and metadata of ours.
//!
//! **Owns** their correction after an upgrade, by the service that owns the stream, at its start.
//!
//! **Promises** that nothing else of the stream is changed: neither what an operator may have set
//! nor what other commands wrote into the metadata. An older version leaves the words of a newer
//! one as they are ([`bucket::SETTINGS`]), so two replicas of different versions do not undo each
//! other's.
//!
//! **Never** touches a stream that a restore is at work on.

use berth_contract::actor::Actor;
use berth_contract::bucket;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::bucket::PURGED_AFTER;
use crate::exchange::ApiError;
use crate::handle::Bus;
use crate::incarnation::unfinished_above;
use crate::stream::Description;

/// The metadata that says which version's words the stream carries.
pub(crate) const SETTINGS_KEY: &str = "berth.settings";

/// The server's answer to a change.
#[derive(Deserialize)]
struct Updated {
    config: Map<String, Value>,
}

impl Bus {
    /// Corrects the words of a stream that this process owns. A process that may not, leaves them:
    /// they are reported as drift.
    pub(crate) async fn correct_words(
        &self,
        stream: &str,
        expected: &Map<String, Value>,
        found: &mut Description,
    ) {
        let owner = bucket::stream_owner(stream).map(Actor::service);
        if owner.as_ref() != Some(self.actor()) {
            return;
        }
        let Some(config) = find_correction(expected, &found.config) else { return };
        let subject = format!("$JS.API.STREAM.UPDATE.{stream}");
        let updated: Result<Updated, ApiError> = self.api(subject, &Value::Object(config)).await;
        match updated {
            Ok(updated) => {
                tracing::info!(stream, "corrected the description and metadata of a stream");
                found.config = updated.config;
            }
            Err(error) => tracing::warn!(stream, %error, "the words of a stream stay outdated"),
        }
    }
}

/// The configuration with this version's words; none if there is nothing to correct.
fn find_correction(
    expected: &Map<String, Value>,
    found: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    if is_of_newer_version(found) || unfinished_above(found).is_some() {
        return None;
    }
    let mut config = found.clone();
    config.insert("description".to_owned(), expected.get("description")?.clone());
    let metadata = config.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else { return None };
    for (key, value) in expected.get("metadata")?.as_object()? {
        // An operator may have set this one.
        if key != PURGED_AFTER || !metadata.contains_key(key) {
            metadata.insert(key.clone(), value.clone());
        }
    }
    (config != *found).then_some(config)
}

/// The settings to compare a stream with: the words of a newer version are as they are to be.
pub(crate) fn comparable(
    expected: &Map<String, Value>,
    found: &Map<String, Value>,
) -> Map<String, Value> {
    let mut expected = expected.clone();
    if is_of_newer_version(found) {
        expected.remove("description");
        expected.remove("metadata");
    }
    expected
}

fn is_of_newer_version(found: &Map<String, Value>) -> bool {
    let number = |config: &Map<String, Value>| -> Option<u32> {
        config.get("metadata")?.get(SETTINGS_KEY)?.as_str()?.parse().ok()
    };
    number(found).is_some_and(|number| number > bucket::SETTINGS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn expected() -> Map<String, Value> {
        object(json!({"description": "new words", "num_replicas": 3, "max_bytes": -1, "metadata":
            {"berth.writer": "claim", PURGED_AFTER: "9", SETTINGS_KEY: bucket::SETTINGS.to_string()}}))
    }

    #[test]
    fn only_words_are_corrected() {
        let found = object(json!({"description": "old", "num_replicas": 5, "max_bytes": 7,
            "placement": {"tags": ["x"]}, "metadata": {"berth.writer": "old", PURGED_AFTER: "4",
            "berth.incarnation": "12", "_nats.ver": "2.12", "operators": "own"}}));
        let corrected = find_correction(&expected(), &found).unwrap();
        let now = object(json!({"description": "new words", "num_replicas": 5, "max_bytes": 7,
            "placement": {"tags": ["x"]}, "metadata": {"berth.writer": "claim", PURGED_AFTER: "4",
            "berth.incarnation": "12", "_nats.ver": "2.12", "operators": "own",
            SETTINGS_KEY: bucket::SETTINGS.to_string()}}));
        assert_eq!(corrected, now);
        assert_eq!(find_correction(&expected(), &corrected), None, "once");
    }

    #[test]
    fn words_of_a_newer_version_and_of_a_restore_at_work_stay() {
        let newer = (bucket::SETTINGS + 1).to_string();
        let newer = object(json!({"description": "newer", "metadata": {SETTINGS_KEY: newer}}));
        assert_eq!(find_correction(&expected(), &newer), None);
        assert!(!comparable(&expected(), &newer).contains_key("description"));
        let restored = object(json!({"metadata": {"berth.unfinished": "7"}}));
        assert_eq!(find_correction(&expected(), &restored), None);
        assert_eq!(comparable(&expected(), &restored), expected());
    }
}
