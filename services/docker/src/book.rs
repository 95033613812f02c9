//! Every name, in memory and on disk.
//!
//! **Promises** that a change is on the disk when its function returns, and made or not made as a
//! whole; and that changes of all names are seen in one order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use berth_durable::in_turn;
use tokio::sync::watch;

use super::record::{Record, Trust};
use super::store::{Store, StoreError};

/// Names that one node remembers.
const NAMES_MAX: usize = 65_536;

/// The names. Cheap to clone.
#[derive(Clone)]
pub struct Book {
    inner: Arc<Inner>,
    // Held while a change goes to the disk and then to the table, so that both see one order.
    store: Arc<tokio::sync::Mutex<Store>>,
}

struct Inner {
    names: Mutex<BTreeMap<String, Record>>,
    changed: watch::Sender<u64>,
}

impl Book {
    /// Opens the store in this directory, made if it is not there.
    pub async fn open(path: PathBuf) -> Result<Self, StoreError> {
        let open = tokio::task::spawn_blocking(move || Store::open(path));
        let (store, records) = open.await.map_err(StoreError::Thread)??;
        let names = Mutex::new(records.into_iter().collect());
        let (changed, _) = watch::channel(0);
        let inner = Arc::new(Inner { names, changed });
        Ok(Self { inner, store: Arc::new(tokio::sync::Mutex::new(store)) })
    }

    /// What is known of a name.
    pub fn get(&self, name: &str) -> Record {
        self.inner.names().get(name).cloned().unwrap_or_default()
    }

    /// Every name of which something is known.
    pub fn all(&self) -> Vec<(String, Record)> {
        self.inner.names().iter().map(|(name, record)| (name.clone(), record.clone())).collect()
    }

    /// Whether another name can be remembered.
    pub fn has_room(&self) -> bool {
        self.inner.names().len() < NAMES_MAX
    }

    /// Tells of changes, each of which may be of any name.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Changes what is known of a name; what the change answers is answered.
    pub async fn change<T: Send + 'static>(
        &self,
        name: &str,
        change: impl FnOnce(&mut Record) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (inner, name) = (Arc::clone(&self.inner), name.to_owned());
        let write = move |store: &mut Store| inner.change(store, &name, change);
        in_turn(&self.store, write).await.map_err(StoreError::Thread)?
    }

    /// Doubts every reference there is.
    pub async fn doubt(&self, trust: Trust) -> Result<(), StoreError> {
        for (name, record) in self.all() {
            if record.session.is_some_and(|session| !session.ids.is_empty()) {
                self.change(&name, move |record| {
                    if let Some(session) = &mut record.session {
                        session.doubt(trust);
                    }
                })
                .await?;
            }
        }
        Ok(())
    }
}

impl Inner {
    fn names(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Record>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(
        &self,
        store: &mut Store,
        name: &str,
        change: impl FnOnce(&mut Record) -> T,
    ) -> Result<T, StoreError> {
        if let Some(records) = store.open_again()? {
            *self.names() = records.into_iter().collect();
        }
        let before = self.names().get(name).cloned().unwrap_or_default();
        let mut record = before.clone();
        let answer = change(&mut record);
        if record == before {
            return Ok(answer);
        }
        store.write(name, &record)?;
        if record.is_empty() {
            self.names().remove(name);
        } else {
            self.names().insert(name.to_owned(), record);
        }
        self.changed.send_modify(|changes| *changes = changes.wrapping_add(1));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{AllocId, Namespace, VolumeId};

    use super::*;
    use crate::record::{Phase, Session, Target};

    #[tokio::test]
    async fn what_was_counted_is_there_after_a_restart_and_in_doubt_when_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(dir.path().to_owned()).await.unwrap();
        let target = Target::of(Namespace::default(), VolumeId::new("data").unwrap());
        let mut session = Session::begin(target, AllocId::new("a").unwrap(), "boot".to_owned());
        session.phase = Phase::Open { path: "/p".to_owned() };
        session.mount("x").unwrap();
        session.mount("x").unwrap();
        let known = session.clone();
        book.change("data", move |record| record.session = Some(session)).await.unwrap();
        book.change("none", |_| ()).await.unwrap();
        drop(book);

        let book = Book::open(dir.path().to_owned()).await.unwrap();
        assert_eq!(book.get("data").session, Some(known));
        assert_eq!(book.all().len(), 1);
        book.doubt(Trust::PluginWasAway).await.unwrap();
        let doubted = book.get("data").session.unwrap();
        assert_eq!((doubted.trust(), doubted.ids["x"].count), (Some(Trust::PluginWasAway), 1));
        book.change("data", |record| record.session = None).await.unwrap();
        assert!(book.all().is_empty());
        drop(book);
        assert!(Book::open(dir.path().to_owned()).await.unwrap().all().is_empty());
    }

    #[tokio::test]
    async fn a_store_whose_disk_was_full_is_written_again() {
        if !berth_harness::root::or_skip("a disk of its own") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = berth_harness::dirs::Disk::mount(dir.path().join("docker"), 32 << 20);
        let book = Book::open(disk.path().to_owned()).await.unwrap();
        let remember = async |name: &str| {
            let target = Target::of(Namespace::default(), VolumeId::new("data").unwrap());
            let session = Session::begin(target, AllocId::new("a").unwrap(), "boot".to_owned());
            book.change(name, move |record| record.session = Some(session)).await
        };
        remember("before").await.unwrap();
        disk.fill();
        let mut kept = 0;
        while remember(&format!("while-{kept}")).await.is_ok() {
            kept += 1;
            assert!(kept < 100_000, "a full disk takes everything");
        }
        disk.free();
        remember("after").await.unwrap();
        let known = book.all();
        assert!(["before", "after"].iter().all(|name| known.iter().any(|one| one.0 == *name)));
        drop(book);
        assert_eq!(Book::open(disk.path().to_owned()).await.unwrap().all(), known);
    }
}
