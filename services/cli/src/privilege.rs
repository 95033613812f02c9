//! Whether this process may mount.

use berth_host::process::has_capability;

/// `CAP_SYS_ADMIN` of capabilities(7).
const SYS_ADMIN: u32 = 21;

/// Whether this process may mount in its mount namespace, as far as capabilities show.
pub fn may_mount() -> bool {
    has_capability(SYS_ADMIN).unwrap_or_default()
}
