//! Claims: the state of each, and what it waits for.

use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_domain::volume::{NodeMount, NodeMountState};
use berth_domain::{Namespace, Timestamp};

use super::list::{Column, Listed};
use crate::span::{ago, until};
use crate::table::plain;

impl Listed for ClaimStatus {
    const COLUMNS: &'static [Column<Self>] = &[
        ("VOLUME", |claim, _| claim.volume.to_string()),
        ("ALLOC", |claim, _| claim.alloc.to_string()),
        ("NODE", |claim, _| claim.node.to_string()),
        ("MODE", |claim, _| claim.mode.to_string()),
        ("STATE", |claim, _| claim.state.to_string()),
        ("SINCE", |claim, now| ago(claim.since, now)),
        ("ON NODE", |claim, now| {
            claim.mount.as_ref().map(|mount| on_node(mount, now)).unwrap_or_default()
        }),
        ("TRIES", |claim, _| claim.failed_tries().to_string()),
        ("NEXT TRY", |claim, now| claim.next_try.map(|at| until(at, now)).unwrap_or_default()),
    ];
    const NONE: &'static str = "no claims";

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }

    /// What does not fit a column, such as the whole error of the last try.
    fn details(&self) -> Option<String> {
        let place = self.position.map(|position| match position {
            0 => "first".to_owned(),
            ahead => format!("{ahead} ahead"),
        });
        let details = [
            ("released because", self.reason.clone()),
            ("in line", place),
            ("waits for", self.waits_for.clone()),
            ("last error", self.last_error().map(str::to_owned)),
            ("left its node by proof", self.proof.as_ref().map(ToString::to_string)),
            ("what to do", self.hint.clone().or_else(|| start_watcher(self))),
        ];
        let lines: Vec<String> = details
            .into_iter()
            .filter_map(|(label, text)| Some(format!("    {label}: {}\n", plain(text.as_deref()?))))
            .collect();
        let who = format!("\n  {} on {}\n", self.alloc, self.volume);
        (!lines.is_empty()).then(|| who + &lines.concat())
    }
}

/// `mounted`, `mounted, not well`, `hung for 13s`
fn on_node(mount: &NodeMount, now: Timestamp) -> String {
    match mount.state {
        NodeMountState::Mounted if mount.error.is_some() => "mounted, not well".to_owned(),
        NodeMountState::Mounted => mount.state.to_string(),
        state => format!("{state} for {}", ago(mount.since, now)),
    }
}

/// The hint to start a volumewatcher, for a later call of a release that none begins. For the first
/// call, and for a faulty node or plugin, the claim service gives the hint.
fn start_watcher(claim: &ClaimStatus) -> Option<String> {
    let hint = "start a volumewatcher if `nats micro ping berth-volumewatcher` finds none";
    (claim.wait == Some(ClaimWait::Watcher)).then(|| hint.to_owned())
}
