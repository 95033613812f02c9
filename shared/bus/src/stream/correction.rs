//! The words of a stream: its description, and metadata of Berth.
//!
//! **Owns** what is corrected after an upgrade, by the service that owns the stream, at its start
//! ([`Bus::ensure`](crate::Bus)).
//!
//! **Promises** that nothing else of the stream is changed: neither what an operator may have set
//! nor what other commands wrote into the metadata. An older version leaves the words of a newer
//! one unchanged ([`bucket::SETTINGS`]), so two replicas of different versions do not undo each
//! other's.
//!
//! **Never** changes a stream while a restore is working on it.

use berth_contract::bucket;
use serde_json::{Map, Value};

use crate::incarnation::unfinished_above;

/// The metadata with the version of the words.
pub(crate) const SETTINGS_KEY: &str = "berth.settings";
/// The metadata with the number of writes that must follow a delete before its marker may be
/// purged.
pub(crate) const PURGED_AFTER: &str = "berth.purged-after";

/// The configuration with this version's words; none if there is nothing to correct.
pub(crate) fn find_correction(
    expected: &Map<String, Value>,
    present: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    if is_of_newer_version(present) || unfinished_above(present).is_some() {
        return None;
    }
    let mut config = present.clone();
    config.insert("description".to_owned(), expected.get("description")?.clone());
    let metadata = config.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else { return None };
    for (key, value) in expected.get("metadata")?.as_object()? {
        // An operator may have changed this value.
        if key != PURGED_AFTER || !metadata.contains_key(key) {
            metadata.insert(key.clone(), value.clone());
        }
    }
    (config != *present).then_some(config)
}

/// The expected settings to compare a stream with: the words of a newer version count as expected.
pub(crate) fn comparable(
    expected: &Map<String, Value>,
    present: &Map<String, Value>,
) -> Map<String, Value> {
    let mut expected = expected.clone();
    if is_of_newer_version(present) {
        expected.remove("description");
        expected.remove("metadata");
    }
    expected
}

fn is_of_newer_version(present: &Map<String, Value>) -> bool {
    let number = |config: &Map<String, Value>| -> Option<u32> {
        config.get("metadata")?.get(SETTINGS_KEY)?.as_str()?.parse().ok()
    };
    number(present).is_some_and(|number| number > bucket::SETTINGS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn expected() -> Map<String, Value> {
        let metadata = json!({"berth.writer": "claim", PURGED_AFTER: "9",
            SETTINGS_KEY: bucket::SETTINGS.to_string()});
        object(json!({"description": "new words", "num_replicas": 3, "max_bytes": -1,
            "metadata": metadata}))
    }

    #[test]
    fn only_words_are_corrected() {
        let present = object(json!({"description": "old", "num_replicas": 5, "max_bytes": 7,
            "placement": {"tags": ["x"]}, "metadata": {"berth.writer": "old", PURGED_AFTER: "4",
            "berth.incarnation": "12", "_nats.ver": "2.12", "operators": "own"}}));
        let corrected = find_correction(&expected(), &present).unwrap();
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
