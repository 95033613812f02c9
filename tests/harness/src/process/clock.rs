//! A clock of its own for a process: `libfaketime` adds an offset to the wall clock that it reads.
//!
//! The monotonic clock stays the machine's, as it does on a host whose time is set.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Where Debian and Ubuntu put the library, below the directory of the architecture.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The variables with which a process reads its offset from `file`, each time it reads the clock.
///
/// # Panics
/// When the library is not installed: the package is `faketime`.
pub fn settable(file: &Path) -> Vec<(OsString, OsString)> {
    let variable = |name: &str, value: OsString| (OsString::from(name), value);
    vec![
        variable("LD_PRELOAD", library().into_os_string()),
        variable("FAKETIME_TIMESTAMP_FILE", file.as_os_str().to_owned()),
        variable("FAKETIME_NO_CACHE", "1".into()),
        variable("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        variable("NO_FAKE_STAT", "1".into()),
    ]
}

/// Sets the clock ahead of the machine's by this many milliseconds.
pub fn set(file: &Path, ahead_ms: i64) {
    let sign = if ahead_ms < 0 { '-' } else { '+' };
    let ahead_ms = ahead_ms.unsigned_abs();
    let offset = format!("{sign}{}.{:03}s\n", ahead_ms / 1000, ahead_ms % 1000);
    let fresh = file.with_extension("fresh");
    fs::write(&fresh, offset).expect("a file can be written");
    // Replaced as a whole: a process never reads half an offset.
    fs::rename(&fresh, file).expect("a file can be put in place");
}

fn library() -> PathBuf {
    let directories = ["/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
    let installed = directories
        .iter()
        .map(|directory| Path::new(directory).join(LIBRARY))
        .find(|path| path.exists());
    installed.unwrap_or_else(|| panic!("{LIBRARY} is not there: install the package faketime"))
}
