//! Whether this process may mount.

use std::fs;

/// `CAP_SYS_ADMIN` of capabilities(7).
const SYS_ADMIN: u32 = 21;

/// Whether this process may mount in the mount namespace it is in, as far as capabilities say.
pub fn may_mount() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| has(&status, SYS_ADMIN))
}

fn has(status: &str, capability: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> capability & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capability_is_read_from_the_effective_set() {
        assert!(has("CapPrm:\t0\nCapEff:\t000001ffffffffff\n", SYS_ADMIN));
        assert!(!has("CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n", SYS_ADMIN));
        assert!(!has("", SYS_ADMIN));
    }
}
