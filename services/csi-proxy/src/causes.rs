//! The text of an error.
//!
//! Promises: one line, with every cause. Never: is used for a decision.

use std::error::Error;
use std::fmt::Write as _;

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
