//! What the caller can do about a refusal of the claim service: a row for each refusal whose facts
//! are more useful than its code.

use berth_contract::hint::{namespace_option, quoted, unmount, volume_argument};
use berth_domain::VolumeKey;
use berth_domain::volume::{MountDoubt, Refusal, State};

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
        Refusal::ClaimsLive { holders } => {
            let first = &holders.named.first()?.alloc;
            format!(
                "stop the allocs named: {}; or use `--force` once none of them runs",
                stop(first)
            )
        }
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

/// The command that ends the mount. It names the volume as it was named at the mount.
pub fn next_of_mount(doubt: &MountDoubt) -> Option<String> {
    Some(unmount(&doubt.mount.as_ref()?.volume_key(), &doubt.node))
}

/// The next step if claims prevent a deletion at the storage. A deletion cannot be forced, because
/// the workloads would lose their data.
pub fn next_of_deletion(volume: &VolumeKey, refusal: &Refusal) -> Option<String> {
    let Refusal::ClaimsLive { holders } = refusal else { return None };
    let first = holders.named.first()?;
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
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    #[test]
    fn a_created_volume_keeps_its_fields_whether_or_not_it_has_holders() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let next = next_of_refusal(&volume, &Refusal::Provisioned { fields: vec!["context"] });
        let next = next.unwrap();
        assert!(next.contains("`berth volume status data --json`"), "{next}");
        assert!(!next.contains("holders"), "{next}");
    }
}
