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
mod claims;
mod clocks;
mod expiry;
mod facts;
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
pub use gather::{gather, gather_access};
pub use replica::Replica;

use std::cmp::Reverse;
use std::fmt;

use berth_contract::problem::Problem;
use berth_domain::Timestamp;
use serde::Serialize;

use crate::exit;
use berth_explain::{Cause, Finding};

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

/// How bad it is, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing is wrong.
    Well,
    /// It works, and something is to be looked at; or a check could not be made.
    Warning,
    /// Something does not work.
    Fault,
}

impl Verdict {
    /// The exit code of `berth doctor`.
    pub const fn exit(self) -> u8 {
        match self {
            Self::Well => exit::OK,
            Self::Warning => exit::DOCTOR_WARNINGS,
            Self::Fault => exit::DOCTOR_FAULTS,
        }
    }

    /// The mark before the word.
    pub const fn mark(self) -> &'static str {
        match self {
            Self::Well => "✓",
            Self::Warning => "!",
            Self::Fault => "✗",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Well => "well",
            Self::Warning => "warning",
            Self::Fault => "fault",
        })
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ailment {
    /// How bad it is: a warning or a fault.
    pub severity: Verdict,
    /// What is wrong, in one sentence.
    pub what: String,
    /// Where: `node n1`, `stream KV_berth-volumes`.
    #[serde(rename = "where")]
    pub place: String,
    /// The facts that show it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// Commands to try next, in order. Text after a `#` is a comment for the shell.
    pub next: Vec<String>,
}

impl Ailment {
    fn new(severity: Verdict, place: impl fmt::Display, what: impl Into<String>) -> Self {
        let (place, what) = (place.to_string(), what.into());
        Self { severity, what, place, evidence: Vec::new(), next: Vec::new() }
    }

    fn fault(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(Verdict::Fault, place, what)
    }

    fn warning(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(Verdict::Warning, place, what)
    }

    fn shown_by(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// The finding of `berth why`; none when nothing is wrong.
    fn from_finding(place: impl fmt::Display, finding: Finding) -> Option<Self> {
        let severity = judge_cause(finding.cause)?;
        let Finding { sentence, evidence, next, .. } = finding;
        Some(Self { evidence, next, ..Self::new(severity, place, sentence) })
    }

    /// A check that cannot be made, because its source does not answer.
    fn not_checked(what: &str, problem: &Problem) -> Self {
        let place = problem.step.as_deref().unwrap_or("the bus");
        Self::warning(place, format!("not known: {what}"))
            .shown_by(problem.message.clone())
            .next(format!("berth explain {}", problem.code))
    }
}

/// How bad a cause is; none when no person has to act.
const fn judge_cause(cause: Cause) -> Option<Verdict> {
    use Cause as C;
    match cause {
        C::BusAway
        | C::ServiceAway
        | C::RightMissing
        | C::RecordUnreadable
        | C::StoreFault
        | C::ClockWrong
        | C::RegisteredTwice
        | C::RegistrationLost
        | C::NodeDown
        | C::AgentAway
        | C::NodeUnknown
        | C::JournalFault
        | C::RunUnknown
        | C::HostHangs
        | C::SharedNodeId
        | C::PluginDown
        | C::PluginHangs
        | C::HeldByProcess
        | C::ForeignMount
        | C::MountLeft
        | C::PluginRefuses
        | C::CreationInDoubt
        | C::MountFails
        | C::MountHangs
        | C::MountDead
        | C::MountMissing
        | C::NobodyWorks => Some(Verdict::Fault),
        C::MountUnaccounted
        | C::NodeGone
        | C::PluginFile
        | C::RequestOutdated
        | C::PluginRetries
        | C::VolumeUnwell
        | C::NoRoom
        | C::ChangeRefused
        | C::PlacementRefuses
        | C::Refused
        | C::NotAskedFor => Some(Verdict::Warning),
        C::HeldByOthers | C::UnderWay | C::Nothing => None,
    }
}

/// What a check found.
struct Examined {
    /// What was looked at, in a few words.
    summary: String,
    ailments: Vec<Ailment>,
}

impl Examined {
    fn new(summary: impl Into<String>, ailments: Vec<Ailment>) -> Self {
        Self { summary: summary.into(), ailments }
    }

    /// Nothing was looked at.
    fn not_made(what: &str, problem: &Problem) -> Self {
        Self::new("not checked", vec![Ailment::not_checked(what, problem)])
    }
}

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
    pub findings: Vec<Ailment>,
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
    // Servers that do not answer are a finding of the bus.
    let is_cause = expiry.verdict == Verdict::Fault;
    let bus = report(CHECKS[0].name, bus::away(problem, is_cause));
    DoctorReport::from_checks(std::iter::once(bus).chain(is_cause.then_some(expiry)))
}

fn report(check: &'static str, examined: Examined) -> CheckReport {
    let Examined { summary, ailments: mut findings } = examined;
    findings.sort_by_key(|one| Reverse(one.severity));
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
