//! What a search found.

use super::within;
use crate::search::{MATCHES_MAX, SearchAnswer, SearchKind};
use crate::table::Table;

/// One line for each match. Below them stands what was left out.
pub fn search(answer: &SearchAnswer) -> String {
    let SearchAnswer { prefix, matches, more, not_allowed, .. } = answer;
    let name = within(matches.iter().filter_map(|found| found.namespace.as_ref()));
    let mut table = Table::new(["KIND", "ID", "STATE"]);
    for found in matches {
        let id = match &found.namespace {
            Some(namespace) => name(namespace, &found.id),
            None => found.id.clone(),
        };
        table.row([found.kind.to_string(), id, found.state.clone()]);
    }
    let shown = if matches.is_empty() {
        format!("no id begins with {prefix:?}\n")
    } else {
        table.to_string()
    };
    let line = |text: &str, kinds: &[SearchKind], why: &str| {
        let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        (!names.is_empty()).then(|| format!("{text}: {}; {why}\n", names.join(", ")))
    };
    let first = format!("of each kind the first {MATCHES_MAX} are shown");
    let more = line("and more", more, &first).unwrap_or_default();
    let denied = line("not searched", not_allowed, "these credentials may not list them");
    format!("{shown}{more}{}", denied.unwrap_or_default())
}
