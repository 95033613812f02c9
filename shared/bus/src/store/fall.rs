//! Falls of streams on the record of buckets ([`birth`](crate::store::birth)).
//!
//! **Owns** two facts of a bucket's entry there. `fell` says why no process serves this
//! incarnation. `highest` is a revision that it has reached.
//!
//! **Promises**
//!
//! - A process that sees a stream fall puts that on record, and does so again each second while the
//!   record lacks it, because the record may have been restored, too. So a restart forgets no fall.
//! - Other processes learn of it at their start, or when they read the record next.
//! - A process that reads the record, or ends, puts on record how far the bucket was. So a stream
//!   that fell while no process ran is refused by the next process, unless it only lost what was
//!   written after the last read of processes that were all killed.
//! - A new incarnation ends a fall. Otherwise only the process that saw it takes it back, when the
//!   missing message is there after all.
//!
//! **Never** delays a request: all of this is done in the background.

use std::time::Duration;

use tokio::time::timeout;

use crate::cause::Cause;
use crate::connection::handle::Bus;
use crate::incarnation::standing::{Fall, went_back};
use crate::store::birth::{Birth, BirthRecord, change, read};
use crate::store::bucket::{Bucket, is_recorded};

impl Bucket {
    /// Puts on record what this process knows of a fall, and takes over what the record says.
    pub(crate) async fn share_fall(&self) {
        if let Err(error) = self.try_share_fall().await {
            let bucket = self.name();
            tracing::debug!(bucket, %error, "the record of buckets could not be looked at");
        }
    }

    async fn try_share_fall(&self) -> Result<(), Cause> {
        if !is_recorded(self.name()) {
            return Ok(());
        }
        let standing = &self.shape.standing;
        let Some((number, highest, fall)) = standing.find_fall() else { return Ok(()) };
        let Some(record) = self.bus.find_record().await? else { return Ok(()) };
        let known_end = KnownEnd { number, highest, fall };
        if self.bus.makes_streams() {
            change(&record, self.name(), |birth| known_end.revise(birth)).await?;
        }
        let recorded_fall = match read(&record, self.name()).await.map_err(Cause::new)?.birth {
            Birth::Made(made) if made.incarnation == number => made.fell,
            _ => None,
        };
        let is_told =
            recorded_fall.clone().filter(|_| !matches!(known_end.fall, Fall::Seen { .. }));
        standing.hear(number, recorded_fall);
        if let Some(why) = is_told {
            self.lose(&went_back(&why));
        }
        Ok(())
    }
}

impl Bus {
    /// Puts on record that a stream fell, which the caller has just found.
    pub(crate) async fn record_fall(&self, record: &Bucket, bucket: &str, why: &str) {
        let fell = |birth: &Birth| match birth {
            Birth::Made(made) => Some(BirthRecord { fell: Some(why.to_owned()), ..made.clone() }),
            Birth::Never | Birth::Anew => None,
        };
        if let Err(error) = change(record, bucket, fell).await {
            tracing::debug!(bucket, %error, "the fall could not be put on record");
        }
    }

    /// Puts on record how far each bucket was, because the process ends.
    pub(crate) async fn record_ends(&self, within: Duration) {
        let recording = async {
            let Some(record) = self.find_record().await? else { return Ok(()) };
            let standings = self.standings().list();
            for (bucket, standing) in standings.into_iter().filter(|(name, _)| is_recorded(name)) {
                let Some((number, highest, fall)) = standing.find_fall() else { continue };
                let known_end = KnownEnd { number, highest, fall };
                change(&record, &bucket, |birth| known_end.revise(birth)).await?;
            }
            Ok::<_, Cause>(())
        };
        if let Ok(Err(error)) = timeout(within, recording).await {
            tracing::debug!(%error, "the ends of the buckets could not be put on record");
        }
    }
}

/// What a process knows of a bucket's incarnation.
struct KnownEnd {
    number: u64,
    highest: u64,
    fall: Fall,
}

impl KnownEnd {
    /// The entry with the known facts added; none if it has them already, or is of another
    /// incarnation.
    fn revise(&self, birth: &Birth) -> Option<BirthRecord> {
        let entry = match birth {
            Birth::Anew => return None,
            Birth::Made(made) if made.incarnation > self.number => return None,
            Birth::Made(made) if made.incarnation == self.number => made.clone(),
            Birth::Made(made) => BirthRecord { incarnation: self.number, ..made.clone() },
            Birth::Never => BirthRecord { incarnation: self.number, ..BirthRecord::default() },
        };
        let fell = match &self.fall {
            Fall::Seen { why, .. } => entry.fell.clone().or_else(|| Some(why.clone())),
            Fall::Refuted => None,
            Fall::None | Fall::Told(_) => entry.fell.clone(),
        };
        let revised = BirthRecord { highest: entry.highest.max(self.highest), fell, ..entry };
        (*birth != Birth::Made(revised.clone())).then_some(revised)
    }
}
