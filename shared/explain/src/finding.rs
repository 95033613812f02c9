//! A finding: a cause with its sentence, evidence, actor and remedies.

use std::fmt;

use berth_domain::{Namespace, Timestamp};
use serde::Serialize;

use crate::cause::{Actor, Cause};

/// A cause with its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The kind of the cause, for programs.
    pub cause: Cause,
    /// The cause in one sentence, with the names of this case.
    pub sentence: String,
    /// The evidence: facts that show the cause, with their sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// Who must act.
    pub who: Actor,
    /// Commands that help, in order. Text after a `#` is a comment for the shell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

impl Finding {
    /// A cause, and the sentence for it.
    pub fn new(cause: Cause, who: Actor, sentence: impl Into<String>) -> Self {
        Self { cause, sentence: sentence.into(), evidence: Vec::new(), who, next: Vec::new() }
    }

    /// Adds the facts that show the cause.
    #[must_use]
    pub fn shown_by(mut self, evidence: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// Adds a command that helps.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// Adds a command that helps, if the names that it needs are known.
    #[must_use]
    pub fn next_if_known(mut self, command: Option<String>) -> Self {
        self.next.extend(command);
        self
    }

    /// The cause and the remedies in one line, as the claim service shows them: the sentence, and
    /// each command in backticks. None if nothing is wrong or no command helps.
    pub fn hint(&self) -> Option<String> {
        let is_idle = matches!(self.who, Actor::Nobody { .. }) && self.next.is_empty();
        if self.cause == Cause::Nothing || is_idle {
            return None;
        }
        Some(format!("{}{}", self.sentence, self.steps()))
    }

    /// The same with the actor, for programs that show an error in one line.
    pub fn line(&self) -> String {
        format!("{}; who acts: {}{}", self.sentence, self.who, self.steps())
    }

    fn steps(&self) -> String {
        let steps: Vec<String> = self.next.iter().map(|step| step_in_text(step)).collect();
        let next = if steps.is_empty() { "" } else { "; next: " };
        format!("{next}{}", steps.join("; "))
    }
}

/// Separates a command from its comment.
const COMMENT: &str = "   # ";

/// A command with its comment, in running text: "`berth node status n1` (which shows it)".
fn step_in_text(step: &str) -> String {
    if let Some(advice) = step.strip_prefix("# ") {
        return advice.trim().to_owned();
    }
    // An id may contain a `#`.
    match step.rsplit_once(COMMENT) {
        Some((command, comment)) => format!("`{}` ({})", command.trim(), comment.trim()),
        None => format!("`{step}`"),
    }
}

/// The findings for one volume, alloc, node or plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Kind and id of the thing: `volume data`, `node n1`.
    pub subject: String,
    /// Its namespace, if its kind has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Its state.
    pub state: String,
    /// When the state began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The decisive cause.
    #[serde(flatten)]
    pub finding: Finding,
    /// Other faults, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Facts that could not be read, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_known: Vec<String>,
}

impl Diagnosis {
    /// A diagnosis that has no namespace, start, other faults or unread facts.
    pub fn new(subject: impl fmt::Display, state: impl Into<String>, finding: Finding) -> Self {
        Self {
            subject: subject.to_string(),
            namespace: None,
            state: state.into(),
            since: None,
            finding,
            also: Vec::new(),
            not_known: Vec::new(),
        }
    }

    /// Sets the namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &Namespace) -> Self {
        Self { namespace: Some(namespace.clone()), ..self }
    }
}

/// All findings for a name, as `--json` prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnoses {
    /// One for each thing of that name.
    pub diagnoses: Vec<Diagnosis>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id may have any character that a shell can quote.
    #[test]
    fn a_command_stays_whole_whatever_its_ids_are() {
        let finding = Finding::new(Cause::HeldByOthers, Actor::You, "in use")
            .next("berth alloc stop 'web#1   # 2'   # once it has ended")
            .next("# start the agent")
            .next("berth node status 'n#1'");
        let hint = "in use; next: `berth alloc stop 'web#1   # 2'` (once it has ended); start the \
                    agent; `berth node status 'n#1'`";
        assert_eq!(finding.hint().as_deref(), Some(hint));
    }
}
