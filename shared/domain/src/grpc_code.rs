//! The canonical gRPC codes, with which a plugin answers.
//!
//! **Owns** the names and numbers of the codes. **Never** says what a code means for a call: that
//! is `csi::outcome`.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($variant:ident = $name:literal,)*) => {
        /// A canonical gRPC status code; the numbers are gRPC's.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub enum GrpcCode {
            $(
                #[doc = concat!("`", $name, "`")]
                #[serde(rename = $name)]
                $variant,
            )*
        }

        impl GrpcCode {
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

            /// The code with gRPC's number.
            pub fn from_number(number: u32) -> Option<Self> {
                Self::ALL.get(number as usize).copied()
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

impl GrpcCode {
    /// Whether a plugin that answers with it says that the same call may succeed later.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Cancelled | Self::DeadlineExceeded | Self::Aborted | Self::Unavailable)
    }
}

impl fmt::Display for GrpcCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
