//! The record of a plugin instance on disk. By it a restarted agent finds the plugin's process
//! again.
//!
//! **Owns** `<state_dir>/plugins/<instance>/` with `instance.json`. A plugin that the agent runs
//! has its socket `csi.sock` and its output `output.log` there, too.
//!
//! **Promises** that a killed agent leaves a whole record or none. A record that cannot be read is
//! reported and stays.
//!
//! **Never** syncs a record. No process and no mount outlives a power cut, and a slow disk would
//! delay the start of a hundred plugins.

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

const RECORD_FILE: &str = "instance.json";
const SOCKET_FILE: &str = "csi.sock";
const OUTPUT_FILE: &str = "output.log";
const READ_POSITION_FILE: &str = "output.read";
/// The schema that this version writes.
const SCHEMA: u32 = 1;

/// The record of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRecord {
    schema: u32,
    /// The place of the declaration.
    pub source: PluginSource,
    /// Holds a command's environment: only the agent may read the file.
    #[serde(rename = "said")]
    pub declaration: Declaration,
    /// When the agent first found the instance.
    pub since: Timestamp,
    /// Its process. While it is being started, a process may run although this is `None`.
    #[serde(default)]
    pub process: Option<ProcessId>,
    /// Number of restarts.
    #[serde(default)]
    pub restarts: u64,
    /// The operator who stopped it.
    #[serde(default)]
    pub stopped_by: Option<String>,
    /// The external ids of the volumes that it mounted. Kept only if the plugin has other
    /// instances.
    #[serde(default)]
    pub volumes: BTreeSet<String>,
}

impl InstanceRecord {
    /// The record of a new instance.
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

    /// The instance's key: [`Declaration::key`].
    pub fn key(&self) -> String {
        self.declaration.key(&self.source)
    }
}

/// The records of all instances. Cheap to clone.
#[derive(Debug, Clone)]
pub struct InstanceRecords {
    root: PathBuf,
}

impl InstanceRecords {
    /// The records in this state directory.
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

    /// The file of an instance's record.
    pub fn file(&self, key: &str) -> PathBuf {
        self.dir(key).join(RECORD_FILE)
    }

    /// The socket of an instance.
    pub fn socket(&self, key: &str, declaration: &Declaration) -> PathBuf {
        match &declaration.endpoint {
            PluginEndpoint::Socket(socket) => socket.clone(),
            PluginEndpoint::Command(_) => self.dir(key).join(SOCKET_FILE),
        }
    }

    /// The file with an instance's output.
    pub fn output(&self, key: &str) -> PathBuf {
        self.dir(key).join(OUTPUT_FILE)
    }

    /// Reads every record. A record that cannot be read is a fault.
    pub fn load(&self) -> io::Result<(Vec<InstanceRecord>, Vec<SourceFault>)> {
        let (mut records, mut faults) = (Vec::new(), Vec::new());
        let dirs = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((records, faults)),
            dirs => dirs?,
        };
        for dir in dirs {
            let path = dir?.path().join(RECORD_FILE);
            match read_record(&path) {
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

    /// Writes a record. It replaces the earlier one as a whole.
    pub fn write(&self, record: &InstanceRecord) -> io::Result<()> {
        let dir = self.dir(&record.key());
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let beside = dir.join("instance.new");
        let mut options = OpenOptions::new();
        let options = options.create(true).write(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.write_all(serde_json::to_string(record)?.as_bytes())?;
        fs::rename(&beside, dir.join(RECORD_FILE))
    }

    /// Removes the files of an instance. The record goes first, so that a crash leaves no instance.
    pub fn remove(&self, key: &str) -> io::Result<()> {
        let dir = self.dir(key);
        for name in [RECORD_FILE, "instance.new", SOCKET_FILE, OUTPUT_FILE, READ_POSITION_FILE] {
            match fs::remove_file(dir.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match fs::remove_dir(&dir) {
            // Files of the plugin stay.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn read_record(path: &Path) -> Result<Option<InstanceRecord>, String> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| format!("cannot be read: {error}"))?,
    };
    if text.is_empty() {
        // A power cut before the disk had the content. It has ended the process and the mounts,
        // too.
        return Ok(None);
    }
    let advice = "it may stand for a process that runs; start the version that wrote it, or remove \
                it once there is none";
    // The error would quote the environment, which may be secret.
    let record: InstanceRecord = serde_json::from_slice(&text)
        .map_err(|_| format!("is no record of an instance; {advice}"))?;
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
    fn a_written_record_is_read_again_and_an_unreadable_one_is_a_fault() {
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
