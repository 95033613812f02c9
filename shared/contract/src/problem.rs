//! The error half of every reply.
//!
//! **Owns** what a failed request tells its caller: code, message, whether asking again may help,
//! where it happened (step, volume, plugin, node), the trace, and the next thing to try (H5).
//!
//! **Promises** that a reply is either `{"error": Problem}` or the result, never both.
//!
//! **Never** carries a secret: messages of plugins pass through `csi::redact` before they get here.

use std::fmt;

use berth_domain::volume::{CallFailure, FailureFacts, HoldingProcess};
use berth_domain::{GrpcCode, Namespace, NodeId};
use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::decode::Fault;
use crate::header::CONTRACT_VERSION;
use crate::hint::{PLACEHOLDERS, fill, quoted};
use crate::shorten::shorten;

/// The most processes that a problem names.
const PROCESSES_MAX: usize = 16;

/// How the way out of a refusal begins where the service is older than its client.
const OLDER_SERVICE: &str = "the request states contract version ";

/// Why a request was not done, and what to do now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The reason, stable for programs.
    pub code: Code,
    /// The reason with its facts, for people.
    pub message: String,
    /// Whether the same request may succeed later without anybody changing it.
    pub retryable: bool,
    /// The step that failed, such as `claim.take` or `controller.publish`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The volume, as `namespace/volume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The call of the plugin that failed, such as `NodeStageVolume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc: Option<String>,
    /// The plugin's answer to it; absent if it did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcCode>,
    /// How many such calls the plugin's process ended under, or broke the connection.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashes: u32,
    /// The processes that keep the volume on the node, the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<HoldingProcess>,
    /// The key of the record that cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// The next thing to try.
    pub next: String,
    /// The trace that holds the whole story.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Every fault of the input, when the code is [`Code::BadInput`]; all that an alloc lacks
    /// that is registered, with [`Code::NoSuchNode`] and [`Code::NoSuchVolume`]; and each plugin
    /// that many volumes lack, with [`Code::NoSuchPlugin`] and [`Code::PluginUnhealthy`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// Whether a problem leaves the number out.
fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl Problem {
    /// A problem as its code knows it: whether asking again may help, and what to try.
    pub fn new(code: Code, message: impl fmt::Display) -> Self {
        Self {
            code,
            message: message.to_string(),
            retryable: code.retryable(),
            step: None,
            volume: None,
            plugin: None,
            node: None,
            rpc: None,
            grpc: None,
            crashes: 0,
            processes: Vec::new(),
            record: None,
            next: code.next().to_owned(),
            trace: None,
            faults: Vec::new(),
        }
    }

    /// Says which call stands behind it.
    #[must_use]
    pub fn because_of(self, failure: &CallFailure) -> Self {
        let FailureFacts { rpc, grpc, crashes, .. } = failure.facts.clone();
        Self { rpc, grpc, crashes, ..self }
    }

    /// What programs may know of the call that failed. Whoever answered may have put anything into
    /// the problem, and a record and a report have bounds.
    pub fn failure_facts(&self) -> FailureFacts {
        let short = |one: &HoldingProcess| HoldingProcess {
            command: shorten(one.command.clone()),
            pid: one.pid,
        };
        FailureFacts {
            code: Some(self.code.into()),
            rpc: self.rpc.clone().map(shorten),
            grpc: self.grpc,
            node: self.node.as_ref().and_then(|node| NodeId::new(node.clone()).ok()),
            processes: self.processes.iter().take(PROCESSES_MAX).map(short).collect(),
            next: self.specific_advice().map(|next| shorten(next.to_owned())),
            crashes: self.crashes.min(1),
        }
    }

    /// Bad input, with every fault there is.
    pub fn bad_input(faults: Vec<Fault>) -> Self {
        let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Self { faults, ..Self::new(Code::BadInput, list.join("; ")) }
    }

    /// Bad input of a client that states a contract version. A newer client learns that the service
    /// is older, because the faults may be fields or values that only a newer service knows. Then
    /// asking again may reach a newer replica.
    pub fn bad_input_of(stated: Option<u32>, faults: Vec<Fault>) -> Self {
        let problem = Self::bad_input(faults);
        match stated.filter(|stated| *stated > CONTRACT_VERSION) {
            None => problem,
            Some(stated) => problem.retryable().next(format!(
                "{OLDER_SERVICE}{stated}, and this service has {CONTRACT_VERSION}: upgrade the \
                 service, or leave out what the faults name"
            )),
        }
    }

    /// Whether a service refused the input that is older than its client, so that a newer replica
    /// may take it. Services of the last release say so in words only: with the next release, this
    /// is whether it is `retryable`.
    pub fn is_of_older_service(&self) -> bool {
        self.code == Code::BadInput && self.next.starts_with(OLDER_SERVICE)
    }

    /// The problem to report of a request that was made again. That the last try came too late, or
    /// had no time to be answered, says less than the reason that an earlier one was given.
    #[must_use]
    pub fn or_reason(self, earlier: Option<Self>, had_time: bool) -> Self {
        let is_cut_off = !had_time && matches!(self.code, Code::NoAnswer | Code::BusUnavailable);
        let says_nothing = self.code == Code::Late || is_cut_off;
        match earlier {
            Some(reason) if says_nothing && reason.code != Code::Late => reason,
            _ => self,
        }
    }

    /// Names the processes that keep the volume on the node.
    #[must_use]
    pub fn held_by(self, processes: impl IntoIterator<Item = HoldingProcess>) -> Self {
        Self { processes: processes.into_iter().take(PROCESSES_MAX).collect(), ..self }
    }

    /// Asking again may help.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Names the step; the first hop that knows it wins.
    #[must_use]
    pub fn at_step(mut self, step: impl fmt::Display) -> Self {
        self.step.get_or_insert_with(|| step.to_string());
        self
    }

    /// Names the volume.
    #[must_use]
    pub fn volume(mut self, volume: impl fmt::Display) -> Self {
        self.volume.get_or_insert_with(|| volume.to_string());
        self.fill()
    }

    /// Names the plugin.
    #[must_use]
    pub fn plugin(mut self, plugin: impl fmt::Display) -> Self {
        self.plugin.get_or_insert_with(|| plugin.to_string());
        self.fill()
    }

    /// Names the node.
    #[must_use]
    pub fn node(mut self, node: impl fmt::Display) -> Self {
        self.node.get_or_insert_with(|| node.to_string());
        self.fill()
    }

    /// Says what to try, where this place knows better than the code.
    #[must_use]
    pub fn next(mut self, next: impl fmt::Display) -> Self {
        self.next = next.to_string();
        self
    }

    /// What to try, where it is more than the code itself says.
    pub fn specific_advice(&self) -> Option<&str> {
        let general = Self { next: self.code.next().to_owned(), ..self.clone() }.fill();
        (general.next != self.next).then_some(self.next.as_str())
    }

    /// Replaces the placeholders in the commands of the next step.
    fn fill(mut self) -> Self {
        let volume = self.volume.as_deref().map(|volume| match volume.split_once('/') {
            Some((namespace, id)) if namespace == Namespace::default().as_str() => {
                quoted(id).into_owned()
            }
            Some((namespace, id)) => format!("{} --namespace {}", quoted(id), quoted(namespace)),
            None => quoted(volume).into_owned(),
        });
        let own = |id: &Option<String>| id.as_deref().map(|id| quoted(id).into_owned());
        let known = [volume, own(&self.plugin), own(&self.node)];
        for (placeholder, value) in PLACEHOLDERS.into_iter().zip(known) {
            if let Some(value) = value.filter(|_| self.next.contains(placeholder)) {
                self.next = fill(&self.next, placeholder, &value);
            }
        }
        self
    }

    /// The problem without its list of faults, and with its texts cut: what is left of one that is
    /// larger than the bus carries.
    #[must_use]
    pub fn shortened(&self) -> Self {
        let message = shorten(self.message.clone());
        Self { message, next: shorten(self.next.clone()), faults: Vec::new(), ..self.clone() }
    }

    /// Names the trace; the first hop wins.
    #[must_use]
    pub fn trace(mut self, trace: impl fmt::Display) -> Self {
        self.trace.get_or_insert_with(|| trace.to_string());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = &self.step {
            write!(f, "{step}: ")?;
        }
        write!(f, "{}", self.message)?;
        for (what, name) in
            [("volume", &self.volume), ("plugin", &self.plugin), ("node", &self.node)]
        {
            if let Some(name) = name {
                write!(f, " [{what} {name}]")?;
            }
        }
        write!(f, " ({})", self.code)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use berth_domain::limits;

    use super::*;

    #[test]
    fn a_try_without_time_takes_no_reason_away() {
        let of = |code| Problem::new(code, "so").retryable();
        for (before, now, had_time, told) in [
            (Some(Code::PluginUnhealthy), Code::NoAnswer, false, Code::PluginUnhealthy),
            (Some(Code::PluginUnhealthy), Code::NoAnswer, true, Code::NoAnswer),
            (Some(Code::PluginUnhealthy), Code::AccessInUse, false, Code::AccessInUse),
            (Some(Code::PluginFailed), Code::BusUnavailable, false, Code::PluginFailed),
            (Some(Code::PluginFailed), Code::BusUnavailable, true, Code::BusUnavailable),
            (None, Code::NoAnswer, false, Code::NoAnswer),
            (Some(Code::Waiting), Code::Late, true, Code::Waiting),
            (Some(Code::Waiting), Code::Late, false, Code::Waiting),
            (Some(Code::Late), Code::NoAnswer, false, Code::NoAnswer),
            (None, Code::Late, true, Code::Late),
        ] {
            let problem = of(now).or_reason(before.map(of), had_time);
            assert_eq!(problem.code, told, "{before:?}, then {now:?}, with time: {had_time}");
        }
    }

    #[test]
    fn the_next_step_is_filled_in_whichever_is_known_first() {
        let asked = || Problem::new(Code::PluginUnhealthy, "");
        assert!(asked().plugin("p").next.contains("`berth plugin status p`"));
        assert_eq!(asked().plugin("p").specific_advice(), None);
        let own = asked().plugin("p").next("restart p");
        assert_eq!(own.specific_advice(), Some("restart p"));
        assert_eq!(own.node("NODE").next, "restart p");
    }

    #[test]
    fn the_facts_of_a_failure_are_bounded_whoever_answered() {
        let long = || "é".repeat(limits::TEXT_BYTES_MAX);
        let process = HoldingProcess { pid: 7, command: long() };
        let told = Problem {
            rpc: Some(long()),
            next: long(),
            processes: vec![process; 2 * PROCESSES_MAX],
            ..Problem::new(Code::PluginFailed, "no")
        };
        let FailureFacts { rpc, next, processes, .. } = told.failure_facts();
        assert_eq!(processes.len(), PROCESSES_MAX);
        for text in [rpc.as_ref(), next.as_ref(), processes.first().map(|one| &one.command)] {
            assert!(text.unwrap().len() <= limits::TEXT_BYTES_MAX);
        }
    }
}
