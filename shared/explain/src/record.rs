//! Records that were not read, or are unreadable.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY};
use berth_contract::{bucket, hint, key};

use crate::cause::{Actor, Cause};
use crate::facts::SourceAnswer;
use crate::finding::{Diagnosis, Finding};

/// The state of a thing whose record is unknown.
pub const NOT_KNOWN: &str = "not known";

/// The record in a source's answer; otherwise the diagnosis of the failure. None if there is no
/// such thing, or if `unanswered` finds nothing about a source that did not answer.
pub fn read_record<'a, T>(
    answer: &'a SourceAnswer<T>,
    subject: &str,
    unanswered: impl FnOnce(&Problem) -> Option<Finding>,
) -> Result<&'a T, Option<Diagnosis>> {
    answer.as_ref().map_err(|problem| {
        let finding = match problem {
            problem if is_unreadable(problem) => Some(unreadable_record(problem)),
            problem if is_none(problem) => None,
            problem => unanswered(problem),
        };
        finding.map(|finding| Diagnosis::new(subject, NOT_KNOWN, finding))
    })
}

/// Whether the answer says that there is no such thing.
pub fn is_none(problem: &Problem) -> bool {
    use Code as C;
    matches!(
        problem.code,
        C::NoSuchVolume | C::NoSuchAlloc | C::NoSuchNode | C::NoSuchPlugin | C::NoSuchSnapshot
    )
}

/// Whether the answer says that a record is unreadable.
pub fn is_unreadable(problem: &Problem) -> bool {
    matches!(problem.code, Code::NewerRecord | Code::DamagedRecord)
}

/// The finding for an unreadable record.
pub fn unreadable_record(problem: &Problem) -> Finding {
    let key = problem.record.as_deref().unwrap_or_default();
    let (bucket, reader) = if key::parse_volume(key).is_some() {
        (&bucket::VOLUMES, CLAIM.name)
    } else if key::parse_alloc(key).is_some() {
        (&bucket::ALLOCS, CLAIM.name)
    } else if key::parse_instance(key).is_some() || key::parse_job(key).is_some() {
        (&bucket::PLUGINS, PLUGIN_REGISTRY.name)
    } else {
        (&bucket::NODES, PLUGIN_REGISTRY.name)
    };
    let (sentence, upgrade) = if problem.code == Code::NewerRecord {
        let upgrade = format!(
            "nats micro ls   # the version of each {reader}: upgrade the older ones, \
             docs/install.md, Upgrade"
        );
        let older = format!(
            "{reader} is older than the record, which a newer version wrote: nothing goes on with \
             it before {reader} is upgraded on every host"
        );
        (older, Some(upgrade))
    } else {
        let damaged = "a record is damaged, and until it can be read nothing is decided about it";
        (damaged.to_owned(), None)
    };
    // Services of the last release name the record only in their message.
    let key = problem.record.as_ref();
    let command = key.map(|key| format!("nats kv get {} {} --raw", bucket.name, hint::quoted(key)));
    Finding::new(Cause::RecordUnreadable, Actor::You, sentence)
        .shown_by([problem.message.clone()])
        .next_if_known(upgrade)
        .next_if_known(command)
        .next(format!("berth explain {}", problem.code))
}
