//! The records: each can be read. Nothing is decided about one that cannot.

use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined};
use berth_explain::unreadable_record;

pub fn examine(facts: &SystemFacts) -> Examined {
    let sources: [(&str, Result<&[UnreadableRecord], &Problem>); 3] = [
        ("records of nodes and plugins", facts.registry.as_ref().map(|one| &one.unreadable[..])),
        ("records of claims", facts.claims.as_ref().map(|one| &one.unreadable[..])),
        ("records of volumes and allocs", facts.volume_records.as_ref().map(|one| &one[..])),
    ];
    let (mut findings, mut keys) = (Vec::new(), Vec::new());
    for (subject, source) in sources {
        let records = match source {
            Ok(records) => records,
            Err(problem) => {
                findings.push(DoctorFinding::not_checked(subject, problem));
                continue;
            }
        };
        for record in records {
            // A list of volumes also names the unreadable records of their claims.
            if keys.contains(&&record.key) {
                continue;
            }
            keys.push(&record.key);
            let finding = unreadable_record(&record.problem());
            findings.extend(DoctorFinding::from_finding(format!("record {}", record.key), finding));
        }
    }
    let summary = match keys.len() {
        0 if findings.is_empty() => "every record can be read".to_owned(),
        0 => "not all were checked".to_owned(),
        unreadable => format!("{unreadable} cannot be read"),
    };
    Examined::new(summary, findings)
}
