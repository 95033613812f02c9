//! The server's version, as far as it decides whether Berth can run on it.

use std::fmt;

/// The oldest server with TTL per key, guards over a subtree, and the fixes they need.
pub const OLDEST: Version = Version { major: 2, minor: 12, patch: 3 };
/// The JetStream API level of that server, as a stream's metadata shows it.
pub const API_LEVEL: u64 = 2;

/// `major.minor.patch`; what follows a dash is not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// Reads `2.15.1`, `v2.12.3-RC.1` and the like; none when it is no version.
    pub fn parse(text: &str) -> Option<Self> {
        let core = text.trim_start_matches('v').split(['-', '+']).next()?;
        let mut parts = core.split('.').map(str::parse);
        let mut part = || parts.next()?.ok();
        Some(Self { major: part()?, minor: part()?, patch: part()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        for new in ["2.12.3", "2.15.1", "v2.14.0", "3.0.0", "2.15.0-dev", "2.100.0-RC.1"] {
            assert!(Version::parse(new).unwrap() >= OLDEST, "{new}");
        }
        for old in ["2.9.25", "2.12.2", "1.99.99"] {
            assert!(Version::parse(old).unwrap() < OLDEST, "{old}");
        }
        assert_eq!(Version::parse("0.0"), None);
        assert_eq!(Version::parse(""), None);
    }
}
