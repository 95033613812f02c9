//! Claims without a running alloc, and volumes that are removed with their last claim (F1).

use std::time::Duration;

use berth_contract::key::{VolumeEntry, parse_volume};
use berth_contract::message::claim::{ClaimStatus, Claims};
use berth_contract::message::volume::{VolumeStub, Volumes};
use berth_contract::record::UnreadableRecord;
use berth_domain::volume::State;
use berth_domain::{Timestamp, VolumeKey};

use super::{Plan, UnwantedClaim, describe};

impl Plan {
    /// Adds the closing volumes of a page that have no claim left.
    pub fn add_closing(&mut self, page: &Volumes) {
        self.add_unreadable_volumes(&page.unreadable);
        let has_claims =
            |stub: &VolumeStub| stub.readers + stub.writers + stub.releasing + stub.waiting > 0;
        for stub in page.volumes.iter().filter(|stub| stub.closing && !has_claims(stub)) {
            let volume = VolumeKey::new(stub.namespace.clone(), stub.id.clone());
            if !self.unreadable.contains(&volume) {
                self.closing.push(volume);
            }
        }
    }

    /// Judges the claims of a page that are to end. The volumewatcher has the grace period to
    /// release a claim first.
    pub fn add_claims(&mut self, page: &Claims, now: Timestamp, grace: Duration) {
        self.add_unreadable_volumes(&page.unreadable);
        let ended_before = now.before(grace);
        for claim in page.claims.iter().filter(|claim| claim.since <= ended_before) {
            let volume = VolumeKey::new(claim.namespace.clone(), claim.volume.clone());
            if self.unreadable.contains(&volume) {
                continue;
            }
            match claim.state {
                State::Waiting | State::Publishing | State::Taken => {
                    let (alloc, epoch) = (claim.alloc.clone(), claim.epoch);
                    self.unwanted.push(UnwantedClaim { volume, alloc, epoch, ended_before });
                }
                State::Unpublishing | State::NodeDetached => {
                    self.kept.push(describe_stuck(&volume, claim));
                }
            }
        }
    }

    /// Names each volume with a record that cannot be read. It is left alone.
    fn add_unreadable_volumes(&mut self, records: &[UnreadableRecord]) {
        for record in records {
            let Some(
                VolumeEntry::Spec(volume)
                | VolumeEntry::Claim(volume, _)
                | VolumeEntry::Snapshot(volume, _),
            ) = parse_volume(&record.key)
            else {
                continue;
            };
            if self.unreadable.insert(volume.clone()) {
                self.kept.push(format!("volume {volume}: {record}"));
            }
        }
    }
}

/// Describes a claim whose release takes long, and why it is not released yet.
fn describe_stuck(volume: &VolumeKey, claim: &ClaimStatus) -> String {
    let ClaimStatus { alloc, epoch, state, since, node, tries, failure, attempt, .. } = claim;
    let why = match (failure, attempt) {
        (Some(failure), _) => format!("{tries} tries failed, the last with: {failure}"),
        (None, Some(attempt)) => {
            format!("{} by {} has not been answered yet", attempt.call, attempt.worker)
        }
        (None, None) => "nobody has taken it up yet: is berth-volumewatcher running?".to_owned(),
    };
    let name = describe(volume, alloc, *epoch);
    format!("{name}: {state} on node {node} since {since}; {why}")
}
