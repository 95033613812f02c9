//! A bucket's content at each revision, from its writers' acknowledgements, and the faults of a
//! page.

use std::collections::BTreeMap;

/// One entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    pub revision: u64,
    /// The changing part of the record: a name, a state.
    pub content: String,
}

/// One page of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub index: u64,
    /// The last id of the page before.
    pub after: Option<String>,
    /// The last id of this page. None: the list ends with it.
    pub until: Option<String>,
    pub entries: Vec<Entry>,
}

impl Page {
    /// Whether the page holds the whole list.
    pub fn is_whole(&self) -> bool {
        self.after.is_none() && self.until.is_none()
    }

    fn covers(&self, id: &str) -> bool {
        self.after.as_deref().is_none_or(|after| id > after)
            && self.until.as_deref().is_none_or(|until| id <= until)
    }
}

/// A change of one record.
#[derive(Debug, Clone)]
struct Change {
    /// The first revision at which the change may have happened.
    earliest: u64,
    /// The first revision at which the change has happened; equal to `earliest` for an
    /// acknowledged write.
    latest: u64,
    /// The new content. None: the record was deleted.
    content: Option<String>,
}

/// The changes of each record, in order.
#[derive(Debug, Default)]
pub struct History(BTreeMap<String, Vec<Change>>);

impl History {
    /// Adds a write.
    pub fn put(&mut self, id: &str, revision: u64, content: &str) {
        let content = Some(content.to_owned());
        self.add(id, Change { earliest: revision, latest: revision, content });
    }

    /// Adds a deletion at an unknown revision between these two.
    pub fn gone(&mut self, id: &str, after: u64, before: u64) {
        self.add(id, Change { earliest: after + 1, latest: before, content: None });
    }

    fn add(&mut self, id: &str, change: Change) {
        self.0.entry(id.to_owned()).or_default().push(change);
    }

    /// Adds the history of another writer, which wrote other records.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Differences between the page and the history at the page's revision.
    pub fn faults(&self, page: &Page) -> Vec<String> {
        let ids: Vec<&String> = page.entries.iter().map(|entry| &entry.id).collect();
        let mut faults = Vec::new();
        if !ids.is_sorted_by(|id, next| id < next) {
            faults.push(format!("out of order, or twice: {ids:?}"));
        }
        for entry in page.entries.iter().filter(|entry| !page.covers(&entry.id)) {
            faults.push(format!("{} does not belong to this page", entry.id));
        }
        for entry in page.entries.iter().filter(|entry| !self.0.contains_key(&entry.id)) {
            faults.push(format!("nobody wrote {}", entry.id));
        }
        for (id, changes) in self.0.iter().filter(|(id, _)| page.covers(id)) {
            let shown = page.entries.iter().find(|entry| entry.id == **id);
            let shown = shown.map(|entry| (entry.revision, entry.content.as_str()));
            let possible = possible_states(changes, page.index);
            if !possible.contains(&shown) {
                let index = page.index;
                faults.push(format!("{id} at {index} is {shown:?}, and was one of {possible:?}"));
            }
        }
        faults
    }
}

/// The states that a record may have had at a revision: its last certain change, or any possible
/// change after it.
fn possible_states(changes: &[Change], index: u64) -> Vec<Option<(u64, &str)>> {
    let certain = changes.iter().rposition(|change| change.latest <= index);
    let later = certain.map_or(0, |certain| certain + 1);
    let possible = changes[later..].iter().filter(|change| change.earliest <= index);
    // Before its first change the record did not exist.
    let certain = certain.and_then(|certain| shown_after(&changes[certain]));
    std::iter::once(certain).chain(possible.map(shown_after)).collect()
}

fn shown_after(change: &Change) -> Option<(u64, &str)> {
    change.content.as_deref().map(|content| (change.latest, content))
}

/// The first of two records is always changed before the second. The first is then deleted and
/// written again.
fn example() -> History {
    let mut history = History::default();
    history.put("a", 1, "0");
    history.put("b", 2, "0");
    history.put("a", 3, "1");
    history.put("b", 6, "1");
    history.gone("a", 6, 8);
    history.put("b", 8, "2");
    history.put("a", 9, "2");
    history
}

fn page(index: u64, entries: &[(&str, u64, &str)]) -> Page {
    let entry = |(id, revision, content): &(&str, u64, &str)| Entry {
        id: (*id).to_owned(),
        revision: *revision,
        content: (*content).to_owned(),
    };
    Page { index, entries: entries.iter().map(entry).collect(), ..Page::default() }
}

#[test]
fn a_picture_of_each_revision_has_no_fault() {
    for whole in [
        page(0, &[]),
        page(1, &[("a", 1, "0")]),
        page(2, &[("a", 1, "0"), ("b", 2, "0")]),
        page(5, &[("a", 3, "1"), ("b", 2, "0")]),
        page(6, &[("a", 3, "1"), ("b", 6, "1")]),
        // The record was deleted between 6 and 8.
        page(7, &[("a", 3, "1"), ("b", 6, "1")]),
        page(7, &[("b", 6, "1")]),
        page(8, &[("b", 8, "2")]),
        page(10, &[("a", 9, "2"), ("b", 8, "2")]),
    ] {
        assert_eq!(example().faults(&whole), Vec::<String>::new(), "{whole:?}");
    }
    let first = Page { until: Some("a".to_owned()), ..page(5, &[("a", 3, "1")]) };
    let last = Page { after: Some("a".to_owned()), ..page(6, &[("b", 6, "1")]) };
    assert_eq!(
        [example().faults(&first), example().faults(&last)],
        [const { Vec::<String>::new() }; 2]
    );
}

#[test]
fn what_never_stood_there_at_once_is_found() {
    for torn in [
        // The second change without the first, which came before.
        page(6, &[("a", 1, "0"), ("b", 6, "1")]),
        // An entry newer than the page's revision, or older than the record at it.
        page(5, &[("a", 3, "1"), ("b", 6, "1")]),
        page(6, &[("a", 3, "1"), ("b", 2, "0")]),
        // A wrong revision.
        page(5, &[("a", 2, "1"), ("b", 2, "0")]),
        // A record that is missing, or a deleted record.
        page(5, &[("b", 2, "0")]),
        page(8, &[("a", 3, "1"), ("b", 8, "2")]),
        page(10, &[("b", 8, "2")]),
        page(0, &[("a", 1, "0")]),
        // Records twice, out of order, or unknown.
        page(2, &[("a", 1, "0"), ("a", 1, "0"), ("b", 2, "0")]),
        page(2, &[("b", 2, "0"), ("a", 1, "0")]),
        page(2, &[("a", 1, "0"), ("b", 2, "0"), ("c", 2, "0")]),
    ] {
        assert_ne!(example().faults(&torn), Vec::<String>::new(), "{torn:?}");
    }
    let twice = Page { after: Some("a".to_owned()), ..page(2, &[("a", 1, "0"), ("b", 2, "0")]) };
    assert_ne!(example().faults(&twice), Vec::<String>::new());
}
