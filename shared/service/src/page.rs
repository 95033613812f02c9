//! Lists, page by page.
//!
//! **Promises** that a page is sorted and fits into a message, and that the next page begins where
//! it ended, whatever was added or removed meanwhile. A page of a long list reads each key once,
//! and copies no more than the page.

use std::collections::BinaryHeap;

use berth_contract::decode::Fault;
use berth_contract::message::query;
use berth_contract::problem::Problem;
use berth_domain::limits;
use serde::Serialize;

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// Its entries, by key.
    pub entries: Vec<T>,
    /// Where the next page begins; `None` after the last page.
    pub next: Option<String>,
}

/// The bounds of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The most entries.
    pub entries: usize,
    /// The most bytes of all entries as JSON.
    pub bytes: usize,
}

impl Room {
    /// The requested number of entries, and no more bytes than fit into a message.
    pub fn for_page(requested: &query::Page) -> Self {
        let requested = requested.limit.and_then(|limit| usize::try_from(limit).ok());
        let entries = requested.unwrap_or(limits::PAGE_MAX).clamp(1, limits::PAGE_MAX);
        Self { entries, bytes: limits::PAGE_BYTES_MAX }
    }

    /// How many keys a page takes of a sorted list: one more than its entries, which shows whether
    /// there is another page.
    pub fn keys(self) -> usize {
        self.entries + 1
    }

    /// These bounds, less the bytes of the other parts of the answer.
    #[must_use]
    pub fn beside(self, part: &impl Serialize) -> Self {
        Self { bytes: self.bytes.saturating_sub(bytes_of(part)), ..self }
    }
}

/// The key after which the requested page begins, from the `next` of the page before. `parse` reads
/// the parts of `next`.
pub fn after<K>(
    requested: &query::Page,
    parse: impl FnOnce(&str) -> Option<K>,
) -> Result<Option<K>, Problem> {
    let Some(token) = &requested.after else { return Ok(None) };
    parse(token).map(Some).ok_or_else(|| {
        let problem = "is no `next` of a page of this list".to_owned();
        Problem::bad_input(vec![Fault { path: "after".to_owned(), problem, line: None }])
    })
}

/// The first page of the entries with these keys, which come after the previous page, each once, in
/// any order. `token` encodes a key for `next`.
pub fn page<K: Ord, T: Serialize>(
    keys: impl Iterator<Item = K>,
    room: Room,
    show: impl Fn(&K) -> T,
    token: impl Fn(&K) -> String,
) -> Page<T> {
    // One more than there is room for, which shows whether there is a next page.
    let mut first = BinaryHeap::with_capacity(room.entries + 2);
    for key in keys {
        first.push(key);
        if first.len() > room.entries + 1 {
            first.pop();
        }
    }
    let mut bytes_left = room.bytes;
    let mut entries = Vec::new();
    let mut last: Option<K> = None;
    for key in first.into_sorted_vec() {
        let entry = show(&key);
        let bytes = bytes_of(&entry);
        // A page has at least one entry; otherwise a reader could never get past a large entry.
        if last.is_some() && (entries.len() == room.entries || bytes > bytes_left) {
            return Page { entries, next: last.as_ref().map(token) };
        }
        bytes_left = bytes_left.saturating_sub(bytes);
        entries.push(entry);
        last = Some(key);
    }
    Page { entries, next: None }
}

/// The entry's bytes as JSON, with a comma. An entry that cannot be written fails when the page is
/// sent.
pub fn bytes_of(entry: &impl Serialize) -> usize {
    serde_json::to_vec(entry).map_or(0, |json| json.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(entries: usize, bytes: usize) -> Room {
        Room { entries, bytes }
    }

    fn pages(keys: &[u32], room: Room) -> Vec<Vec<u32>> {
        let mut pages = Vec::new();
        let mut after = None;
        loop {
            let following =
                keys.iter().copied().filter(|key| after.is_none_or(|after| *key > after));
            let page = page(following, room, |key| *key, ToString::to_string);
            pages.push(page.entries);
            match page.next {
                Some(next) => after = next.parse().ok(),
                None => return pages,
            }
        }
    }

    #[test]
    fn pages_are_sorted_and_together_the_whole() {
        let keys = [5, 3, 9, 1, 7, 2];
        assert_eq!(pages(&keys, room(2, 100)), [[1, 2], [3, 5], [7, 9]]);
        assert_eq!(pages(&keys, room(4, 100)), [vec![1, 2, 3, 5], vec![7, 9]]);
        assert_eq!(pages(&keys, room(6, 100)), [vec![1, 2, 3, 5, 7, 9]]);
        assert_eq!(pages(&[], room(6, 100)), [Vec::<u32>::new()]);
    }

    #[test]
    fn a_page_ends_where_a_message_would_and_is_never_empty() {
        // `1000,` has five bytes.
        assert_eq!(pages(&[1000, 2000, 3000], room(9, 10)), [vec![1000, 2000], vec![3000]]);
        assert_eq!(pages(&[1000, 2000], room(9, 3)), [[1000], [2000]]);
    }

    #[test]
    fn nobody_gets_more_than_a_message_carries() {
        let entries = |limit| Room::for_page(&query::Page { limit, after: None }).entries;
        assert_eq!(entries(None), limits::PAGE_MAX);
        assert_eq!(entries(Some(0)), 1);
        assert_eq!(entries(Some(7)), 7);
        assert_eq!(entries(Some(u32::MAX)), limits::PAGE_MAX);
        assert_eq!(room(3, 10).beside(&"abc"), room(3, 4));
    }
}
