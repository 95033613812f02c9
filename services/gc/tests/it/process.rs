//! The process itself: bad configuration.

use std::process::Command;

#[test]
fn bad_configuration_is_answered_with_every_fault_and_64() {
    let output = Command::new(env!("CARGO_BIN_EXE_berth-gc"))
        .arg("--check-config")
        .env("BERTH__GC__INTERVAL_MS", "1")
        .env("BERTH__GC__LEASE_TTL_S", "0")
        .env("BERTH__GC__COLOUR", "red")
        .env("BERTH__LOG__FORMAT", "xml")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let stderr_text = String::from_utf8(output.stderr).unwrap();
    for field in ["log.format", "gc.interval_ms", "gc.lease_ttl_s", "gc.colour"] {
        assert!(stderr_text.contains(field), "{stderr_text}");
    }
}
