//! The error half of every reply.
//!
//! **Owns** what a failed request tells its caller: code, message, whether asking again may help,
//! where it happened (step, volume, plugin, node), the trace, and the next thing to try (H5).
//!
//! **Promises** that a reply is either `{"error": Problem}` or the result, never both.
//!
//! **Never** carries a secret: messages of plugins pass through `csi::redact` before they get here.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::decode::Fault;
use crate::header::CONTRACT_VERSION;

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
    /// The next thing to try.
    pub next: String,
    /// The trace that holds the whole story.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Every fault of the input, when the code is [`Code::BadInput`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
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
            next: code.next().to_owned(),
            trace: None,
            faults: Vec::new(),
        }
    }

    /// Bad input, with every fault there is.
    pub fn bad_input(step: &str, faults: Vec<Fault>) -> Self {
        let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Self { faults, ..Self::new(Code::BadInput, list.join("; ")).at(step) }
    }

    /// Bad input of a client that states a contract version. A newer client learns that the service
    /// is older, because the faults may be fields or values that only a newer service knows.
    pub fn bad_input_of(stated: Option<u32>, step: &str, faults: Vec<Fault>) -> Self {
        let problem = Self::bad_input(step, faults);
        match stated.filter(|stated| *stated > CONTRACT_VERSION) {
            None => problem,
            Some(stated) => problem.next(format!(
                "the request states contract version {stated}, and this service has \
                 {CONTRACT_VERSION}: upgrade the service, or leave out what the faults name"
            )),
        }
    }

    /// Asking again may help.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Names the step; the first hop that knows it wins.
    #[must_use]
    pub fn at(mut self, step: impl fmt::Display) -> Self {
        self.step.get_or_insert_with(|| step.to_string());
        self
    }

    /// Names the volume.
    #[must_use]
    pub fn volume(mut self, volume: impl fmt::Display) -> Self {
        self.volume.get_or_insert_with(|| volume.to_string());
        self
    }

    /// Names the plugin.
    #[must_use]
    pub fn plugin(mut self, plugin: impl fmt::Display) -> Self {
        self.plugin.get_or_insert_with(|| plugin.to_string());
        self
    }

    /// Names the node.
    #[must_use]
    pub fn node(mut self, node: impl fmt::Display) -> Self {
        self.node.get_or_insert_with(|| node.to_string());
        self
    }

    /// Says what to try, where this place knows better than the code.
    #[must_use]
    pub fn next(mut self, next: impl fmt::Display) -> Self {
        self.next = next.to_string();
        self
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
