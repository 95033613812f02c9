//! Rights that the identity of a running process lacks, in words.
//!
//! **Owns** the sentence and the next command that `berth why`, `berth doctor` and every command
//! without an answer show.

use berth_contract::message::access::AccessReport;
use berth_contract::permissions::MissingRight;

/// What the process may not do, and why.
pub fn describe(service: &str, access: &AccessReport, right: &MissingRight) -> String {
    let (identity, step) = (&access.identity, right.step.unwrap_or("this"));
    let may_not = if right.is_to_send() { "send" } else { "receive" };
    format!(
        "{service} may not {may_not} {step}: its identity {identity} lacks rights that its \
         version needs"
    )
}

/// The command that makes an identity with all rights.
pub fn next(access: &AccessReport) -> String {
    format!(
        "{}   # where the identities are kept; then give the file to its hosts, and restart: \
         docs/install.md, New identities",
        access.remedy
    )
}
