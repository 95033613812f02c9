//! `berth doctor`: a table of the checks, and below it each finding with the next command.

use crate::doctor::{CheckReport, DoctorFinding, DoctorReport, Verdict};
use crate::table::{Table, plain};

/// The report; only what is wrong when `quiet`.
pub fn doctor(report: &DoctorReport, quiet: bool) -> String {
    let shown = || report.checks.iter().filter(|check| !quiet || check.verdict != Verdict::Well);
    let mut table = Table::new(["CHECK", "RESULT", "FOUND"]);
    for CheckReport { check, verdict, summary, .. } in shown() {
        let result = format!("{} {verdict}", verdict.mark());
        table.row([(*check).to_owned(), result, summary.clone()]);
    }
    let findings = shown().flat_map(|check| {
        let more = (check.more > 0).then(|| {
            format!("  {}: {} more, which --json does not show either\n", check.check, check.more)
        });
        check.findings.iter().map(|check_finding| finding(check.check, check_finding)).chain(more)
    });
    let findings: Vec<String> = findings.collect();
    let table = if table.is_empty() { "nothing is wrong\n".to_owned() } else { table.to_string() };
    if findings.is_empty() { table } else { format!("{table}\n{}", findings.join("")) }
}

fn finding(check: &str, finding: &DoctorFinding) -> String {
    let DoctorFinding { severity, what, place, cause: _, who, evidence, next } = finding;
    let who: Vec<String> = who.iter().map(ToString::to_string).collect();
    let parts: [(&str, &[String]); 4] = [
        ("where:", std::slice::from_ref(place)),
        ("shown by:", evidence),
        ("who acts:", &who),
        ("next:", next),
    ];
    let lines = parts.iter().flat_map(|(label, lines)| {
        lines.iter().enumerate().map(move |(at, line)| {
            let label = if at == 0 { label } else { "" };
            format!("    {label:<10}{}\n", plain(line))
        })
    });
    let head = format!("{} {check}: {}\n", severity.mark(), plain(what));
    head + &lines.collect::<String>()
}
