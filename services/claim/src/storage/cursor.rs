//! The position of a listing in what a plugin lists, page by page.
//!
//! **Owns** the `next` of `volume.external`, and the bounds of a listing.
//!
//! **Promises** that a listing ends, whatever the plugin answers: pages, entries and new beginnings
//! are bounded.
//!
//! **Never** trusts a `next`: the client sends it back. It names a controller and a token of a list
//! that the client may read in any case, and a wrong one gives a wrong list to that client only.

use berth_contract::message::storage_call::PluginVolumeStatus;
use berth_domain::NodeId;
use berth_domain::limits::{PLUGIN_ENTRIES_MAX, PLUGIN_PAGES_MAX, TEXT_BYTES_MAX};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// How often the list of one controller begins again: its node went away, or its plugin forgot the
/// token.
const RESTARTS_MAX: usize = 3;

/// Where the next page of `volume.external` begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ListingCursor {
    /// In the plugin's lists.
    Listed {
        /// The plugin's page.
        position: PagePosition,
        /// What the pages before had.
        tally: ListingTally,
    },
    /// After this external id and owner in what is registered and not listed.
    NotListed(Option<(String, String)>),
}

impl ListingCursor {
    /// The text of the cursor; none if the plugin's token makes it longer than a request's text
    /// may be.
    pub fn encode(&self) -> Option<String> {
        let text = serde_json::to_string(self).ok()?;
        (text.len() <= TEXT_BYTES_MAX).then_some(text)
    }

    /// The cursor of such a text.
    pub fn decode(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// A page of one controller's list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PagePosition {
    /// The node of the controller that began the list. All pages are its own: a token may mean
    /// nothing to another controller.
    pub node: NodeId,
    /// The plugin's token of the page; empty for the first page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// How many entries of the page were returned before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip: usize,
    /// How many pages of the list were read before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pages: usize,
    /// How many entries they had.
    #[serde(default, skip_serializing_if = "is_zero")]
    entries: usize,
    /// How often the list began again.
    #[serde(default, skip_serializing_if = "is_zero")]
    restarts: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl PagePosition {
    /// The first page of the list of the controller on this node.
    pub fn first_of(node: NodeId) -> Self {
        Self { node, token: String::new(), skip: 0, pages: 0, entries: 0, restarts: 0 }
    }

    /// Whether an earlier page of this list, or of this list before it began again, was read.
    pub fn has_begun(&self) -> bool {
        !self.token.is_empty() || self.restarts > 0
    }

    /// This page, of which so many entries were returned.
    pub fn skip(&self, skip: usize) -> Self {
        Self { skip, ..self.clone() }
    }

    /// The page after this one, which has the token and follows these entries. None if the plugin
    /// would perhaps never end its list.
    pub fn next_page(&self, token: String, entries: usize) -> Option<Self> {
        // A client may send any numbers.
        let pages = self.pages.saturating_add(1);
        let entries = self.entries.saturating_add(entries);
        let is_endless =
            token == self.token || pages >= PLUGIN_PAGES_MAX || entries >= PLUGIN_ENTRIES_MAX;
        (!is_endless).then(|| Self { token, skip: 0, pages, entries, ..self.clone() })
    }

    /// The first page again, of the controller on this node. None if the list began again too
    /// often.
    pub fn restart(&self, node: NodeId) -> Option<Self> {
        let restarts = self.restarts.saturating_add(1);
        (restarts <= RESTARTS_MAX).then(|| Self { restarts, ..Self::first_of(node) })
    }
}

/// What the pages of a listing had so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListingTally {
    /// Whether entries are missing, or may be. Then nothing can be told as not listed.
    pub has_gaps: bool,
    /// The sum of the hashes of the external ids that are registered. A request has no room for
    /// the ids themselves, and the sum shows whether the plugin listed all that is registered.
    known: u64,
}

impl ListingTally {
    /// Counts a registered external id.
    pub fn count(&mut self, external_id: &str) {
        let hash = Sha256::digest(external_id.as_bytes());
        let first = hash.iter().take(8).fold(0, |all, byte| all << 8 | u64::from(*byte));
        self.known = self.known.wrapping_add(first);
    }

    /// Whether exactly these ids were counted, each once.
    pub fn has_all<'a>(&self, registered: impl Iterator<Item = &'a String>) -> bool {
        let mut all = Self::default();
        registered.for_each(|id| all.count(id));
        all.known == self.known
    }
}

