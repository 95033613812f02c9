//! The owners of allocs: no live alloc belongs to an owner that is gone. Nobody would stop it.

use std::collections::BTreeMap;

use berth_contract::hint;
use berth_contract::message::alloc::AllocStub;
use berth_domain::{Namespace, OwnerId, Timestamp};

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined};
use crate::span::ago;

/// The most allocs of one owner that are named.
const NAMED_MAX: usize = 5;

pub fn examine(facts: &SystemFacts) -> Examined {
    let unowned = match &facts.unowned {
        Ok(unowned) => unowned,
        Err(problem) => return Examined::not_made("allocs without an owner", problem),
    };
    let mut by_owner: BTreeMap<(&Namespace, &OwnerId), Vec<&AllocStub>> = BTreeMap::new();
    for alloc in &unowned.allocs {
        let Some(owner) = &alloc.owner else { continue };
        by_owner.entry((&alloc.namespace, owner)).or_default().push(alloc);
    }
    let mut findings: Vec<DoctorFinding> = by_owner
        .into_iter()
        .map(|((namespace, owner), allocs)| gone(namespace, owner, &allocs, facts.now))
        .collect();
    if unowned.is_cut {
        let sentence = "there are more allocs without an owner than were read";
        findings.push(
            DoctorFinding::warning("allocs", sentence).next("berth alloc list --unowned -n '*'"),
        );
    }
    let summary = match unowned.allocs.len() {
        0 => "every live alloc that has an owner is held by it".to_owned(),
        count => format!("{count} live without their owner"),
    };
    Examined::new(summary, findings)
}

/// The command that lists these allocs.
const LIST_UNOWNED: &str = "berth alloc list --unowned";

fn gone(
    namespace: &Namespace,
    owner: &OwnerId,
    allocs: &[&AllocStub],
    now: Timestamp,
) -> DoctorFinding {
    let since = allocs.iter().filter_map(|one| one.unowned_since).min().unwrap_or(now);
    let sentence = format!(
        "owner {owner} has held no lease for {}, and nobody stops its {} live allocs",
        ago(since, now),
        allocs.len()
    );
    let named: Vec<String> =
        allocs.iter().take(NAMED_MAX).map(|one| format!("{} on {}", one.id, one.node)).collect();
    let more = allocs.len() - named.len();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let option = hint::namespace_option(namespace);
    DoctorFinding::warning(format!("owner {namespace}/{owner}"), sentence)
        .shown_by(format!("{}{more}", named.join(", ")))
        .next(format!(
            "{LIST_UNOWNED}{option}   # start the owner's program again, or give them \
             to another owner with `berth alloc adopt {} NEW-OWNER{option}`",
            hint::quoted(owner.as_str())
        ))
}
