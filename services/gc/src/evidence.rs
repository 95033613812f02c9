//! Evidence that an alloc does not want its claim any more.
//!
//! **Promises** that evidence is read at the leader, because a mirror that lags may miss an alloc
//! that was registered a moment ago.

use std::fmt;

use berth_bus::ReadError;
use berth_contract::key;
use berth_contract::record::{self, RecordError};
use berth_domain::alloc::{Alloc, AllocState};
use berth_domain::{AllocId, Namespace, Timestamp};
use thiserror::Error;

use crate::collector::Collector;

/// Why an alloc does not want its claim any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// It has ended.
    Ended {
        /// The state in which it ended.
        state: AllocState,
        /// When it ended.
        at: Timestamp,
    },
    /// There is no such alloc. It was registered before its claim was made, so it is gone.
    Gone,
}

/// Why there is no evidence either way.
#[derive(Debug, Error)]
pub enum EvidenceError {
    /// The leader did not answer.
    #[error("its alloc cannot be looked at now")]
    Read(#[from] ReadError),
    /// A newer version wrote it, or it is damaged.
    #[error("its alloc cannot be read, and may live")]
    Record(#[from] RecordError),
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { state, at } => write!(f, "the alloc ended at {at} ({state})"),
            Self::Gone => f.write_str("the alloc does not exist"),
        }
    }
}

/// The evidence in an alloc's record; none while the alloc lives.
pub fn of_record(value: Option<&[u8]>) -> Result<Option<Evidence>, RecordError> {
    let Some(value) = value else { return Ok(Some(Evidence::Gone)) };
    let alloc = record::read::<Alloc>(value)?.body;
    Ok(of_alloc(Some(&alloc)))
}

/// The evidence of an alloc that was read already.
pub fn of_alloc(alloc: Option<&Alloc>) -> Option<Evidence> {
    let Some(alloc) = alloc else { return Some(Evidence::Gone) };
    let ended = Evidence::Ended { state: alloc.state, at: alloc.since };
    alloc.state.is_terminal().then_some(ended)
}

impl Collector {
    /// Reads the alloc at the leader.
    pub(crate) async fn evidence(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
    ) -> Result<Option<Evidence>, EvidenceError> {
        let entry = self.allocs.get(&key::alloc(namespace, alloc)).await?;
        let value = entry.and_then(|entry| entry.value);
        Ok(of_record(value.as_deref())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_or_an_absence_is_evidence() {
        let at = "2026-01-01T00:00:00.000Z";
        let record = |state: &str, schema: u32| {
            format!(r#"{{"state":"{state}","node":"n1","since":"{at}","schema":{schema}}}"#)
        };
        let read = |text: &str| of_record(Some(text.as_bytes()));
        assert_eq!(of_record(None).unwrap(), Some(Evidence::Gone));
        assert_eq!(read(&record("live", 1)).unwrap(), None);
        for state in ["complete", "failed", "stopped"] {
            let evidence = read(&record(state, 1)).unwrap().unwrap();
            assert_eq!(evidence.to_string(), format!("the alloc ended at {at} ({state})"));
        }
        assert!(read(&record("complete", 3)).is_err());
        assert!(read("{}").is_err());
    }
}
