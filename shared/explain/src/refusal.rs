//! What the caller can do about a refusal of the claim service: a row for each refusal whose facts
//! are more useful than its code.

use berth_contract::hint::{namespace_option, quoted, unmount, volume_argument};
use berth_domain::VolumeKey;
use berth_domain::volume::{Holder, Holders, MountDoubt, Refusal, State};

use crate::next::alloc_stop;

/// The next step; none if the advice of the code is enough.
pub fn next_of_refusal(key: &VolumeKey, refusal: &Refusal) -> Option<String> {
    let volume = volume_argument(key);
    let stop = |alloc| format!("`{}`", alloc_stop(alloc, &key.namespace));
    Some(match refusal {
        Refusal::Held { holders, .. } => {
            let first = holders.named.iter().find(|holder| holder.state == State::Taken)?;
            format!(
                "end a holder's workload, then stop its alloc (which ends no process): {}; or ask \
                 with `--wait`",
                stop(&first.alloc)
            )
        }
        Refusal::ClaimsLive { holders } => match to_stop(holders) {
            Some(first) => format!(
                "stop the allocs named: {}; or use `--force`, which closes the volume until they \
                 have ended",
                stop(&first.alloc)
            ),
            None => await_release(&volume),
        },
        Refusal::MayBeMounted { mounts } => mounts.iter().find_map(next_of_mount)?,
        // No alloc has to be stopped.
        Refusal::Provisioned { .. } => format!(
            "repeat these fields as `berth volume status {volume} --json` shows them: the rest of \
             the document can change"
        ),
        Refusal::OtherVolumesClaims { holders } => {
            let first = &holders.named.first()?.alloc;
            format!(
                "end the workloads of the claims, then stop their allocs: {}; \
                 `berth claim status --volume {volume}` shows them and their volume; or register \
                 that volume again as it was",
                stop(first)
            )
        }
        Refusal::StillRunning { allocs } => {
            format!("end what runs, then say so: {}", stop(allocs.first()?))
        }
        Refusal::Releasing { .. } => {
            format!("wait for it: `berth claim status --volume {volume}` shows the step")
        }
        Refusal::SnapshotExists { .. } => {
            format!("take another id, or see what has this one: `berth snapshot list {volume}`")
        }
        _ => return None,
    })
}

/// The first claim that its alloc's end releases. The alloc of one that is being released has
/// ended.
fn to_stop(holders: &Holders) -> Option<&Holder> {
    let is_leaving = |one: &&Holder| matches!(one.state, State::Unpublishing | State::NodeDetached);
    holders.named.iter().find(|one| !is_leaving(one))
}

fn await_release(volume: &str) -> String {
    format!(
        "wait until the claims named are released: `berth claim status --volume {volume}` shows \
         what each waits for"
    )
}

/// How the mount is ended. It is named as the volume was when it was mounted.
pub fn next_of_mount(doubt: &MountDoubt) -> Option<String> {
    Some(unmount(&doubt.mount.as_ref()?.volume_key(), &doubt.node))
}

/// The next step if claims prevent a deletion at the storage. A deletion cannot be forced, because
/// the workloads would lose their data.
pub fn next_of_deletion(volume: &VolumeKey, refusal: &Refusal) -> Option<String> {
    let Refusal::ClaimsLive { holders } = refusal else { return None };
    let Some(first) = to_stop(holders) else {
        return Some(format!("{}; then delete it", await_release(&volume_argument(volume))));
    };
    let namespace = namespace_option(&volume.namespace);
    Some(format!(
        "end the workloads of the allocs named and stop them: `{}`; once they have ended, \
         `berth volume detach {} {}{namespace}` releases what is left on a node; then delete it",
        alloc_stop(&first.alloc, &volume.namespace),
        quoted(volume.volume.as_str()),
        quoted(first.node.as_str())
    ))
}

#[cfg(test)]
mod tests {
    use berth_domain::access::Mode;
    use berth_domain::{Namespace, Timestamp, VolumeId};

    use super::*;

    #[test]
    fn a_created_volume_keeps_its_fields_whether_or_not_it_has_holders() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let next = next_of_refusal(&volume, &Refusal::Provisioned { fields: vec!["context"] });
        let next = next.unwrap();
        assert!(next.contains("`berth volume status data --json`"), "{next}");
        assert!(!next.contains("holders"), "{next}");
    }

    /// The alloc of a claim that is being released has ended: its stop is no help.
    #[test]
    fn claims_that_are_being_released_are_waited_for() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let holder = |alloc: &str, state| Holder {
            alloc: alloc.parse().unwrap(),
            node: "n1".parse().unwrap(),
            mode: Mode::Write,
            state,
            since: Timestamp::from_unix_ms(0),
        };
        let next = |named: Vec<Holder>| {
            let refusal = Refusal::ClaimsLive { holders: Holders { named, more: 0 } };
            [next_of_refusal(&volume, &refusal), next_of_deletion(&volume, &refusal)]
        };
        let leaving = holder("a", State::Unpublishing);
        for next in next(vec![leaving.clone()]).map(Option::unwrap) {
            assert!(next.contains("`berth claim status --volume data`"), "{next}");
            assert!(!next.contains("alloc stop"), "{next}");
        }
        for next in next(vec![leaving, holder("b", State::Taken)]).map(Option::unwrap) {
            assert!(next.contains("`berth alloc stop b`"), "{next}");
        }
    }
}
