//! Calls of plugins, one after the other.

use berth_domain::Namespace;

use crate::message::work;

verbs! {
    /// For volumewatchers: record what came of a call, learn the next call
    WorkCheckpoint {
        step: "work.checkpoint", endpoint: "work-checkpoint",
        subject: "berth.v1.work.checkpoint.<ns>", to: Namespace,
        service: CLAIM, senders: [VOLUMEWATCHER], effect: Change,
        request: work::WorkCheckpoint, reply: work::WorkCheckpointed,
        errors: [NoSuchVolume, NoSuchClaim, NoSuchSnapshot, StaleAttempt, NotDue],
    }
}
