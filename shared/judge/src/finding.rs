//! What the judge found.
//!
//! Owns: a finding and how it is printed. Promises: each comes with the rule, where it is written,
//! and the lines that prove it. Never: judges.

use std::fmt;
use std::path::Path;
use std::rc::Rc;

use serde::{Serialize, Serializer};

use super::rule::Rule;

/// A line of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LogLine {
    /// In which file.
    #[serde(serialize_with = "path")]
    pub file: Rc<Path>,
    /// On which line, counted from 1.
    pub number: usize,
    /// As it stands there.
    #[serde(serialize_with = "text")]
    pub text: Rc<str>,
}

/// What kind of finding it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The CO broke the rule.
    Violation,
    /// The driver let pass what it should have refused by a rule of its own: a mistake in the
    /// driver, or in the judge.
    OnlyTheJudge,
    /// The driver refused by a rule that the calls so far do not break: the same.
    OnlyTheDriver,
    /// The driver reported as done what the kernel contradicts.
    FalseReport,
}

/// A rule that was broken, or that the driver and the judge do not agree on, and the proof.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// What kind.
    pub kind: FindingKind,
    /// Which rule; one that only the driver knows goes by its name there.
    pub rule: RuleReference,
    /// What it is about: a volume's id, or the name of one to be made.
    pub about: String,
    /// What is wrong, in words.
    pub what: String,
    /// Whether the driver noticed it when it happened.
    pub noticed: bool,
    /// The call that broke it, then the calls that made it wrong.
    pub proof: Vec<LogLine>,
}

/// A rule with the places where it is written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleReference {
    /// Its name.
    pub name: String,
    /// The safety rule of ARCHITECTURE.md.
    pub safety: Option<u8>,
    /// The section of CSI's spec.
    pub csi: Option<&'static str>,
}

impl RuleReference {
    /// A rule by the name that the driver calls it.
    pub(super) fn by_name(name: &str) -> Self {
        let known = Rule::ALL.iter().find(|rule| rule.name() == name);
        let other = || Self { name: name.to_owned(), safety: None, csi: None };
        known.map_or_else(other, |rule| (*rule).into())
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
        let Self { kind, rule, about, what, noticed, proof } = self;
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
        writeln!(f, "volume {about:?}: {what} [{rule}] ({verdict})")?;
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
