//! The canonical gRPC codes.
//!
//! **Owns** the names of the codes. **Promises** a code for every number that a plugin may send.
//! **Never** says what a code means for a call: that is [`crate::outcome`].

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($variant:ident = $name:literal,)*) => {
        /// A canonical gRPC status code; the numbers are gRPC's.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum Code {
            $(
                #[doc = concat!("`", $name, "`")]
                #[serde(rename = $name)]
                $variant,
            )*
        }

        impl Code {
            /// Every code, by number.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in gRPC's own spelling, such as `DEADLINE_EXCEEDED`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// gRPC's number.
            pub const fn number(self) -> u32 {
                self as u32
            }
        }

        impl From<tonic::Code> for Code {
            fn from(code: tonic::Code) -> Self {
                match code { $(tonic::Code::$variant => Self::$variant,)* }
            }
        }
    };
}

codes! {
    Ok = "OK",
    Cancelled = "CANCELLED",
    Unknown = "UNKNOWN",
    InvalidArgument = "INVALID_ARGUMENT",
    DeadlineExceeded = "DEADLINE_EXCEEDED",
    NotFound = "NOT_FOUND",
    AlreadyExists = "ALREADY_EXISTS",
    PermissionDenied = "PERMISSION_DENIED",
    ResourceExhausted = "RESOURCE_EXHAUSTED",
    FailedPrecondition = "FAILED_PRECONDITION",
    Aborted = "ABORTED",
    OutOfRange = "OUT_OF_RANGE",
    Unimplemented = "UNIMPLEMENTED",
    Internal = "INTERNAL",
    Unavailable = "UNAVAILABLE",
    DataLoss = "DATA_LOSS",
    Unauthenticated = "UNAUTHENTICATED",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stand_in_the_order_of_their_numbers() {
        for (number, code) in (0_i32..).zip(Code::ALL) {
            assert_eq!(Code::from(tonic::Code::from_i32(number)), *code);
        }
        assert_eq!(Code::ALL.len(), 17);
        assert_eq!(Code::from(tonic::Code::from_i32(4711)), Code::Unknown);
    }
}
