//! Every name that Docker uses on this node, in memory and on disk.
//!
//! **Owns** `<state_dir>/names`.
//!
//! **Promises** that a change is on the disk when its function returns, and is made entirely or not
//! at all; and that readers see all changes in one order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_durable::{Durable, DurableError, Entries, in_turn};
use berth_service::process::chain;
use thiserror::Error;
use tokio::sync::watch;

use super::record::{CountTrust, NameRecord};

/// The one keyspace of the store.
const KEYSPACE: &str = "names";
/// Names that one node stores, at most.
const NAMES_MAX: usize = 65_536;

type Records = BTreeMap<String, NameRecord>;

/// Why the names cannot be read or written.
#[derive(Debug, Error)]
pub enum NamesError {
    /// They cannot be opened, read or written.
    #[error("the store of Docker's volumes does not work")]
    Disk(#[from] DurableError),
    /// This version cannot read a record.
    #[error(
        "the store {} holds a name that cannot be read, {name:?}; it is not skipped, because a \
         container may use its volume: start the version that wrote it, or move the store away \
         once no container uses a volume of Berth",
        path.display()
    )]
    Entry {
        path: PathBuf,
        name: String,
        #[source]
        source: serde_json::Error,
    },
    /// A record could not be encoded as JSON.
    #[error("a name could not be written")]
    Json(#[from] serde_json::Error),
    /// The thread that wrote has ended.
    #[error("the store's thread ended before it answered")]
    Thread(#[source] tokio::task::JoinError),
}

impl NamesError {
    /// The problem for Docker's user. A change that cannot be written was not made.
    pub fn into_problem(self) -> Problem {
        Problem::new(Code::Internal, chain(&self))
            .next("look at the disk below berth-docker's state_dir, and restart berth-docker")
    }
}

/// The names. Cheap to clone.
#[derive(Clone)]
pub struct NameTable {
    inner: Arc<NameTableInner>,
    // Held while a change is written to the disk and then to the table, so that both have one
    // order.
    disk: Arc<tokio::sync::Mutex<Durable>>,
}

struct NameTableInner {
    path: PathBuf,
    records: Mutex<Records>,
    changed: watch::Sender<u64>,
}

impl NameTable {
    /// Opens the store in this directory, which is created if it is missing.
    pub async fn open(path: PathBuf) -> Result<Self, NamesError> {
        let open = tokio::task::spawn_blocking(move || {
            let (disk, entries) = Durable::open(path.clone(), KEYSPACE)?;
            let records = Mutex::new(decode_records(&path, entries)?);
            let (changed, _) = watch::channel(0);
            let inner = Arc::new(NameTableInner { path, records, changed });
            Ok(Self { inner, disk: Arc::new(tokio::sync::Mutex::new(disk)) })
        });
        open.await.map_err(NamesError::Thread)?
    }

    /// The record of a name; an empty one if there is none.
    pub fn get(&self, name: &str) -> NameRecord {
        self.inner.records().get(name).cloned().unwrap_or_default()
    }

    /// Every name with a record.
    pub fn list(&self) -> Records {
        self.inner.records().clone()
    }

    /// Whether another name can be stored.
    pub fn has_room(&self) -> bool {
        self.inner.records().len() < NAMES_MAX
    }

    /// Counts the changes of all names.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Changes the record of a name; returns what `change` returns.
    pub async fn update<T: Send + 'static>(
        &self,
        name: &str,
        change: impl FnOnce(&mut NameRecord) -> T + Send + 'static,
    ) -> Result<T, NamesError> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        let write = move |disk: &mut Durable| inner.update(disk, &name, change);
        in_turn(&self.disk, write).await.map_err(NamesError::Thread)?
    }

    /// Puts every count of every name in doubt.
    pub async fn doubt_counts(&self, trust: CountTrust) -> Result<(), NamesError> {
        for (name, record) in self.list() {
            if record.session.is_some_and(|session| !session.ids.is_empty()) {
                self.update(&name, move |record| {
                    if let Some(session) = &mut record.session {
                        session.doubt_counts(trust);
                    }
                })
                .await?;
            }
        }
        Ok(())
    }
}

