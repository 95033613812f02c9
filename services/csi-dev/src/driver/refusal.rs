//! Why a call fails.
//!
//! Owns: code and message of a failed call, and the verdict that the proxy in front gets. Promises:
//! the message is one line and names the volume. Never: has a secret.

use berth_csi::Code;
use berth_csi_proxy::chain;
use berth_csi_proxy::log::CallEffect;
use berth_csi_proxy::{Refused, Verdict};
use tonic::Status;

use crate::backend::BackendError;
use crate::lock::LockError;
use crate::loops::LoopError;
use crate::mounts::MountError;
use crate::rules::{OrderRule, Violation};
use crate::tool::ToolError;

/// The failure of a call.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub code: Code,
    pub message: String,
    /// The effect of the call.
    pub effect: CallEffect,
    pub violation: Option<OrderRule>,
}

impl Refusal {
    /// A failure before anything was changed.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (effect, violation) = (CallEffect::None, None);
        Self { code, message: message.into(), effect, violation }
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

    /// Another process holds the lock, or removed the locked object.
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

impl From<Refusal> for Refused {
    fn from(Refusal { code, message, effect, violation }: Refusal) -> Self {
        let status = Status::new(tonic::Code::from_i32(code as i32), message);
        let rule = violation.map(|rule| rule.name().to_owned());
        Self { status, verdict: Verdict { effect, rule } }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let Refused { mut status, verdict } = refusal.into();
        verdict.note_on(&mut status);
        status
    }
}
