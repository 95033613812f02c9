//! The ways in which a call can fail.
//!
//! **Owns** [`CallError`]: which call failed, on which socket, and whether it may have taken
//! effect.
//!
//! **Promises** one line of bounded length without control characters and without secrets of the
//! request, because errors are written into records, logs and replies.
//!
//! **Never** contains the next step: that is [`CallError::class`], by [`crate::outcome`].

use std::path::PathBuf;
use std::time::Duration;

use berth_domain::limits::TEXT_BYTES_MAX;
use thiserror::Error;

use crate::answer::AnswerFault;
use crate::code::Code;
use crate::outcome::{CallAnswer, Class, classify};
use crate::redact::Secrets;
use crate::rpc::Rpc;

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{rpc} on {}: {failure}", .socket.display())]
pub struct CallError {
    /// The call.
    pub rpc: Rpc,
    /// The plugin's socket.
    pub socket: PathBuf,
    /// The kind of failure.
    pub failure: Failure,
}

/// The kind of failure of a call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// No connection could be made, so the plugin never saw the call.
    #[error("no plugin to talk to: {reason}")]
    Unreachable {
        /// The reason from the operating system or the gRPC library.
        reason: String,
    },
    /// The plugin did not answer in time. It may still be working.
    #[error("no answer within {timeout:?}")]
    Late {
        /// The timeout of the call.
        timeout: Duration,
    },
    /// The connection broke, or the peer did not speak gRPC. The plugin may have seen the call.
    #[error("the connection broke, or what listens there does not speak gRPC: {reason}")]
    Broken {
        /// The reason from the gRPC library.
        reason: String,
    },
    /// The plugin's answer is larger than [`ANSWER_BYTES_MAX`](crate::client::ANSWER_BYTES_MAX), so
    /// it was not read. The plugin lives, and may have done something.
    #[error("its answer is too large: {reason}")]
    TooLarge {
        /// The reason from the gRPC library.
        reason: String,
    },
    /// The plugin answered with an error.
    #[error("{code}: {message}")]
    Answered {
        /// Never [`Code::Ok`].
        code: Code,
        /// The plugin's message without secrets.
        message: String,
    },
    /// The plugin answered OK, but not to this request. It may have done something.
    #[error("its answer contradicts the request: it {0}")]
    Contradicts(AnswerFault),
}

impl CallError {
    /// The plugin's code, if it answered.
    pub const fn code(&self) -> Option<Code> {
        match self.failure {
            Failure::Answered { code, .. } => Some(code),
            _ => None,
        }
    }

    /// The answer in the form for [`classify`].
    pub const fn answer(&self) -> CallAnswer {
        match self.failure {
            Failure::Unreachable { .. } => CallAnswer::Unsent,
            Failure::Late { .. } | Failure::Broken { .. } => CallAnswer::Missing,
            Failure::Answered { code, .. } => CallAnswer::Code(code),
            Failure::TooLarge { .. } | Failure::Contradicts(_) => CallAnswer::Contradiction,
        }
    }

    /// The meaning of the failure, and what to do next.
    pub const fn class(&self) -> Class {
        classify(self.rpc, self.answer())
    }
}

/// A plugin's text on one line, without the secrets of the request that it answers.
pub fn in_words(text: &str, secrets: &Secrets) -> String {
    one_line(&secrets.strike(text))
}

/// A foreign text on one line: control characters become spaces, and the text is cut at
/// [`TEXT_BYTES_MAX`].
pub fn one_line(text: &str) -> String {
    shortened(text, TEXT_BYTES_MAX)
}

/// The same with another limit.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> String {
    let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.len() <= bytes_max {
        return text;
    }
    let mark = " …";
    let mut end = bytes_max - mark.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{mark}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_that_names_call_socket_and_answer() {
        let error = CallError {
            rpc: Rpc::NodeStageVolume,
            socket: "/run/x.sock".into(),
            failure: Failure::Answered { code: Code::NotFound, message: "no vol-1".into() },
        };
        assert_eq!(error.to_string(), "NodeStageVolume on /run/x.sock: NOT_FOUND: no vol-1");
    }

    #[test]
    fn foreign_text_is_cut_between_characters_and_put_on_one_line() {
        assert_eq!(one_line(" a\nb\u{1b}[31m\t"), "a b [31m");
        let long = one_line(&"é".repeat(TEXT_BYTES_MAX));
        assert!(long.len() <= TEXT_BYTES_MAX && long.ends_with("é …"), "{}", long.len());
    }
}
