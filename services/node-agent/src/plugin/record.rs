//! What is kept of a plugin instance on disk, so that the agent's end is not the plugin's.
//!
//! **Owns** `<state_dir>/plugins/<instance>/`: `instance.json`, and of a command that the agent
//! runs its socket `csi.sock` and what it says, `output.log`.
//!
//! **Promises** that a record is whole or not there when the agent was killed, and that one which
//! cannot be read is told and left where it is. It is not synced: neither a process nor a mount
//! outlives a power cut, and a disk that is slow must not keep a hundred plugins from coming.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use berth_contract::message::plugin::SourceFault;
use berth_domain::Timestamp;
use serde::{Deserialize, Serialize};

use super::declaration::{Declaration, PluginEndpoint, PluginSource};
use super::process::ProcessId;

const FILE: &str = "instance.json";
const SOCKET: &str = "csi.sock";
const OUTPUT: &str = "output.log";
const READ: &str = "output.read";
/// The form that this version writes.
const SCHEMA: u32 = 1;

/// What is kept of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRecord {
    schema: u32,
    /// Where it comes from.
    pub source: PluginSource,
    /// What is said of it there. A command's environment is in it: only the agent may read this.
    #[serde(rename = "said")]
    pub declaration: Declaration,
    /// Since when this node has it.
    pub since: Timestamp,
    /// Its process; with none it is not known whether there is one while it is being started.
    #[serde(default)]
    pub process: Option<ProcessId>,
    /// How often it was started again.
    #[serde(default)]
    pub restarts: u64,
    /// Who stopped it.
    #[serde(default)]
    pub stopped_by: Option<String>,
    /// The volumes that it mounted, by the plugin's own ids; kept while it has company only.
    #[serde(default)]
    pub volumes: BTreeSet<String>,
}

impl InstanceRecord {
    /// A new instance.
    pub fn new(source: PluginSource, declaration: Declaration, since: Timestamp) -> Self {
        Self {
            schema: SCHEMA,
            source,
            declaration,
            since,
            process: None,
            restarts: 0,
            stopped_by: None,
            volumes: BTreeSet::new(),
        }
    }

    /// Which instance it is.
    pub fn key(&self) -> String {
        self.declaration.key(&self.source)
    }
}

/// Where the records are. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InstanceRecords {
    root: PathBuf,
}

impl InstanceRecords {
    /// Those below this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self { root: state_dir.join("plugins") }
    }

    /// The directory of all records.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn dir(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// Where the record of an instance is.
    pub fn file(&self, key: &str) -> PathBuf {
        self.dir(key).join(FILE)
    }

    /// The socket of an instance.
    pub fn socket(&self, key: &str, declaration: &Declaration) -> PathBuf {
        match &declaration.endpoint {
            PluginEndpoint::Socket(socket) => socket.clone(),
            PluginEndpoint::Command(_) => self.dir(key).join(SOCKET),
        }
    }

    /// Where what it says goes.
    pub fn output(&self, key: &str) -> PathBuf {
        self.dir(key).join(OUTPUT)
    }

    /// Every record, and what is wrong with others.
    pub fn load(&self) -> io::Result<(Vec<InstanceRecord>, Vec<SourceFault>)> {
        let (mut records, mut faults) = (Vec::new(), Vec::new());
        let dirs = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((records, faults)),
            dirs => dirs?,
        };
        for dir in dirs {
            let path = dir?.path().join(FILE);
            match read(&path) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(problem) => {
                    let source = path.display().to_string();
                    faults.push(SourceFault { source, problem });
                }
            }
        }
        records.sort_by_key(|record| (record.since, record.key()));
        Ok((records, faults))
    }

    /// Writes a record; whoever looks next finds it.
    pub fn write(&self, record: &InstanceRecord) -> io::Result<()> {
        let dir = self.dir(&record.key());
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let beside = dir.join("instance.new");
        let mut options = OpenOptions::new();
        let options = options.create(true).write(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.write_all(serde_json::to_string(record)?.as_bytes())?;
        fs::rename(&beside, dir.join(FILE))
    }

    /// Forgets an instance: the record first, so that what is left of a crash is no instance.
    pub fn remove(&self, key: &str) -> io::Result<()> {
        let dir = self.dir(key);
        for name in [FILE, "instance.new", SOCKET, OUTPUT, READ] {
            match fs::remove_file(dir.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match fs::remove_dir(&dir) {
            // Something that the plugin put there stays.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn read(path: &Path) -> Result<Option<InstanceRecord>, String> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| format!("cannot be read: {error}"))?,
    };
    if text.is_empty() {
        // A power cut came before the disk had it, and took all that it stood for.
        return Ok(None);
    }
    let kept = "it may stand for a process that runs; start the version that wrote it, or remove \
                it once there is none";
    // The error would quote the environment.
    let record: InstanceRecord = serde_json::from_slice(&text)
        .map_err(|_| format!("is no record of an instance; {kept}"))?;
    if record.schema > SCHEMA {
        return Err(format!("its form is {}; this version reads up to {SCHEMA}", record.schema));
    }
    Ok(Some(record))
}

#[cfg(test)]
mod tests {
    use berth_domain::PluginId;

    use super::*;

    #[test]
    fn what_is_written_is_found_again_and_garbage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let records = InstanceRecords::new(dir.path());
        assert_eq!(records.load().unwrap(), (vec![], vec![]));
        let declaration = Declaration::socket(PluginId::new("p").unwrap(), "/run/p.sock");
        let mut record = InstanceRecord::new(
            PluginSource::Configuration,
            declaration,
            Timestamp::from_unix_ms(7),
        );
        records.write(&record).unwrap();
        record.restarts = 3;
        record.volumes.insert("vol/1".to_owned());
        records.write(&record).unwrap();
        fs::create_dir(dir.path().join("plugins/other")).unwrap();
        fs::write(dir.path().join("plugins/other/instance.json"), "{").unwrap();
        let (found, faults) = records.load().unwrap();
        assert_eq!(found, [record.clone()]);
        assert_eq!(faults.len(), 1);
        records.remove(&record.key()).unwrap();
        records.remove(&record.key()).unwrap();
        assert!(records.load().unwrap().0.is_empty());
    }
}
