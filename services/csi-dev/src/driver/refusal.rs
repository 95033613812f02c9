//! Why a call fails.
//!
//! Owns: code and message of a failed call, and its entry in the log. Promises: the message is one
//! line and names the volume. Never: has a secret.

use std::error::Error;
use std::fmt::Write;

use berth_csi::Code;

use crate::backend::BackendError;
use crate::faults::{FaultError, FaultMark};
use crate::lock::LockError;
use crate::log::CallEffect;
use crate::loops::LoopError;
use crate::mounts::MountError;
use crate::rules::{OrderRule, Violation};
use crate::tool::ToolError;

/// The failure of a call.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub code: Code,
    pub message: String,
    /// What was changed nevertheless.
    pub effect: CallEffect,
    pub violation: Option<OrderRule>,
    pub fault: Option<FaultMark>,
}

impl Refusal {
    /// A failure before anything was changed.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (effect, violation, fault) = (CallEffect::None, None, None);
        Self { code, message: message.into(), effect, violation, fault }
    }

    /// A failure in the middle of a change.
    pub fn uncertain(message: impl Into<String>) -> Self {
        Self { effect: CallEffect::Unknown, ..Self::new(Code::Internal, message) }
    }

    /// The same failure after an earlier step of the call made a change.
    #[must_use]
    pub fn midway(self) -> Self {
        Self { effect: CallEffect::Unknown, ..self }
    }

    /// A call that breaks a rule of order.
    pub fn violation(volume_id: &str, violation: Violation) -> Self {
        let Violation { rule, message } = violation;
        let message = format!("volume {volume_id:?}: {message}");
        Self { violation: Some(rule), ..Self::new(rule.code(), message) }
    }

    /// A planted fault before the work.
    pub fn planted_before(code: Code) -> Self {
        let fault = Some(FaultMark::Before);
        Self { fault, ..Self::new(code, "planted fault: nothing was done") }
    }

    /// A planted fault after the work, whose true result was `result`.
    pub fn planted_after<R>(code: Code, result: Result<R, Self>) -> Self {
        let (effect, violation) = match result {
            Ok(_) => (CallEffect::Done, None),
            Err(refusal) => (refusal.effect, refusal.violation),
        };
        let fault = Some(FaultMark::After);
        let message = "planted fault: the work was done, the answer is a lie";
        Self { effect, violation, fault, ..Self::new(code, message) }
    }

    /// Another process holds the lock, or removed what it protects.
    fn lock(error: &LockError, message: String) -> Self {
        match error {
            LockError::Held { .. } => Self { code: Code::Aborted, ..Self::uncertain(message) },
            LockError::Gone { .. } => Self::new(Code::NotFound, message),
            LockError::Io { .. } => Self::uncertain(message),
        }
    }

    pub fn tool(error: &ToolError, message: String) -> Self {
        match error {
            ToolError::Missing { .. } => Self::new(Code::FailedPrecondition, message),
            ToolError::Busy { source, .. } => Self::lock(source, message),
            _ => Self::uncertain(message),
        }
    }

    pub fn mount(volume_id: &str, error: &MountError) -> Self {
        let message = format!("volume {volume_id:?}: {}", chain(error));
        match error {
            MountError::Path { .. } => Self::new(Code::InvalidArgument, message),
            _ if error.is_refusal() => Self::new(Code::FailedPrecondition, message),
            _ => Self::uncertain(message),
        }
    }
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        let message = chain(&error);
        match error {
            BackendError::Id => Self::new(Code::InvalidArgument, message),
            BackendError::Lock(error) => Self::lock(&error, message),
            BackendError::Tool(error) => Self::tool(&error, message),
            BackendError::Io { .. } | BackendError::Damaged { .. } => Self::uncertain(message),
        }
    }
}

impl From<LoopError> for Refusal {
    fn from(error: LoopError) -> Self {
        let message = chain(&error);
        match error {
            LoopError::Tool { source, .. } => Self::tool(&source, message),
            LoopError::Node { .. } => Self::uncertain(message),
        }
    }
}

impl From<FaultError> for Refusal {
    fn from(error: FaultError) -> Self {
        Self::new(Code::Internal, chain(&error))
    }
}

/// An error with all its causes, on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
