//! Lists: one line for each entry.

use berth_domain::{Namespace, Timestamp};

use super::within;
use crate::table::Table;

/// The heading of a column, and its cell for an entry.
pub type Column<T> = (&'static str, fn(&T, Timestamp) -> String);

/// An entry of a list.
pub trait Listed: Sized + 'static {
    /// The columns. A list is sorted by the first, the name, if no other is wanted.
    const COLUMNS: &'static [Column<Self>];
    /// What is printed in place of an empty list.
    const NONE: &'static str;

    /// What is shown before the name where the names of a list are of several namespaces.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }

    /// Details below the table.
    fn details(&self) -> Option<String> {
        None
    }
}

/// The headings of a list.
pub fn headings<T: Listed>() -> Vec<&'static str> {
    T::COLUMNS.iter().map(|(heading, _)| *heading).collect()
}

/// The entries, sorted by this column, and their details.
pub fn list<T: Listed>(entries: &[T], sort: Option<&str>, now: Timestamp) -> String {
    if entries.is_empty() {
        return format!("{}\n", T::NONE);
    }
    let name = within(entries.iter().filter_map(T::namespace));
    let mut table = Table::new(headings::<T>());
    for entry in entries {
        let mut row: Vec<String> = T::COLUMNS.iter().map(|(_, cell)| cell(entry, now)).collect();
        if let (Some(namespace), Some(first)) = (entry.namespace(), row.first_mut()) {
            *first = name(namespace, first);
        }
        table.row(row);
    }
    table.sort(sort);
    let details: String = entries.iter().filter_map(T::details).collect();
    format!("{table}{details}")
}
