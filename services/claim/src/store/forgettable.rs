//! Whether the record of an alloc is of use any more; pure.

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::problem::Problem;
use berth_domain::alloc::Alloc;
use berth_domain::{AllocId, Namespace, Timestamp, VolumeKey};
use berth_service::projection::{Nodes, Volumes};

/// Whether the alloc's record would be forgotten, as far as this replica knows.
pub fn is_forgettable(
    volumes: &Volumes,
    nodes: &Nodes,
    (namespace, id): (&Namespace, &AllocId),
    alloc: &Alloc,
    before: Timestamp,
) -> bool {
    check_ended(id, alloc, before)
        .and_then(|()| check_unclaimed(volumes, namespace, id, alloc))
        .and_then(|()| check_unmounted(nodes, namespace, id, alloc))
        .is_ok()
}

/// Refuses unless the alloc ended before that time.
pub fn check_ended(id: &AllocId, alloc: &Alloc, before: Timestamp) -> Result<(), Problem> {
    let message = match (alloc.state.is_terminal(), alloc.since < before) {
        (false, _) => format!("alloc {id} is live"),
        (true, false) => format!("alloc {id} ended at {}, not before {before}", alloc.since),
        (true, true) => return Ok(()),
    };
    Err(Problem::new(Code::AllocKept, message))
}

/// Refuses while the alloc has a claim on a volume that it requested; it cannot have one on another
/// volume. An unreadable record counts as a claim.
pub fn check_unclaimed(
    volumes: &Volumes,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Result<(), Problem> {
    for (volume, _) in alloc.requests() {
        let volume = VolumeKey::new(namespace.clone(), volume);
        let Some(subtree) = volumes.get(&volume) else { continue };
        let unreadable = subtree.unreadable().contains_key(&key::claim(&volume, id));
        if unreadable || subtree.volume.claims.contains_key(id) {
            let message = format!("alloc {id} has a claim on volume {volume}");
            return Err(Problem::new(Code::AllocKept, message).volume(&volume));
        }
    }
    Ok(())
}

/// Refuses while the alloc's node may have a mount of it that no claim covers.
pub fn check_unmounted(
    nodes: &Nodes,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
) -> Result<(), Problem> {
    if !nodes.may_have_mounts(&alloc.node, namespace, id) {
        return Ok(());
    }
    let message = format!("alloc {id} may still be mounted on node {}", alloc.node);
    Err(Problem::new(Code::AllocKept, message).node(&alloc.node))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_bus::Fold as _;
    use berth_domain::alloc::{AllocState, VolumeRequest};
    use berth_domain::{NodeId, VolumeId};

    use super::*;

    fn alloc(state: AllocState, since: u64) -> Alloc {
        Alloc {
            state,
            node: NodeId::new("n1").unwrap(),
            index: None,
            volumes: vec![VolumeRequest::for_volume(VolumeId::new("data").unwrap())],
            since: Timestamp::from_unix_ms(since),
            note: None,
            by: None,
            owner: None,
            meta: BTreeMap::new(),
        }
    }

    #[test]
    fn only_an_alloc_that_ended_before_is_forgotten() {
        let id = AllocId::new("a").unwrap();
        for (state, since, before, over) in [
            (AllocState::Live, 1, 9, false),
            (AllocState::Complete, 8, 9, true),
            (AllocState::Failed, 9, 9, false),
            (AllocState::Stopped, 10, 9, false),
        ] {
            let alloc = alloc(state, since);
            let checked = check_ended(&id, &alloc, Timestamp::from_unix_ms(before));
            assert_eq!(
                checked.is_ok(),
                over,
                "{state} since {since}, before {before}: {checked:?}"
            );
        }
    }

    #[test]
    fn a_claim_keeps_it_also_one_that_cannot_be_read() {
        let id = AllocId::new("a").unwrap();
        let claim = br#"{"state":"node-detached","node":"n1","mode":"read","schema":1,
            "since":"2026-01-01T00:00:00Z","access":"single-node-writer",
            "attachment":"file-system","controller":true}"#;
        for (key, value, free) in [
            ("default.data.claim.b", &claim[..], true),
            ("default.data.claim.a", claim, false),
            ("default.data.claim.a", br#"{"schema":9}"#, false),
            ("default.data.spec", br#"{"schema":9}"#, true),
            ("other.data.claim.a", claim, true),
        ] {
            let mut volumes = Volumes::default();
            volumes.put(key, 1, value);
            let alloc = alloc(AllocState::Complete, 1);
            let checked = check_unclaimed(&volumes, &Namespace::default(), &id, &alloc);
            assert_eq!(checked.is_ok(), free, "{key}: {checked:?}");
        }
    }
}
