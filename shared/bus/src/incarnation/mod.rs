//! Incarnations: they number the streams that had a bucket's name.
//!
//! **Owns** the part of a stream's metadata that has the number. It is stored and restored with the
//! stream, in one step with its messages, and services of older versions ignore it.
//!
//! **Promises** that each incarnation of a bucket has a higher number than those before it: it is
//! the time at which it began. A stream that was restored by another tool has the number that it
//! had when it was backed up, so a process that knows the bucket sees that it went back (decision
//! 0049).

pub mod loss;
pub(crate) mod standing;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock::now;

const NUMBER: &str = "berth.incarnation";
const ORIGIN: &str = "berth.origin";
const UNFINISHED: &str = "berth.unfinished";

/// Why a new stream with the bucket's name was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The bucket never existed before, or is older than incarnations.
    #[default]
    First,
    /// It was made empty, after an operator accepted that its records are lost.
    Anew,
    /// `berth bus restore` restored it.
    Restored,
    /// An operator accepted the stream as it was found.
    Accepted,
}

impl Origin {
    const ALL: [Self; 4] = [Self::First, Self::Anew, Self::Restored, Self::Accepted];

    const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Anew => "anew",
            Self::Restored => "restored",
            Self::Accepted => "accepted",
        }
    }

    /// Whether records of the earlier incarnation may be missing.
    pub const fn may_lack_records(self) -> bool {
        !matches!(self, Self::First)
    }
}

/// One incarnation of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Incarnation {
    /// When it began, in milliseconds of Unix time; 0 for a bucket of an older version.
    pub number: u64,
    /// Why it began.
    pub origin: Origin,
}

impl Incarnation {
    /// The next incarnation of a bucket, whose highest known number is this.
    pub(crate) fn next(highest_known: u64, origin: Origin) -> Self {
        Self { number: now().unix_ms().max(highest_known + 1), origin }
    }

    /// Reads the incarnation from the stream's metadata.
    pub(crate) fn read(config: &Map<String, Value>) -> Self {
        let text = |key: &str| config.get("metadata")?.get(key)?.as_str();
        let origin = text(ORIGIN).unwrap_or_default();
        Self {
            number: text(NUMBER).and_then(|number| number.parse().ok()).unwrap_or(0),
            origin: Origin::ALL
                .into_iter()
                .find(|known_origin| known_origin.as_str() == origin)
                .unwrap_or_default(),
        }
    }

    /// Writes the incarnation into the settings of a stream.
    ///
    /// A command that is working on the stream adds the revision that the stream must reach. If the
    /// command is interrupted, the next one finds the revision there.
    pub(crate) fn write(self, config: &mut Map<String, Value>, unfinished: Option<u64>) {
        let metadata = config.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(metadata) = metadata else { return };
        metadata.insert(NUMBER.to_owned(), self.number.to_string().into());
        metadata.insert(ORIGIN.to_owned(), self.origin.as_str().into());
        metadata.remove(UNFINISHED);
        if let Some(above) = unfinished {
            metadata.insert(UNFINISHED.to_owned(), above.to_string().into());
        }
    }
}

/// The revision that the stream must reach, if an operator's command is working on it or was killed
/// in between.
pub(crate) fn unfinished_above(config: &Map<String, Value>) -> Option<u64> {
    let above = config.get("metadata")?.get(UNFINISHED)?.as_str();
    Some(above.and_then(|above| above.parse().ok()).unwrap_or(0))
}
