//! Which version's program each process of a system runs.
//!
//! A process is started through a link to its program. An upgrade changes the link and restarts the
//! process, which keeps its configuration and its state.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use berth_harness::dirs::Dir;
use berth_harness::process::{binary, binary_of_last_release};
use tokio::process::Command;

use super::{Part, System};

/// Whose programs there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Built from this checkout.
    This,
    /// Built from the commit that `tests/integration/last-release/commit` names.
    LastRelease,
}

impl Version {
    /// Whether its programs are here. Says so where they are not: the test is then skipped.
    pub fn is_here_or_skip(self) -> bool {
        let is_here = self.find("berth").is_some();
        if !is_here {
            eprintln!("SKIPPED: no programs of the last release; try: make last-release");
        }
        is_here
    }

    fn find(self, program: &str) -> Option<PathBuf> {
        match self {
            Self::This => Some(binary(program)),
            Self::LastRelease => binary_of_last_release(program),
        }
    }

    /// Makes or changes the link at `to`. Never replaces a program: all tests share it.
    fn link(self, to: &Path) {
        assert!(!to.exists() || to.is_symlink(), "{} is no link", to.display());
        let program = to.file_name().and_then(|name| name.to_str()).expect("a program has a name");
        let found = self.find(program).expect("the version's programs are here");
        let fresh = to.with_extension("new");
        symlink(found, &fresh).expect("a program can be linked");
        std::fs::rename(&fresh, to).expect("a link can be put in place");
    }
}

/// The link to the program of a process, made for this version.
pub(super) fn place(dir: &Dir, program: &str, process: &str, version: Version) -> PathBuf {
    let place = dir.join("bin").join(process);
    std::fs::create_dir_all(&place).expect("the directory can be made");
    // The file keeps the program's name: it is the name of the process.
    let link = place.join(program);
    version.link(&link);
    link
}

impl System {
    /// Ends a process as an operator would, and starts it with the program of this version.
    pub async fn install(&self, part: Part, version: Version) {
        let daemon = self.daemon(part);
        assert!(daemon.program().is_symlink(), "{part:?} has one version only");
        let status = daemon.terminate().await;
        assert!(status.success(), "{part:?}: {status}");
        version.link(daemon.program());
        daemon.restart();
    }

    /// `berth` of this version, for an operator of this system.
    pub fn berth_of(&self, version: Version) -> Command {
        let program = version.find("berth").expect("the version's programs are here");
        self.identify_operator(Command::new(program))
    }
}
