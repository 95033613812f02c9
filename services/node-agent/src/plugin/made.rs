//! The calls that one piece of work made of a plugin, for the event that tells it; and the one that
//! it waits for, for whoever asks meanwhile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::event::PluginCall;
use berth_csi::{CallError, Failure, Rpc};
use berth_domain::Timestamp;

/// More are not told: a piece of work is a handful of calls.
const NOTED_MAX: usize = 16;

/// Calls in the order in which they were answered. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Made {
    calls: Arc<Mutex<Vec<PluginCall>>>,
    waits_for: Arc<Mutex<Option<(Rpc, Timestamp)>>>,
}

impl Made {
    /// A call is made now.
    pub(super) fn begin(&self, rpc: Rpc, at: Timestamp) {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = Some((rpc, at));
    }

    /// The call that has not been answered yet, and since when.
    pub(super) fn waits_for(&self) -> Option<(Rpc, Timestamp)> {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, rpc: Rpc, at: Timestamp, took: Duration, error: Option<&CallError>) {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < NOTED_MAX {
            let code = match error.map(|error| &error.failure) {
                None => "OK".to_owned(),
                Some(Failure::Answered { code, .. }) => code.to_string(),
                Some(_) => "NO_ANSWER".to_owned(),
            };
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            calls.push(PluginCall { rpc: rpc.name().to_owned(), at, took_us, code });
        }
    }

    pub(super) fn list(&self) -> Vec<PluginCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
