//! `berth why`: one screen for each thing with the name.

use berth_domain::Timestamp;

use crate::span::ago;
use crate::table::plain;
use berth_explain::{Cause, Diagnoses, Diagnosis};

/// All findings, one screen after another.
pub fn why(answer: &Diagnoses, now: Timestamp) -> String {
    let screens: Vec<String> =
        answer.diagnoses.iter().map(|diagnosis| screen(diagnosis, now)).collect();
    screens.join("\n")
}

/// One screen: a line when nothing is wrong, else the cause and what to do.
fn screen(diagnosis: &Diagnosis, now: Timestamp) -> String {
    let since =
        diagnosis.since.map(|since| format!(" for {}", ago(since, now))).unwrap_or_default();
    let head = format!("{}: {}{since}", diagnosis.subject, diagnosis.state);
    let finding = &diagnosis.finding;
    let is_well = finding.cause == Cause::Nothing;
    let head = if is_well { format!("{head}; {}", finding.sentence) } else { head };
    let mut parts: Vec<(&str, Vec<String>)> = Vec::new();
    if !is_well {
        parts.push(("cause", vec![finding.sentence.clone()]));
        parts.push(("evidence", finding.evidence.clone()));
        parts.push(("who acts", vec![finding.who.to_string()]));
        parts.push(("next", finding.next.clone()));
        parts.push(("more", vec![format!("docs/{}", finding.cause.section())]));
    }
    parts.push(("also", diagnosis.also.clone()));
    parts.push(("not known", diagnosis.not_known.clone()));
    let lines = parts.iter().flat_map(|(what, lines)| {
        lines.iter().enumerate().map(move |(at, line)| {
            let label = if at == 0 { format!("{what}:") } else { String::new() };
            format!("  {label:<11}{}\n", plain(line))
        })
    });
    format!("{}\n{}", plain(&head), lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use berth_explain::{Actor, Finding};

    use super::*;

    #[test]
    fn a_well_thing_is_one_line_and_a_faulty_one_is_one_screen() {
        let (since, now) = (Timestamp::from_unix_ms(0), Timestamp::from_unix_ms(100_000));
        let shown = |finding: Finding| {
            let diagnosis = Diagnosis::new("volume data", "taken by a on n1, mounted", finding);
            let not_known = vec!["what node n1 has mounted: nobody answers".to_owned()];
            let diagnosis = Diagnosis { since: Some(since), not_known, ..diagnosis };
            why(&Diagnoses { diagnoses: vec![diagnosis] }, now)
        };
        let well = shown(Finding::new(Cause::Nothing, Actor::NOBODY, "nothing to do"));
        let line = "volume data: taken by a on n1, mounted for 100s; nothing to do\n";
        assert!(well.starts_with(line) && well.lines().count() == 2, "{well}");
        let away = Finding::new(Cause::AgentAway, Actor::You, "the agent of node n1 has ended");
        let screen = shown(away.shown_by(["agent.status: none".to_owned()]).next("berth doctor"));
        for label in ["cause:", "evidence:", "who acts:  you", "next:", "more:", "not known:"] {
            assert!(screen.contains(label), "{label} is not in\n{screen}");
        }
        assert!(screen.lines().count() < 24, "{screen}");
    }
}
