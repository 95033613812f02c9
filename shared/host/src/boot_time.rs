//! The id of the host's boot, and a clock that also counts while the host is suspended.
//!
//! `Instant` is `CLOCK_MONOTONIC`, which stops in suspend: after a resume it would show a lease as
//! held although its TTL, which the server counts, ended long ago.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the host's boot, suspend included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// Now.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Self(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// This time plus a span.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0 + span)
    }

    /// The time from now until then; zero when it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }
}

/// The kernel's id of this boot. Mounts and processes of another boot are gone.
pub fn read_boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_a_boot_by_a_uuid() {
        assert_eq!(read_boot_id().unwrap().len(), 36);
    }
}
