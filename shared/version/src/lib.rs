//! The version of the program that runs.
//!
//! **Owns** where it comes from: `deploy/dist/build` sets `BERTH_BUILD_VERSION` to what
//! `deploy/version` says of the commit, such as `0.1.0+g1a2b3c4d`. Any other build is `0.1.0+dev`.
//!
//! **Promises** a semantic version, as NATS micro services need one. Only a program's `main` is
//! compiled again for another commit: it [declares](declare) the version, and its libraries ask
//! for it by [`current`].

use std::sync::OnceLock;

static DECLARED: OnceLock<&str> = OnceLock::new();

/// The version of this build. A macro, because the compiler tracks the variable for the crate that
/// reads it, and compiles that crate and all that use it again.
#[macro_export]
macro_rules! of_build {
    () => {
        match option_env!("BERTH_BUILD_VERSION") {
            Some(version) => version,
            None => concat!(env!("CARGO_PKG_VERSION"), "+dev"),
        }
    };
}

/// Sets the version of this process: the first statement of a `main`. A second call has no effect.
pub fn declare(version: &'static str) {
    let _ = DECLARED.set(version);
}

/// The version of this process. A test, which declares none, has that of a build for development.
pub fn current() -> &'static str {
    DECLARED.get().copied().unwrap_or(concat!(env!("CARGO_PKG_VERSION"), "+dev"))
}