impl NameTableInner {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(
        &self,
        disk: &mut Durable,
        name: &str,
        change: impl FnOnce(&mut NameRecord) -> T,
    ) -> Result<T, NamesError> {
        if !disk.is_open() {
            // After a failed write the disk decides which changes were made.
            let records = decode_records(&self.path, disk.open_again()?);
            *self.records() = records.inspect_err(|error| disk.close(chain(error)))?;
        }
        let mut record = self.records().get(name).cloned().unwrap_or_default();
        let before = record.clone();
        let returned = change(&mut record);
        if record == before {
            return Ok(returned);
        }
        let value = if record.is_empty() { None } else { Some(serde_json::to_vec(&record)?) };
        disk.write([(name.as_bytes().to_vec(), value)])?;
        if record.is_empty() {
            self.records().remove(name);
        } else {
            self.records().insert(name.to_owned(), record);
        }
        self.changed.send_modify(|changes| *changes = changes.wrapping_add(1));
        Ok(returned)
    }
}

fn decode_records(path: &Path, entries: Entries) -> Result<Records, NamesError> {
    let decode = |(key, value): (Vec<u8>, Vec<u8>)| {
        let name = String::from_utf8_lossy(&key).into_owned();
        match serde_json::from_slice(&value) {
            Ok(record) => Ok((name, record)),
            Err(source) => Err(NamesError::Entry { path: path.to_owned(), name, source }),
        }
    };
    entries.into_iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use berth_domain::{AllocId, Namespace, VolumeId};

    use super::*;
    use crate::record::{Session, SessionPhase};
    use crate::target::VolumeTarget;

    #[tokio::test]
    async fn counts_outlive_a_restart_and_can_be_put_in_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let names = NameTable::open(dir.path().to_owned()).await.unwrap();
        let target =
            VolumeTarget::without_options(Namespace::default(), VolumeId::new("data").unwrap());
        let mut session = Session::new(target, AllocId::new("a").unwrap(), "boot".to_owned());
        session.phase = SessionPhase::Open { path: "/p".to_owned() };
        session.add_reference("x").unwrap();
        session.add_reference("x").unwrap();
        let expected = session.clone();
        names.update("data", move |record| record.session = Some(session)).await.unwrap();
        names.update("none", |_| ()).await.unwrap();
        drop(names);

        let names = NameTable::open(dir.path().to_owned()).await.unwrap();
        assert_eq!(names.get("data").session, Some(expected));
        assert_eq!(names.list().len(), 1);
        names.doubt_counts(CountTrust::PluginWasAway).await.unwrap();
        let doubted = names.get("data").session.unwrap();
        assert_eq!((doubted.trust(), doubted.ids["x"].count), (Some(CountTrust::PluginWasAway), 1));
        names.update("data", |record| record.session = None).await.unwrap();
        assert!(names.list().is_empty());
        drop(names);
        assert!(NameTable::open(dir.path().to_owned()).await.unwrap().list().is_empty());
    }

    #[tokio::test]
    async fn store_is_written_again_after_its_disk_was_full() {
        if !berth_harness::root::or_skip("a disk of its own") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = berth_harness::dirs::Disk::mount(dir.path().join("docker"), 32 << 20);
        let names = NameTable::open(disk.path().to_owned()).await.unwrap();
        let remember = async |name: &str| {
            let target =
                VolumeTarget::without_options(Namespace::default(), VolumeId::new("data").unwrap());
            let session = Session::new(target, AllocId::new("a").unwrap(), "boot".to_owned());
            names.update(name, move |record| record.session = Some(session)).await
        };
        remember("before").await.unwrap();
        disk.fill();
        let mut kept_count = 0;
        while remember(&format!("while-{kept_count}")).await.is_ok() {
            kept_count += 1;
            assert!(kept_count < 100_000, "a full disk takes everything");
        }
        disk.free();
        remember("after").await.unwrap();
        let expected = names.list();
        assert!(["before", "after"].iter().all(|name| expected.contains_key(*name)));
        drop(names);
        assert_eq!(NameTable::open(disk.path().to_owned()).await.unwrap().list(), expected);
    }
}
