//! gRPC status codes, as logs and fault files write them.
//!
//! Owns: the seventeen canonical codes by name. Promises: the same numbers as gRPC.
//! Never: says what a CO should do about one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A canonical gRPC code, written `NOT_FOUND`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the names are gRPC's own")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl From<Code> for tonic::Code {
    fn from(code: Code) -> Self {
        Self::from_i32(code as i32)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_grpcs() {
        for (code, name, number) in [
            (Code::Ok, "OK", 0),
            (Code::NotFound, "NOT_FOUND", 5),
            (Code::FailedPrecondition, "FAILED_PRECONDITION", 9),
            (Code::Unauthenticated, "UNAUTHENTICATED", 16),
        ] {
            assert_eq!(code.to_string(), name);
            assert_eq!(tonic::Code::from(code) as i32, number);
        }
    }
}
