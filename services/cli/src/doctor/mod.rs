//! `berth doctor`: checks the whole system, and names each fault with the next command to try.
//!
//! **Owns** the list of checks ([`CHECKS`], one file each), the facts that they judge
//! ([`SystemFacts`]) and how these are gathered.
//!
//! **Promises**
//! - that [`examine`] is pure: the same facts give the same report;
//! - that the sources are read at the same time, each by a deadline, and that a source that does
//!   not answer is a finding of each check that needs it;
//! - that a fault is explained in the words of `berth why`, by the same rules ([`berth_explain`]).
//!
//! **Never** changes anything.

mod bus;
mod certificate;
mod claims;
mod clocks;
mod expiry;
mod facts;
mod finding;
mod gather;
mod level;
mod nodes;
mod operations;
mod owners;
mod permissions;
mod plugins;
mod records;
mod replica;
mod services;
mod storage;
mod streams;

pub use facts::{AccessFacts, ClaimList, RegistryLists, StorageFacts, SystemFacts, UnownedAllocs};
pub use finding::{DoctorFinding, Verdict};
pub use gather::{gather, gather_access};
pub use replica::Replica;

use std::cmp::Reverse;

use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use serde::Serialize;

use finding::Examined;

/// A check: its name, and what it makes of the facts.
pub struct Check {
    /// The name, as the report shows it.
    pub name: &'static str,
    examine: fn(&SystemFacts) -> Examined,
}

/// The check that can be made also where the connection is refused.
const EXPIRY: &str = "expiry";

/// Every check, in the order of the report: a fault of an earlier one may explain those of later
/// ones.
pub const CHECKS: [Check; 14] = [
    Check { name: "bus", examine: bus::examine },
    Check { name: EXPIRY, examine: expiry::examine },
    Check { name: "permissions", examine: permissions::examine },
    Check { name: "streams", examine: streams::examine },
    Check { name: "clocks", examine: clocks::examine },
    Check { name: "services", examine: services::examine },
    Check { name: "level", examine: level::examine },
    Check { name: "nodes", examine: nodes::examine },
    Check { name: "plugins", examine: plugins::examine },
    Check { name: "claims", examine: claims::examine },
    Check { name: "owners", examine: owners::examine },
    Check { name: "storage", examine: storage::examine },
    Check { name: "operations", examine: operations::examine },
    Check { name: "records", examine: records::examine },
];

/// The most findings of one check that are reported.
const FINDINGS_MAX: usize = 20;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// The check's name.
    pub check: &'static str,
    /// The worst of its findings.
    pub verdict: Verdict,
    /// What was looked at, in a few words.
    pub summary: String,
    /// What is wrong, the worst first.
    pub findings: Vec<DoctorFinding>,
    /// How many more findings are not shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The result of all checks, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// The worst of all.
    pub verdict: Verdict,
    /// Each check, in the order of [`CHECKS`].
    pub checks: Vec<CheckReport>,
}

/// Makes every check.
pub fn examine(facts: &SystemFacts) -> DoctorReport {
    let facts = &permissions::tell_denied(facts.clone());
    DoctorReport::from_checks(CHECKS.iter().map(|check| report(check.name, (check.examine)(facts))))
}

/// The report when the bus cannot be reached. Only what the connection depends on can be checked.
pub fn bus_away(problem: &Problem, access: &AccessFacts, now: Timestamp) -> DoctorReport {
    let expiry = report(EXPIRY, expiry::judge_access(access, now));
    // Servers that do not answer are a finding of the check of the bus.
    let is_cause = expiry.verdict == Verdict::Fault;
    let bus = report(CHECKS[0].name, bus::away(problem, is_cause));
    DoctorReport::from_checks(std::iter::once(bus).chain(is_cause.then_some(expiry)))
}

fn report(check: &'static str, examined: Examined) -> CheckReport {
    let Examined { summary, mut findings } = examined;
    findings.sort_by_key(|finding| Reverse(finding.severity));
    let verdict = findings.first().map_or(Verdict::Well, |first| first.severity);
    let more = findings.len().saturating_sub(FINDINGS_MAX);
    findings.truncate(FINDINGS_MAX);
    CheckReport { check, verdict, summary, findings, more }
}

impl DoctorReport {
    fn from_checks(checks: impl IntoIterator<Item = CheckReport>) -> Self {
        let checks: Vec<CheckReport> = checks.into_iter().collect();
        let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Well);
        Self { verdict, checks }
    }
}

#[cfg(test)]
mod tests;
