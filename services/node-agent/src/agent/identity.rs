//! Tells this agent from another agent that was configured with the same node id.
//!
//! **Owns** `<state_dir>/agent-id`: made once, kept for as long as the state directory. The
//! journal's lock allows one agent at a time per state directory, so a process with the same id is
//! this agent, or an earlier process of it that has ended. Beside it, `agent-node` holds the name
//! of the node: what is mounted below the state directory is claimed for that node.
//!
//! **Promises** that an agent does not start on the state directory of another node. It would find
//! mounts that its own node has no claims for, and the other node would seem to be gone.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use berth_contract::code::Code;
use berth_domain::{NodeId, Timestamp};
use thiserror::Error;

const FILE: &str = "agent-id";
const NODE_FILE: &str = "agent-node";
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
    #[error(
        "{}: the state directory {} is that of node {known}, and the configuration names node \
         {configured}: start the agent as node {known}; or give node {configured} an empty state \
         directory, once nothing below {} is mounted any more",
        Code::NodeRenamed,
        dir.display(),
        dir.display()
    )]
    Renamed { dir: PathBuf, known: String, configured: NodeId },
}

/// An agent's id, and when it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentIdentity {
    pub id: String,
    /// `None` if the file system does not say.
    pub made: Option<Timestamp>,
}

/// The id, made with `random` at the first start. Refuses the state directory of another node; one
/// of an earlier version names no node, and is this node's from now on.
pub fn identity(
    state_dir: &Path,
    node: &NodeId,
    random: u128,
) -> Result<AgentIdentity, IdentityError> {
    let known = read_or_make(&state_dir.join(NODE_FILE), node.as_str())?;
    if known != node.as_str() {
        let (dir, configured) = (state_dir.to_owned(), node.clone());
        return Err(IdentityError::Renamed { dir, known, configured });
    }
    let path = state_dir.join(FILE);
    let id = read_or_make(&path, &format!("{random:032x}"))?;
    let is_one = id.len() == DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_one {
        return Err(IdentityError::Content(path));
    }
    let made = fs::metadata(&path).and_then(|file| file.modified()).ok();
    let made = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    let made = made.and_then(|since| u64::try_from(since.as_millis()).ok());
    Ok(AgentIdentity { id, made: made.map(Timestamp::from_unix_ms) })
}

/// The content of the file, made with `content` if it is not there.
fn read_or_make(path: &Path, content: &str) -> Result<String, IdentityError> {
    let read = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => make(path, content),
        read => read,
    };
    let read = read.map_err(|source| IdentityError::File { path: path.to_owned(), source })?;
    // Nothing else is cut off: a node's name may end with any other character.
    Ok(read.strip_suffix('\n').unwrap_or(&read).to_owned())
}

/// Written beside and renamed, so that half of it is never found.
fn make(path: &Path, content: &str) -> io::Result<String> {
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&beside)?;
    writeln!(file, "{content}")?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(content.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    #[test]
    fn it_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let first = identity(dir.path(), &node("n1"), 7).unwrap();
        assert_eq!(first.id, format!("{:032x}", 7));
        assert!(first.made.is_some());
        assert_eq!(identity(dir.path(), &node("n1"), 8).unwrap(), first);
    }

    #[test]
    fn the_state_directory_of_another_node_is_refused_and_one_without_a_name_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["n1", "a node\u{a0}"] {
            identity(dir.path(), &node(name), 7).unwrap();
            identity(dir.path(), &node(name), 7).unwrap();
            let refused = identity(dir.path(), &node("m1"), 7).unwrap_err();
            let said = refused.to_string();
            assert!(said.starts_with("BERTH0238: "), "{said}");
            assert!(said.contains(&format!("is that of node {name}, ")), "{said}");
            // As an earlier version left it.
            fs::remove_file(dir.path().join(NODE_FILE)).unwrap();
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for content in ["", "x", "7f"] {
            fs::write(dir.path().join(FILE), content).unwrap();
            let error = identity(dir.path(), &node("n1"), 7).unwrap_err();
            assert!(matches!(error, IdentityError::Content(_)), "{error}");
        }
    }
}
