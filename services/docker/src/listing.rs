//! The volumes of the namespace `default`, as this node knows them: `docker volume ls` shows them
//! besides the names that were created here.
//!
//! **Promises** that `docker volume ls` does not wait for the claim service, because other Docker
//! commands wait for it. It shows the last list, which is then read again in the background. Only
//! the first `ls` of this process waits, for a short time, for the first list. What this node has
//! learned about one volume since is not overwritten by an older list.
//!
//! **Never** decides anything: the claim service is asked for each mount.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use berth_contract::code::Code;
use berth_domain::Namespace;
use berth_service::shutdown::Shutdown;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::client::BerthClient;
use super::creation::is_usable;

/// Interval at which the list is read without a `docker volume ls`, give or take a quarter: a
/// thousand hosts make three requests per second.
const READ_INTERVAL: Duration = Duration::from_secs(300);
/// The same if the claim service did not answer.
const READ_RETRY: Duration = Duration::from_secs(30);
/// Shortest interval between two reads, however often Docker lists.
const READ_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// How long `docker volume ls` waits for the first list of this process.
const FIRST_LIST_WAIT: Duration = Duration::from_secs(2);
/// Volumes that are learned about during one read, at most. The next list has the others.
const LEARNED_MAX: usize = 4096;

/// The list. Cheap to clone.
#[derive(Clone, Default)]
pub struct VolumeListing {
    inner: Arc<VolumeListingInner>,
}

#[derive(Default)]
struct VolumeListingInner {
    volumes: watch::Sender<ListedVolumes>,
    /// Docker has asked for the list.
    listed: Notify,
}

#[derive(Debug, Default)]
struct ListedVolumes {
    /// Whether the claim service was asked for a list, with or without success.
    was_read: bool,
    names: BTreeSet<String>,
    /// Volumes learned about since the last read began, and whether each exists.
    learned: BTreeMap<String, bool>,
}

impl VolumeListing {
    /// The current list. It is then read again in the background.
    pub async fn names(&self) -> BTreeSet<String> {
        self.inner.listed.notify_one();
        let mut volumes = self.inner.volumes.subscribe();
        // After a timeout, the list as it is known is shown.
        let _ = timeout(FIRST_LIST_WAIT, volumes.wait_for(|volumes| volumes.was_read)).await;
        self.inner.volumes.borrow().names.clone()
    }

    /// Whether the volume is in the list.
    pub fn has(&self, name: &str) -> bool {
        self.inner.volumes.borrow().names.contains(name)
    }

    /// Updates the list with the claim service's answer about one volume.
    pub fn learn(&self, name: &str, is_there: bool) {
        self.inner.volumes.send_modify(|volumes| {
            if volumes.learned.len() < LEARNED_MAX {
                volumes.learned.insert(name.to_owned(), is_there);
            }
            set_listed(&mut volumes.names, name.to_owned(), is_there);
        });
    }

    /// Keeps the list current until the shutdown.
    pub async fn keep_current(self, client: BerthClient, shutdown: Shutdown) {
        loop {
            let interval = tokio::select! {
                was_read = self.read(&client) => if was_read { READ_INTERVAL } else { READ_RETRY },
                () = shutdown.requested() => return,
            };
            let next = async {
                sleep(READ_INTERVAL_MIN).await;
                let interval = interval.mul_f64(0.75 + rand::random::<f64>() / 2.0);
                let _ = timeout(interval, self.inner.listed.notified()).await;
            };
            tokio::select! {
                () = next => {}
                () = shutdown.requested() => return,
            }
        }
    }

    /// Reads the list once. Returns whether the claim service answered.
    async fn read(&self, client: &BerthClient) -> bool {
        self.inner.volumes.send_modify(|volumes| volumes.learned.clear());
        let listed = match client.list_volumes(&Namespace::default()).await {
            Ok(volumes) => {
                let usable =
                    volumes.into_iter().filter(|volume| volume.stage.is_none_or(is_usable));
                let ids = usable.map(|volume| volume.id.to_string());
                Some(ids.filter(|id| is_name(id)).collect())
            }
            // The identity has rights in other namespaces only. Docker then lists only the names of
            // this host.
            Err(problem) if problem.code == Code::NotAllowed => Some(BTreeSet::new()),
            Err(problem) => {
                let trace = problem.trace.as_deref();
                tracing::warn!(trace, %problem, "Docker is told the volumes of last time");
                None
            }
        };
        let was_read = listed.is_some();
        self.inner.volumes.send_modify(|volumes| volumes.replace(listed));
        was_read
    }
}

impl ListedVolumes {
    /// Ends a read. What was learned during the read is newer than the list.
    fn replace(&mut self, listed: Option<BTreeSet<String>>) {
        self.was_read = true;
        let Some(listed) = listed else { return };
        self.names = listed;
        for (name, is_there) in std::mem::take(&mut self.learned) {
            set_listed(&mut self.names, name, is_there);
        }
    }
}

fn set_listed(names: &mut BTreeSet<String>, name: String, is_there: bool) {
    if is_there && is_name(&name) {
        names.insert(name);
    } else {
        names.remove(&name);
    }
}

/// Whether Docker accepts the id as a name: `[a-zA-Z0-9][a-zA-Z0-9_.-]+`, at most 255 characters.
fn is_name(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    id.len() > 1
        && id.len() <= 255
        && id.bytes().all(plain)
        && id.as_bytes()[0].is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn names(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_are_what_docker_takes() {
        for (id, expected) in [
            ("data", true),
            ("a1_.-", true),
            ("a", false),
            ("-a", false),
            ("a/b", false),
            ("data[0]", false),
            ("é1", false),
        ] {
            assert_eq!(is_name(id), expected, "{id}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn list_is_told_at_once_after_the_first_reading() {
        let listing = VolumeListing::default();
        let began = Instant::now();
        assert_eq!(listing.names().await, names(&[]));
        assert_eq!(began.elapsed(), FIRST_LIST_WAIT, "no list arrives");

        let (waiter, began) = (listing.clone(), Instant::now());
        let waiting = tokio::spawn(async move { waiter.names().await });
        sleep(FIRST_LIST_WAIT / 2).await;
        listing.inner.volumes.send_modify(|volumes| volumes.replace(Some(names(&["data"]))));
        assert_eq!(waiting.await.unwrap(), names(&["data"]));
        assert_eq!(began.elapsed(), FIRST_LIST_WAIT / 2, "as soon as it arrives");

        // A failed read leaves the list as it is, and no caller waits for it.
        listing.inner.volumes.send_modify(|volumes| volumes.replace(None));
        let began = Instant::now();
        assert_eq!(listing.names().await, names(&["data"]));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[test]
    fn what_was_learned_of_a_volume_outlives_an_older_list() {
        let listing = VolumeListing::default();
        listing
            .inner
            .volumes
            .send_modify(|volumes| volumes.replace(Some(names(&["gone", "data"]))));
        listing.learn("new", true);
        listing.learn("gone", false);
        listing.learn("a/b", true);
        assert_eq!(
            (listing.has("new"), listing.has("gone"), listing.has("a/b")),
            (true, false, false)
        );
        listing
            .inner
            .volumes
            .send_modify(|volumes| volumes.replace(Some(names(&["gone", "data"]))));
        assert_eq!(listing.inner.volumes.borrow().names, names(&["data", "new"]));
        // The next list is newer.
        listing.inner.volumes.send_modify(|volumes| volumes.replace(Some(names(&["data"]))));
        assert_eq!(listing.inner.volumes.borrow().names, names(&["data"]));
    }
}
