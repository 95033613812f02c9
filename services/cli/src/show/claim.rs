//! Claims: the state of each, and what it waits for.

use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_domain::volume::{NodeMount, NodeMountState};
use berth_domain::{Namespace, Timestamp};

use super::list::{Column, Listed};
use crate::span::{ago, until};
use crate::table::plain;

impl Listed for ClaimStatus {
    const COLUMNS: &'static [Column<Self>] = &[
        ("VOLUME", |it, _| it.volume.to_string()),
        ("ALLOC", |it, _| it.alloc.to_string()),
        ("NODE", |it, _| it.node.to_string()),
        ("MODE", |it, _| it.mode.to_string()),
        ("STATE", |it, _| it.state.to_string()),
        ("SINCE", |it, now| ago(it.since, now)),
        ("ON NODE", |it, now| it.mount.as_ref().map(|it| on_node(it, now)).unwrap_or_default()),
        ("TRIES", |it, _| it.failed_tries().to_string()),
        ("NEXT TRY", |it, now| it.next_try.map(|at| until(at, now)).unwrap_or_default()),
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
        let all = [
            ("released because", self.reason.clone()),
            ("in line", place),
            ("waits for", self.waits_for.clone()),
            ("last error", self.last_error().map(str::to_owned)),
            ("left its node by proof", self.proof.as_ref().map(ToString::to_string)),
            ("what to do", self.hint.clone().or_else(|| start_watcher(self))),
        ];
        let lines: Vec<String> = all
            .into_iter()
            .filter_map(|(what, text)| Some(format!("    {what}: {}\n", plain(text.as_deref()?))))
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

/// The hint for a later call of a release that no volumewatcher begins. The claim service gives
/// hints for the first call, and for a node or a plugin at fault.
fn start_watcher(claim: &ClaimStatus) -> Option<String> {
    let what = "start a volumewatcher if `nats micro ping berth-volumewatcher` finds none";
    (claim.wait == Some(ClaimWait::Watcher)).then(|| what.to_owned())
}
