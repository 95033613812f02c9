//! `berth why`: one screen for each thing with the name.

use berth_domain::Timestamp;

use crate::span::ago;
use crate::table::plain;
use crate::why::{Cause, Diagnoses, Diagnosis};

/// All findings, one screen after another.
pub fn why(told: &Diagnoses, now: Timestamp) -> String {
    let screens: Vec<String> = told.diagnoses.iter().map(|one| screen(one, now)).collect();
    screens.join("\n")
}

/// One screen: a line when nothing is wrong, else the cause and what to do.
fn screen(told: &Diagnosis, now: Timestamp) -> String {
    let since = told.since.map(|since| format!(" for {}", ago(since, now))).unwrap_or_default();
    let head = format!("{}: {}{since}", told.subject, told.state);
    let finding = &told.finding;
    let is_well = finding.cause == Cause::Nothing;
    let head = if is_well { format!("{head}; {}", finding.sentence) } else { head };
    let mut parts: Vec<(&str, Vec<String>)> = Vec::new();
    if !is_well {
        parts.push(("cause", vec![finding.sentence.clone()]));
        parts.push(("evidence", finding.evidence.clone()));
        parts.push(("who acts", vec![finding.who.to_string()]));
        parts.push(("next", finding.next.clone()));
    }
    parts.push(("also", told.also.clone()));
    parts.push(("not known", told.not_known.clone()));
    let lines = parts.iter().flat_map(|(what, lines)| {
        lines.iter().enumerate().map(move |(at, line)| {
            let label = if at == 0 { format!("{what}:") } else { String::new() };
            format!("  {label:<11}{}\n", plain(line))
        })
    });
    format!("{}\n{}", plain(&head), lines.collect::<String>())
}
