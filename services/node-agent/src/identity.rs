//! Tells this agent from another agent that was configured with the same node id.
//!
//! **Owns** `<state_dir>/agent-id`: made once, kept for as long as the state directory. The
//! journal's lock allows one agent at a time per state directory, so a process with the same id is
//! this agent, or an earlier process of it that has ended.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

const FILE: &str = "agent-id";
const DIGITS: usize = 32;

/// Why it is not known which agent this is.
#[derive(Debug, Error)]
pub enum IdentityError {
    #[error("the agent's id {} cannot be read or made", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} holds no id of an agent; remove it, and the next start makes one", .0.display())]
    Content(PathBuf),
}

/// The id, made with `random` at the first start.
pub fn identity(state_dir: &Path, random: u128) -> Result<String, IdentityError> {
    let path = state_dir.join(FILE);
    let id = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => make(&path, random),
        read => read,
    };
    let id = id.map_err(|source| IdentityError::File { path: path.clone(), source })?;
    let id = id.trim().to_owned();
    let is_one = id.len() == DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_one { Ok(id) } else { Err(IdentityError::Content(path)) }
}

/// Written beside and renamed, so that half an id is never found.
fn make(path: &Path, random: u128) -> io::Result<String> {
    let id = format!("{random:032x}");
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&beside)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let first = identity(dir.path(), 7).unwrap();
        assert_eq!(first, format!("{:032x}", 7));
        assert_eq!(identity(dir.path(), 8).unwrap(), first);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for content in ["", "x", "7f"] {
            fs::write(dir.path().join(FILE), content).unwrap();
            let error = identity(dir.path(), 7).unwrap_err();
            assert!(matches!(error, IdentityError::Content(_)), "{error}");
        }
    }
}
