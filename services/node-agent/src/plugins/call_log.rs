//! The plugin calls that one piece of work made, for its event; and the call that it still waits
//! for, for the status of the node.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::event::PluginCall;
use berth_csi::{CallError, Failure, Rpc};
use berth_domain::Timestamp;

/// Calls that are logged at most. A piece of work makes a handful.
const LOGGED_CALLS_MAX: usize = 16;

/// Calls in the order in which they were answered. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PluginCallLog {
    calls: Arc<Mutex<Vec<PluginCall>>>,
    unanswered: Arc<Mutex<Option<(Rpc, Timestamp)>>>,
}

impl PluginCallLog {
    /// A call is made now.
    pub(crate) fn start_call(&self, rpc: Rpc, at: Timestamp) {
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = Some((rpc, at));
    }

    /// The call that has not been answered yet, and since when.
    pub(crate) fn unanswered_call(&self) -> Option<(Rpc, Timestamp)> {
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call was answered, or given up.
    pub(crate) fn finish_call(
        &self,
        rpc: Rpc,
        at: Timestamp,
        took: Duration,
        error: Option<&CallError>,
    ) {
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() < LOGGED_CALLS_MAX {
            let code = match error.map(|error| &error.failure) {
                None => "OK".to_owned(),
                Some(Failure::Answered { code, .. }) => code.to_string(),
                Some(_) => "NO_ANSWER".to_owned(),
            };
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            calls.push(PluginCall { rpc: rpc.name().to_owned(), at, took_us, code });
        }
    }

    /// The calls that have ended.
    pub(crate) fn list(&self) -> Vec<PluginCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
