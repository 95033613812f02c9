//! The cost of a fleet, in words.

use std::fmt::Write as _;

use crate::row::{Part, Row};

/// The share of one core that the bus and the registry together may use for an idle fleet, in
/// percent.
const AIM_PERCENT: f64 = 5.0;
/// The process of the bus, and the service that receives every node's report.
const SERVER: &str = "nats-server";
const REGISTRY: &str = "registry";

/// A line for each row of a fleet.
pub fn terminal(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows.iter().filter(|row| !row.core_percent.is_empty()) {
        if row.part == Part::Scale {
            // Writing to a string does not fail.
            let _ = write!(out, "\n{}, of a core: {}", row.title(), in_words(row));
            continue;
        }
        // Writing to a string does not fail.
        let _ = write!(out, "\n{}, in % of a core:", row.title());
        for (process, percent) in row.core_percent.iter().filter(|(_, percent)| **percent >= 0.05) {
            let _ = write!(out, " {process} {percent:.1}");
        }
        let _ = write!(out, "; {}", in_words(row));
    }
    out
}

/// What the bus and the registry work together, in percent of one core. Of [`Part::Scale`]:
/// everything that the row has.
pub fn percent(row: &Row) -> Option<f64> {
    let is_known = !row.core_percent.is_empty();
    is_known.then(|| match row.part {
        Part::Scale => row.core_percent.values().sum(),
        _ => percent_of(row, SERVER) + percent_of(row, REGISTRY),
    })
}

fn percent_of(row: &Row, process: &str) -> f64 {
    row.core_percent.get(process).copied().unwrap_or(0.0)
}

/// The same in words; empty if the row does not have it.
pub fn in_words(row: &Row) -> String {
    let Some(percent) = percent(row) else { return String::new() };
    if row.part == Part::Scale {
        let each = row.core_percent.iter().map(|(name, percent)| format!("{name} {percent:.1}"));
        return format!("**{percent:.1} %** ({})", each.collect::<Vec<_>>().join(", "));
    }
    let (server, registry) = (percent_of(row, SERVER), percent_of(row, REGISTRY));
    let mut text = format!("{server:.1} % + {registry:.1} % = **{percent:.1} %**");
    match row.waiting {
        // Writing to a string does not fail.
        Some(waiting) => _ = write!(text, ", at most {waiting} waiting"),
        None => _ = write!(text, " (aim: {AIM_PERCENT} %)"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_bus_and_the_registry_work_is_added_up() {
        let share = [(SERVER, 2.25), (REGISTRY, 1.5), ("claim", 9.0)];
        let core_percent = share.map(|(process, percent)| (process.to_owned(), percent)).into();
        let row = Row { core_percent, ..Row::new(Part::Fleet, "idle", 1000, 1) };
        let text = terminal(std::slice::from_ref(&row));
        assert!(text.contains("claim 9.0") && text.contains("= **3.8 %**"), "{text}");
        let flips = Row { waiting: Some(7), ..row };
        assert!(in_words(&flips).contains("at most 7 waiting"), "{text}");
    }

    #[test]
    fn at_rest_everything_is_added_up() {
        let core_percent = [("claim".to_owned(), 1.0), (SERVER.to_owned(), 2.5)].into();
        let row = Row { core_percent, ..Row::new(Part::Scale, "at rest", 1000, 1) };
        assert_eq!(in_words(&row), "**3.5 %** (claim 1.0, nats-server 2.5)");
    }
}
