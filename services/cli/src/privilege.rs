//! Whether this process may mount.

use berth_host::process::has_capability;

/// `CAP_SYS_ADMIN` of capabilities(7).
const SYS_ADMIN: u32 = 21;

/// Whether this process may mount in the mount namespace it is in, as far as capabilities say.
pub fn may_mount() -> bool {
    has_capability(SYS_ADMIN).unwrap_or_default()
}
