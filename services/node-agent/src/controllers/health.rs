//! What a controller says of the health of its volumes (CSI 1.13).
//!
//! **Promises** that a question about health costs a list or an answer a bounded time, and never
//! makes it fail: without an answer the health is not known.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_csi::{CallError, health, v1};
use tokio::time::Instant;

use super::execute::ControllerExecutor;

/// The longest time for the answers about health in one request.
const ANSWERS_MAX: Duration = Duration::from_secs(2);
/// The most volumes in a page.
const PAGE_ENTRIES: i32 = 500;
/// The most pages that are read. Only volumes that are not well are listed, as far as CSI says.
const PAGES_MAX: usize = 8;

impl ControllerExecutor {
    /// What is wrong with one volume.
    pub(super) async fn volume_unwell(&self, id: &str, until: Instant) -> Option<String> {
        if !self.plugin.controller().is_some_and(|can| can.get_volume_health) {
            return None;
        }
        let request = v1::ControllerGetVolumeHealthRequest {
            volume_id: id.to_owned(),
            ..v1::ControllerGetVolumeHealthRequest::default()
        };
        let answer = self.plugin.call_within(request, time_for_health(until)).await;
        let answer = answer.inspect_err(|error| self.log_unknown(error)).ok()?;
        health::of_volume(&answer.volume_health?)
    }

    /// What is wrong with which volume, as far as the plugin lists it within the time.
    pub(super) async fn list_unwell(&self, until: Instant) -> BTreeMap<String, String> {
        let mut unwell = BTreeMap::new();
        if !self.plugin.controller().is_some_and(|can| can.list_volume_health) {
            return unwell;
        }
        let until = Instant::now() + time_for_health(until);
        let mut starting_token = String::new();
        for _ in 0..PAGES_MAX {
            let request = v1::ControllerListVolumeHealthRequest {
                max_entries: PAGE_ENTRIES,
                starting_token,
                ..v1::ControllerListVolumeHealthRequest::default()
            };
            let left = until.saturating_duration_since(Instant::now());
            let page = match self.plugin.call_within(request, left).await {
                Ok(page) => page,
                Err(error) => {
                    self.log_unknown(&error);
                    break;
                }
            };
            let listed = page.entries.into_iter();
            unwell.extend(
                listed.filter_map(|one| health::of_volume(&one).map(|said| (one.volume_id, said))),
            );
            starting_token = page.next_token;
            if starting_token.is_empty() {
                break;
            }
        }
        unwell
    }

    fn log_unknown(&self, error: &CallError) {
        tracing::warn!(plugin = %self.plugin.id, %error, "the health of volumes is not known");
    }
}

/// Half of the time that is left is for the rest of the answer.
fn time_for_health(until: Instant) -> Duration {
    ANSWERS_MAX.min(until.saturating_duration_since(Instant::now()) / 2)
}
