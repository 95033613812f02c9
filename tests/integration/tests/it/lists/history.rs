//! What a bucket held at each revision, as far as its writers were told; and what of a page is not
//! so.

use std::collections::BTreeMap;

/// One entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    /// Which revision it is said to be of.
    pub revision: u64,
    /// The changing part of the record: a name, a state.
    pub is: String,
}

/// One page of a list.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub index: u64,
    /// The last id of the page before.
    pub after: Option<String>,
    /// The last id of this one, unless the list ends with it.
    pub until: Option<String>,
    pub entries: Vec<Entry>,
}

impl Page {
    /// Whether the list has no other page.
    pub fn is_whole(&self) -> bool {
        self.after.is_none() && self.until.is_none()
    }

    fn covers(&self, id: &str) -> bool {
        self.after.as_deref().is_none_or(|after| id > after)
            && self.until.as_deref().is_none_or(|until| id <= until)
    }
}

/// One change of one thing.
#[derive(Debug, Clone)]
struct Change {
    /// The first revision at which it may be so.
    may: u64,
    /// The first revision at which it is so; the same, when its writer was told.
    is: u64,
    /// What it is then; none for gone.
    becomes: Option<String>,
}

/// The changes of each thing, in their order.
#[derive(Debug, Default)]
pub struct History(BTreeMap<String, Vec<Change>>);

impl History {
    /// It was written, at this revision.
    pub fn put(&mut self, id: &str, at: u64, becomes: &str) {
        self.add(id, Change { may: at, is: at, becomes: Some(becomes.to_owned()) });
    }

    /// It was deleted, somewhere between these two revisions.
    pub fn gone(&mut self, id: &str, after: u64, before: u64) {
        self.add(id, Change { may: after + 1, is: before, becomes: None });
    }

    fn add(&mut self, id: &str, change: Change) {
        self.0.entry(id.to_owned()).or_default().push(change);
    }

    /// With what another writer did to other things.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// What of the page is not as it was at its revision.
    pub fn faults(&self, page: &Page) -> Vec<String> {
        let ids: Vec<&String> = page.entries.iter().map(|entry| &entry.id).collect();
        let mut faults = Vec::new();
        if !ids.is_sorted_by(|one, next| one < next) {
            faults.push(format!("out of order, or twice: {ids:?}"));
        }
        for entry in page.entries.iter().filter(|entry| !page.covers(&entry.id)) {
            faults.push(format!("{} is not of this page", entry.id));
        }
        for entry in page.entries.iter().filter(|entry| !self.0.contains_key(&entry.id)) {
            faults.push(format!("nobody wrote {}", entry.id));
        }
        for (id, changes) in self.0.iter().filter(|(id, _)| page.covers(id)) {
            let shown = page.entries.iter().find(|entry| entry.id == **id);
            let shown = shown.map(|entry| (entry.revision, entry.is.as_str()));
            let possible = possible(changes, page.index);
            if !possible.contains(&shown) {
                let index = page.index;
                faults.push(format!("{id} at {index} is {shown:?}, and was one of {possible:?}"));
            }
        }
        faults
    }
}

/// What a thing may have been at a revision: what the last change had made of it that is known to
/// have been there, or any that may have been there since.
fn possible(changes: &[Change], index: u64) -> Vec<Option<(u64, &str)>> {
    let known = changes.iter().rposition(|change| change.is <= index);
    let later = known.map_or(0, |known| known + 1);
    let since = changes[later..].iter().filter(|change| change.may <= index);
    // Before its first change there was no such thing.
    let before = known.and_then(|known| as_seen(&changes[known]));
    std::iter::once(before).chain(since.map(as_seen)).collect()
}

fn as_seen(change: &Change) -> Option<(u64, &str)> {
    change.becomes.as_deref().map(|is| (change.is, is))
}

/// The first of two things is changed before the second; the first then goes and comes back.
fn told() -> History {
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
    let entry = |(id, revision, is): &(&str, u64, &str)| Entry {
        id: (*id).to_owned(),
        revision: *revision,
        is: (*is).to_owned(),
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
        // Between 6 and 8 it went.
        page(7, &[("a", 3, "1"), ("b", 6, "1")]),
        page(7, &[("b", 6, "1")]),
        page(8, &[("b", 8, "2")]),
        page(10, &[("a", 9, "2"), ("b", 8, "2")]),
    ] {
        assert_eq!(told().faults(&whole), Vec::<String>::new(), "{whole:?}");
    }
    let first = Page { until: Some("a".to_owned()), ..page(5, &[("a", 3, "1")]) };
    let last = Page { after: Some("a".to_owned()), ..page(6, &[("b", 6, "1")]) };
    assert_eq!([told().faults(&first), told().faults(&last)], [const { Vec::<String>::new() }; 2]);
}

#[test]
fn what_never_stood_there_at_once_is_found() {
    for torn in [
        // The second without the first, which came before.
        page(6, &[("a", 1, "0"), ("b", 6, "1")]),
        // Newer than its index, or older.
        page(5, &[("a", 3, "1"), ("b", 6, "1")]),
        page(6, &[("a", 3, "1"), ("b", 2, "0")]),
        // Of another revision than it says.
        page(5, &[("a", 2, "1"), ("b", 2, "0")]),
        // Missing, or still there.
        page(5, &[("b", 2, "0")]),
        page(8, &[("a", 3, "1"), ("b", 8, "2")]),
        page(10, &[("b", 8, "2")]),
        page(0, &[("a", 1, "0")]),
        // Twice, out of order, or unknown.
        page(2, &[("a", 1, "0"), ("a", 1, "0"), ("b", 2, "0")]),
        page(2, &[("b", 2, "0"), ("a", 1, "0")]),
        page(2, &[("a", 1, "0"), ("b", 2, "0"), ("c", 2, "0")]),
    ] {
        assert_ne!(told().faults(&torn), Vec::<String>::new(), "{torn:?}");
    }
    let twice = Page { after: Some("a".to_owned()), ..page(2, &[("a", 1, "0"), ("b", 2, "0")]) };
    assert_ne!(told().faults(&twice), Vec::<String>::new());
}
