//! Skips a test that needs root, or something else that a host may lack.
//!
//! Owns: that check. Promises: a skipped test leaves a line in the output, captured or not, and
//! fails if `CI` is set, where every test must run. Never: gains privileges.

use std::io::Write;

/// Whether the test runs as root. If not, a line says what is skipped, and the test has to return.
///
/// # Panics
/// When not root while `CI` is set: a skipped test would go unseen there.
pub fn or_skip(why: &str) -> bool {
    has_or_skip(nix::unistd::geteuid().is_root(), "root", why)
}

/// Whether the host has what the test needs. If not, a line says what is skipped.
///
/// # Panics
/// As [`or_skip`].
pub fn has_or_skip(has: bool, needs: &str, why: &str) -> bool {
    if has {
        return true;
    }
    let line = format!("SKIPPED (needs {needs}): {why}");
    assert!(std::env::var_os("CI").is_none(), "{line}; but CI is set, where nothing is skipped");
    // Written past the capture of test output, which would hide it when the test passes.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
    false
}