/// Whether an answer of `ControllerGetVolume` shows that its controller has the volume. Upstream's
/// hostpath driver answers OK for an id that it does not know, with nothing but an abnormal
/// condition.
pub fn shows_volume(answer: &PluginVolumeStatus, id: &str) -> bool {
    let describes = answer.capacity_bytes.is_some() || !answer.topologies.is_empty();
    answer.external_id == id && (answer.abnormal.is_none() || describes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(id: &str) -> NodeId {
        id.parse().unwrap()
    }

    #[test]
    fn a_list_without_an_end_is_cut_off() {
        let first = PagePosition::first_of(node("n1"));
        assert!(!first.has_begun());
        let second = first.next_page("a".to_owned(), 3).unwrap();
        assert!(second.has_begun());
        assert_eq!(second.next_page("a".to_owned(), 3), None, "the token came again");
        assert_eq!(second.next_page("b".to_owned(), PLUGIN_ENTRIES_MAX - 3), None);
        let mut pages = 1;
        let mut position = first;
        while let Some(next) = position.next_page(format!("t{pages}"), 0) {
            (position, pages) = (next, pages + 1);
        }
        assert_eq!(pages, PLUGIN_PAGES_MAX);
    }

    #[test]
    fn a_list_begins_again_a_few_times() {
        let mut position = PagePosition::first_of(node("n1")).next_page("a".to_owned(), 3).unwrap();
        for _ in 0..RESTARTS_MAX {
            position = position.restart(node("n2")).unwrap();
            assert!(
                position.has_begun() && position.token.is_empty() && position.node == node("n2")
            );
            position = position.next_page("b".to_owned(), 1).unwrap();
        }
        assert_eq!(position.restart(node("n1")), None);
    }

    #[test]
    fn a_cursor_comes_back_as_it_was_and_another_text_is_none() {
        let position =
            PagePosition::first_of(node("n1")).next_page("after:x".to_owned(), 500).unwrap();
        let mut tally = ListingTally { has_gaps: true, ..ListingTally::default() };
        tally.count("vol-1");
        let cursors = [
            ListingCursor::Listed { position: position.skip(7), tally },
            ListingCursor::NotListed(None),
            ListingCursor::NotListed(Some(("vol-1".to_owned(), "default/data".to_owned()))),
        ];
        for cursor in cursors {
            let text = cursor.encode().unwrap();
            assert_eq!(ListingCursor::decode(&text), Some(cursor), "{text}");
        }
        let long = position.next_page("x".repeat(TEXT_BYTES_MAX), 1).unwrap();
        assert_eq!(ListingCursor::Listed { position: long, tally }.encode(), None);
        for text in ["", "[]", r#"["known","a",""]"#, r#"{"listed":{"position":{"node":""}}}"#] {
            assert_eq!(ListingCursor::decode(text), None, "{text}");
        }
    }

    /// A client may send any numbers.
    #[test]
    fn a_forged_cursor_ends_its_list() {
        let text = json!({"listed": {
            "position": {"node": "n1", "token": "x", "skip": usize::MAX, "pages": usize::MAX,
                "entries": usize::MAX, "restarts": usize::MAX},
            "tally": {"has_gaps": false, "known": u64::MAX},
        }});
        let Some(ListingCursor::Listed { position, .. }) = ListingCursor::decode(&text.to_string())
        else {
            panic!("{text}")
        };
        assert_eq!(
            (position.next_page("y".to_owned(), 1), position.restart(node("n2"))),
            (None, None)
        );
    }

    #[test]
    fn the_tally_shows_whether_all_that_is_registered_was_listed() {
        let ids = ["a", "b", "c"].map(str::to_owned);
        let mut tally = ListingTally::default();
        assert!(tally.has_all([].iter()));
        for id in ["c", "a"] {
            tally.count(id);
        }
        assert!(!tally.has_all(ids.iter()) && tally.has_all([&ids[0], &ids[2]].into_iter()));
        tally.count("b");
        assert!(tally.has_all(ids.iter()));
        tally.count("b");
        assert!(!tally.has_all(ids.iter()));
    }

    #[test]
    fn an_abnormal_answer_without_a_size_shows_no_volume() {
        let answer = |fields: serde_json::Value| -> PluginVolumeStatus {
            let mut answer = json!({"external_id": "vol-1"});
            for (name, value) in fields.as_object().unwrap() {
                answer[name] = value.clone();
            }
            serde_json::from_value(answer).unwrap()
        };
        for (fields, shows) in [
            (json!({}), true),
            (json!({"capacity_bytes": 4096}), true),
            (json!({"abnormal": "no such volume"}), false),
            (json!({"abnormal": "a disk fails", "capacity_bytes": 4096}), true),
            (json!({"abnormal": "a disk fails", "topologies": [{"host": "h1"}]}), true),
            (json!({"external_id": "", "capacity_bytes": 4096}), false),
        ] {
            assert_eq!(shows_volume(&answer(fields.clone()), "vol-1"), shows, "{fields}");
        }
    }
}
