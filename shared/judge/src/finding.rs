//! Findings.
//!
//! Owns: a finding and how it is printed. Promises: each has the rule, its source, and the lines
//! that prove it. Never: judges.

use std::fmt;
use std::path::Path;
use std::rc::Rc;

use serde::{Serialize, Serializer};

use super::rule::Rule;

/// A line of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LogLine {
    #[serde(serialize_with = "path")]
    /// The log file.
    pub file: Rc<Path>,
    /// Counted from 1.
    pub number: usize,
    #[serde(serialize_with = "text")]
    /// The line itself, a JSON object.
    pub text: Rc<str>,
}

/// Whose mistake it is: the CO's, the driver's or the judge's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The CO broke the rule.
    Violation,
    /// The driver allowed what it should have refused by a rule of its own: a mistake in the driver
    /// or in the judge.
    OnlyTheJudge,
    /// The driver refused a call by a rule that the earlier calls do not break: a mistake in the
    /// driver or in the judge.
    OnlyTheDriver,
    /// The driver reported as done what the kernel's mount table contradicts.
    FalseReport,
}

/// What a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// A volume.
    Volume,
    /// A snapshot of a volume.
    Snapshot,
    /// A group of snapshots.
    Group,
}

/// A broken rule, or a disagreement of driver and judge, with its proof.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Whose mistake it is.
    pub kind: FindingKind,
    /// If only the driver has the rule, only its name is known.
    pub rule: RuleReference,
    /// What it is about.
    pub object: ObjectKind,
    /// Its id, or its name if it is to be created.
    pub about: String,
    /// The mistake in words, and what the CO should do instead.
    pub what: String,
    /// Whether the driver refused the call.
    pub noticed: bool,
    /// The lines of the call that broke the rule, then those of the calls that made it wrong.
    pub proof: Vec<LogLine>,
}

/// A rule with its sources.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleReference {
    /// In kebab case, as in the driver's log.
    pub name: String,
    /// The number of the safety rule in ARCHITECTURE.md.
    pub safety: Option<u8>,
    /// The section of CSI's spec.
    pub csi: Option<&'static str>,
}

impl RuleReference {
    /// The rule that the driver calls by this name.
    pub(super) fn by_name(name: &str) -> Self {
        let rule = Rule::ALL.iter().find(|rule| rule.name() == name);
        let unknown = || Self { name: name.to_owned(), safety: None, csi: None };
        rule.map_or_else(unknown, |rule| (*rule).into())
    }
}

impl From<Rule> for RuleReference {
    fn from(rule: Rule) -> Self {
        Self { name: rule.name().to_owned(), safety: rule.safety(), csi: Some(rule.csi()) }
    }
}

impl fmt::Display for RuleReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(safety) = self.safety {
            write!(f, ", Safety {safety}")?;
        }
        self.csi.map_or(Ok(()), |csi| write!(f, ", CSI {csi:?}"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, rule, object, about, what, noticed, proof } = self;
        let verdict = match kind {
            FindingKind::Violation if *noticed => "refused by the driver",
            FindingKind::Violation => "not refused by the driver",
            FindingKind::OnlyTheJudge => {
                "DISAGREEMENT: the driver has this rule, and did it; one of the two is wrong"
            }
            FindingKind::OnlyTheDriver => {
                "DISAGREEMENT: the driver refused it, the logs do not show why; one of the two is \
                 wrong"
            }
            FindingKind::FalseReport => "FALSE REPORT of the driver: its kernel says otherwise",
        };
        let object = match object {
            ObjectKind::Volume => "volume",
            ObjectKind::Snapshot => "snapshot",
            ObjectKind::Group => "group",
        };
        writeln!(f, "{object} {about:?}: {what} [{rule}] ({verdict})")?;
        for line in proof {
            writeln!(f, "  {}:{}: {}", line.file.display(), line.number, line.text)?;
        }
        Ok(())
    }
}

fn path<S: Serializer>(path: &Rc<Path>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

fn text<S: Serializer>(text: &Rc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}
