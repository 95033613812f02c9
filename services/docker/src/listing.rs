//! Which volumes of the namespace `default` there are, as this node knows: what `docker volume ls`
//! shows besides the names that were created here.
//!
//! **Promises** that a list waits for no claim service, since Docker's commands wait for the list:
//! what is known is told at once, and asked for anew behind it. Only where nothing was ever asked,
//! as the agent starts, a list waits for that first question, and not for long. What this node
//! heard of one volume is in the list from then on, also when an older list comes in after it.
//!
//! **Never** decides anything: of a mount the claim service is always asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use berth_domain::Namespace;
use berth_service::shutdown::Shutdown;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::ask::Asker;

/// How often it is asked when nobody lists, give or take a quarter: a thousand agents ask three
/// times a second.
const EVERY: Duration = Duration::from_secs(300);
/// The same while nobody answers.
const AGAIN: Duration = Duration::from_secs(30);
/// The least time between two questions, however often it is listed.
const APART: Duration = Duration::from_secs(1);
/// How long a list waits for the first question of this process.
const FIRST: Duration = Duration::from_secs(2);
/// Single volumes that are kept apart while a list is on its way; what is beyond them the next list
/// brings.
const HEARD_MAX: usize = 4096;

/// What is known. Cheap to clone.
#[derive(Clone, Default)]
pub struct Listing {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    known: watch::Sender<Known>,
    listed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether a question has ended, with a list or without one.
    asked: bool,
    names: BTreeSet<String>,
    /// What was heard of single volumes since the question that is under way: whether each is
    /// there.
    heard: BTreeMap<String, bool>,
}

impl Listing {
    /// What is known now; it is asked for anew behind the answer.
    pub async fn names(&self) -> BTreeSet<String> {
        self.inner.listed.notify_one();
        let mut known = self.inner.known.subscribe();
        // It ends only with the time; what is known then is told all the same.
        let _ = timeout(FIRST, known.wait_for(|known| known.asked)).await;
        self.inner.known.borrow().names.clone()
    }

    /// Whether a volume was there when it was last heard of.
    pub fn has(&self, name: &str) -> bool {
        self.inner.known.borrow().names.contains(name)
    }

    /// The claim service said of one volume whether it is there.
    pub fn heard(&self, name: &str, is_there: bool) {
        self.inner.known.send_modify(|known| {
            if known.heard.len() < HEARD_MAX {
                known.heard.insert(name.to_owned(), is_there);
            }
            note(&mut known.names, name.to_owned(), is_there);
        });
    }

    /// Asks again and again until the shutdown.
    pub async fn keep(self, asker: Asker, shutdown: Shutdown) {
        loop {
            let often = tokio::select! {
                answered = self.ask(&asker) => if answered { EVERY } else { AGAIN },
                () = shutdown.requested() => return,
            };
            let next = async {
                sleep(APART).await;
                let often = often.mul_f64(0.75 + rand::random::<f64>() / 2.0);
                let _ = timeout(often, self.inner.listed.notified()).await;
            };
            tokio::select! {
                () = next => {}
                () = shutdown.requested() => return,
            }
        }
    }

    /// Asks once; whether somebody answered.
    async fn ask(&self, asker: &Asker) -> bool {
        self.inner.known.send_modify(|known| known.heard.clear());
        let listed = match asker.volumes(&Namespace::default()).await {
            Ok(volumes) => {
                let ids = volumes.into_iter().map(|volume| volume.id.to_string());
                Some(ids.filter(|id| is_name(id)).collect())
            }
            Err(problem) => {
                let trace = problem.trace.as_deref();
                tracing::warn!(trace, %problem, "Docker is told the volumes of last time");
                None
            }
        };
        let answered = listed.is_some();
        self.inner.known.send_modify(|known| known.take(listed));
        answered
    }
}

impl Known {
    /// A question has ended. What was heard meanwhile is newer than what it brought.
    fn take(&mut self, listed: Option<BTreeSet<String>>) {
        self.asked = true;
        let Some(listed) = listed else { return };
        self.names = listed;
        for (name, is_there) in std::mem::take(&mut self.heard) {
            note(&mut self.names, name, is_there);
        }
    }
}

fn note(names: &mut BTreeSet<String>, name: String, is_there: bool) {
    if is_there && is_name(&name) {
        names.insert(name);
    } else {
        names.remove(&name);
    }
}

/// Whether Docker can name a volume so: `[a-zA-Z0-9][a-zA-Z0-9_.-]+`, of at most 255 characters.
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

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
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
    async fn what_is_known_is_told_at_once_and_nobody_waits_for_more_than_the_first_question() {
        let listing = Listing::default();
        let began = Instant::now();
        assert_eq!(listing.names().await, names(&[]));
        assert_eq!(began.elapsed(), FIRST, "nobody answers the first question");

        let (asked, began) = (listing.clone(), Instant::now());
        let waiting = tokio::spawn(async move { asked.names().await });
        sleep(FIRST / 2).await;
        listing.inner.known.send_modify(|known| known.take(Some(names(&["data"]))));
        assert_eq!(waiting.await.unwrap(), names(&["data"]));
        assert_eq!(began.elapsed(), FIRST / 2, "as soon as it was answered");

        // One that failed changes nothing of what is known, and is waited for no longer either.
        listing.inner.known.send_modify(|known| known.take(None));
        let began = Instant::now();
        assert_eq!(listing.names().await, names(&["data"]));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[test]
    fn what_was_heard_of_one_volume_outlives_a_list_that_is_older() {
        let listing = Listing::default();
        listing.inner.known.send_modify(|known| known.take(Some(names(&["gone", "data"]))));
        listing.heard("new", true);
        listing.heard("gone", false);
        listing.heard("a/b", true);
        assert_eq!(
            (listing.has("new"), listing.has("gone"), listing.has("a/b")),
            (true, false, false)
        );
        listing.inner.known.send_modify(|known| known.take(Some(names(&["gone", "data"]))));
        assert_eq!(listing.inner.known.borrow().names, names(&["data", "new"]));
        // The list after that one was asked for later.
        listing.inner.known.send_modify(|known| known.take(Some(names(&["data"]))));
        assert_eq!(listing.inner.known.borrow().names, names(&["data"]));
    }
}
