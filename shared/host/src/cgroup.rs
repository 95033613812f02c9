//! Cgroups of version 2.
//!
//! **Owns** the check whether a cgroup, or one below it, has a process.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::statfs;

/// `CGROUP2_SUPER_MAGIC`.
const CGROUP2: u64 = 0x6367_7270;

/// Whether a process is in the cgroup with this directory, or in one below it. False if there is no
/// such cgroup. Fails if the directory is not a cgroup of version 2.
pub fn has_process(dir: &Path) -> io::Result<bool> {
    match statfs(dir) {
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno.into()),
        Ok(file_system) if u64::try_from(file_system.f_type) != Ok(CGROUP2) => {
            let why = format!("{} is no cgroup of version 2", dir.display());
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        Ok(_) => {}
    }
    match fs::read_to_string(dir.join("cgroup.events")) {
        Ok(events) => Ok(events.lines().any(|line| line == "populated 1")),
        // The root of the hierarchy has no such file. Any other cgroup without the file was removed
        // meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound && dir.join("cgroup.procs").exists() => {
            Err(io::Error::new(ErrorKind::InvalidInput, "the root cgroup guards nothing"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        // The cgroup was removed between opening and reading.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_cgroup_is_an_error_and_one_that_is_gone_is_empty() {
        assert!(!has_process(Path::new("/sys/fs/cgroup/unified/berth-none")).unwrap());
        let error = has_process(Path::new("/tmp")).unwrap_err();
        assert!(error.to_string().contains("no cgroup of version 2"), "{error}");
    }
}
