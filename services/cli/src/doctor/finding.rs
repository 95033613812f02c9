//! What a check found, and how bad it is.

use std::collections::BTreeSet;
use std::fmt;

use berth_contract::problem::Problem;
use berth_explain::{Actor, Cause, Finding};
use serde::Serialize;

use crate::exit;

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

/// A fault or a warning of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// How bad it is: a warning or a fault.
    pub severity: Verdict,
    /// What is wrong, in one sentence.
    pub what: String,
    /// Where: `node n1`, `stream KV_berth-volumes`.
    #[serde(rename = "where")]
    pub place: String,
    /// The kind of the cause, where `berth why` has a word for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Who must act, where `berth why` says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<Actor>,
    /// The facts that show it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// Commands to try next, in order. Text after a `#` is a comment for the shell.
    pub next: Vec<String>,
}

impl DoctorFinding {
    pub(super) fn new(
        severity: Verdict,
        place: impl fmt::Display,
        what: impl Into<String>,
    ) -> Self {
        let (place, what) = (place.to_string(), what.into());
        Self {
            severity,
            what,
            place,
            cause: None,
            who: None,
            evidence: Vec::new(),
            next: Vec::new(),
        }
    }

    pub(super) fn fault(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(Verdict::Fault, place, what)
    }

    pub(super) fn warning(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(Verdict::Warning, place, what)
    }

    pub(super) fn shown_by(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(super) fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// The finding of `berth why`; none when nothing is wrong.
    pub(super) fn from_finding(place: impl fmt::Display, finding: Finding) -> Option<Self> {
        let severity = judge_cause(finding.cause)?;
        let Finding { cause, sentence, evidence, who, next } = finding;
        let (cause, who) = (Some(cause), Some(who));
        Some(Self { cause, who, evidence, next, ..Self::new(severity, place, sentence) })
    }

    /// A check that cannot be made, because its source does not answer.
    pub(super) fn not_checked(what: &str, problem: &Problem) -> Self {
        let place = problem.step.as_deref().unwrap_or("the bus");
        Self::warning(place, format!("not known: {what}"))
            .shown_by(problem.message.clone())
            .next(format!("berth explain {}", problem.code))
    }
}

/// Of findings whose cause stops every claim and change, keeps one for each remedy. These causes
/// are the server's, a service's, an identity's or a clock's.
pub(super) fn keep_one_of_each_remedy(findings: &mut Vec<DoctorFinding>) {
    let mut remedies = BTreeSet::new();
    findings.retain(|DoctorFinding { cause, next, .. }| match cause {
        Some(Cause::StoreFault | Cause::NobodyWorks | Cause::RightMissing | Cause::ClockWrong) => {
            remedies.insert((*cause, next.first().cloned()))
        }
        _ => true,
    });
}

/// The severity of a cause; none when no person has to act.
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
        | C::PluginCrashes
        | C::PluginDown
        | C::PluginHangs
        | C::StorageUnreachable
        | C::HeldByProcess
        | C::ForeignMount
        | C::MountLeft
        | C::PluginRefuses
        | C::CallFails
        | C::CreationInDoubt
        | C::MountFails
        | C::MountHangs
        | C::MountDead
        | C::MountMissing
        | C::NobodyWorks => Some(Verdict::Fault),
        C::StorageDegraded
        | C::MountUnaccounted
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
pub(super) struct Examined {
    /// What was looked at, in a few words.
    pub(super) summary: String,
    pub(super) findings: Vec<DoctorFinding>,
}

impl Examined {
    pub(super) fn new(summary: impl Into<String>, findings: Vec<DoctorFinding>) -> Self {
        Self { summary: summary.into(), findings }
    }

    /// Nothing was looked at.
    pub(super) fn not_made(what: &str, problem: &Problem) -> Self {
        Self::new("not checked", vec![DoctorFinding::not_checked(what, problem)])
    }
}
