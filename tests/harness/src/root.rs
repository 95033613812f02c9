//! Tests that need root, or something else that a host may lack, say so.
//!
//! Owns: that question. Promises: a test that did not run leaves a line in the output, captured or
//! not, and fails where everything is meant to run (`CI` is set). Never: gains privileges.

use std::io::Write;

/// Whether the test may go on as root. Where it may not, a line says what was skipped, and the test
/// has to return.
///
/// # Panics
/// When not root while the environment has `CI`: there, a skipped test would go unseen.
pub fn or_skip(why: &str) -> bool {
    has_or_skip(nix::unistd::geteuid().is_root(), "root", why)
}

/// Whether the test may go on with what it needs; else a line says what was skipped.
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
