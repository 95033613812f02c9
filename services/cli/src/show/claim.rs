//! Claims: the state of each, and what it waits for.

use berth_contract::message::claim::{ClaimStatus, ClaimWait};
use berth_domain::Timestamp;
use berth_domain::volume::{NodeMount, NodeMountState};

use super::within;
use crate::span::{ago, until};
use crate::table::{Table, plain};

/// The columns of a list of claims.
pub const CLAIM_COLUMNS: [&str; 9] =
    ["VOLUME", "ALLOC", "NODE", "MODE", "STATE", "SINCE", "ON NODE", "TRIES", "NEXT TRY"];

/// Claims, one line each; below the table, the whole error of each claim's last try.
pub fn claims(claims: &[ClaimStatus], now: Timestamp) -> String {
    sorted_claims(claims, None, now)
}

/// The same, sorted by this column.
pub fn sorted_claims(claims: &[ClaimStatus], sort: Option<&str>, now: Timestamp) -> String {
    if claims.is_empty() {
        return "no claims\n".to_owned();
    }
    let mut table = Table::new(CLAIM_COLUMNS);
    let name = within(claims.iter().map(|claim| &claim.namespace));
    for claim in claims {
        table.row([
            name(&claim.namespace, &claim.volume),
            claim.alloc.to_string(),
            claim.node.to_string(),
            claim.mode.to_string(),
            claim.state.to_string(),
            ago(claim.since, now),
            claim.mount.as_ref().map(|mount| on_node(mount, now)).unwrap_or_default(),
            claim.failed_tries().to_string(),
            claim.next_try.map(|at| until(at, now)).unwrap_or_default(),
        ]);
    }
    table.sort(sort);
    let notes: Vec<String> = claims.iter().filter_map(notes).collect();
    format!("{table}{}", notes.concat())
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

/// Details that do not fit a column.
fn notes(claim: &ClaimStatus) -> Option<String> {
    let place = claim.position.map(|position| match position {
        0 => "first".to_owned(),
        ahead => format!("{ahead} ahead"),
    });
    let told = [
        ("released because", claim.reason.clone()),
        ("in line", place),
        ("waits for", claim.waits_for.clone()),
        ("last error", claim.last_error().map(str::to_owned)),
        ("left its node by proof", claim.proof.as_ref().map(ToString::to_string)),
        ("what to do", claim.hint.clone().or_else(|| start_watcher(claim))),
    ];
    let lines: Vec<String> = told
        .into_iter()
        .filter_map(|(what, text)| Some(format!("    {what}: {}\n", plain(text.as_deref()?))))
        .collect();
    let who = format!("\n  {} on {}\n", claim.alloc, claim.volume);
    (!lines.is_empty()).then(|| who + &lines.concat())
}
