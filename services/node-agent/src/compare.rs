//! What this node has mounted, held against what is claimed for it.
//!
//! **Owns** a comparison at the start, once the node counts as there, and now and then after it.
//!
//! **Promises** that a use whose claim is gone for certain is undone when nobody can have been
//! given its path, and told when somebody can. By the claim protocol there is none: a claim goes
//! with its node's answer, or by a proof, after which the node undoes everything (rules 11 and 12).
//! This is for the day on which that was not so, such as after a bus was set up anew.
//!
//! **Never** takes silence, or a list that may be older than the claim, for the absence of one:
//! what is not known is in use. Never unmounts what a workload may have.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::Client;
use berth_contract::key::{VolumeEntry, parse_volume};
use berth_contract::message::claim::{Claims, Status};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::access::AttachmentMode;
use berth_domain::plugin::UnaccountedMount;
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey};
use berth_host::MountTable;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::time::sleep;

use crate::gate::{Gate, Standing};
use crate::journal::{Journal, Use, UseState};
use crate::node::Mounter;

/// How often it is compared.
const EVERY: Duration = Duration::from_secs(60);
/// How soon it is compared again after a claim was found missing.
const CONFIRM: Duration = Duration::from_secs(5);
/// How often it is looked whether the node counts as there.
const OPENS: Duration = Duration::from_millis(500);
/// How long the whole answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Pages that are read in one go; a node has a few hundred claims at most.
const PAGES_MAX: usize = 100;

/// One use of a volume by an alloc.
pub type Key = (VolumeKey, AllocId);

/// Which uses of this node are claimed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claimed {
    /// The list shows all claims that were there at this revision.
    index: u64,
    /// Those that are claimed. Claims without a use here are not kept: there may be any number.
    keys: BTreeSet<Key>,
}

impl Claimed {
    /// Whether the alloc has a claim on the volume.
    pub fn has(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    /// Whether the use's claim was made before the list: if the list lacks it, it is gone.
    pub fn is_younger_than(&self, entry: &Use) -> bool {
        entry.epoch <= self.index
    }

    /// Takes in a page of the list, as far as it is of uses that are here.
    fn take_in(&mut self, page: Claims, here: &BTreeSet<Key>) {
        self.index = self.index.min(page.index);
        let claims = page.claims.into_iter();
        let read = claims.map(|claim| (VolumeKey::new(claim.namespace, claim.volume), claim.alloc));
        // A claim that cannot be read may be for any node, and stands.
        let unread = page.unreadable.iter().filter_map(|record| {
            let VolumeEntry::Claim(volume, alloc) = parse_volume(&record.key)? else { return None };
            Some((volume, alloc))
        });
        self.keys.extend(read.chain(unread).filter(|key| here.contains(key)));
    }
}

/// What is compared, and where.
pub struct Comparing {
    /// Who undoes.
    pub mounter: Mounter,
    /// What is here.
    pub journal: Journal,
    /// Whether the node counts as there.
    pub gate: Gate,
    /// Where it is asked what is claimed.
    pub bus: Bus,
    /// For which node.
    pub node: NodeId,
}

/// Compares until the shutdown.
pub async fn keep(all: Comparing, shutdown: Shutdown) {
    let mut missing = BTreeSet::new();
    loop {
        let mut pause = OPENS;
        if all.gate.standing() == Standing::There {
            let before = std::mem::take(&mut missing);
            missing = look(&all, &before).await;
            let is_new = missing.iter().any(|key| !before.contains(key));
            pause = if is_new { CONFIRM } else { EVERY };
        }
        tokio::select! {
            () = sleep(pause.mul_f64(0.75 + rand::random::<f64>() / 2.0)) => {}
            () = shutdown.requested() => return,
        }
    }
}

/// Compares once, and answers the mounts whose claim the list does not have. `before` is what the
/// last comparison answered.
async fn look(all: &Comparing, before: &BTreeSet<Key>) -> BTreeSet<Key> {
    let Comparing { mounter, journal, bus, node, .. } = all;
    // Read before the claims: what comes meanwhile is not held against an older list.
    let uses = journal.uses();
    if uses.is_empty() {
        mounter.tell_unaccounted(Vec::new());
        return BTreeSet::new();
    }
    let here = uses.iter().map(|(volume, alloc, _)| (volume.clone(), alloc.clone()));
    let here: BTreeSet<Key> = here.collect();
    let claimed = match ask(bus, node, &here, ANSWER).await {
        Ok(Some(claimed)) => claimed,
        unknown => {
            if let Err(problem) = unknown {
                tracing::debug!(%problem, "nobody says what is claimed here");
            }
            // Of those that were missing, what is gone by now is forgotten.
            return before.intersection(&here).cloned().collect();
        }
    };
    let mut missing = BTreeSet::new();
    let mut mounts = Vec::new();
    for (volume, alloc, entry) in unclaimed(uses, &claimed) {
        let is_certain = claimed.is_younger_than(&entry);
        let is_mounted = entry.state == UseState::Published && may_be_mounted(&entry).await;
        if is_mounted {
            let key = (volume, alloc);
            // After an older backup was restored, revisions begin again below those that the
            // journal knows. So a mount that two lists lack is told, too; nothing is undone by
            // that.
            if is_certain || before.contains(&key) {
                mounts.push(unaccounted_mount(&key, &entry));
            }
            missing.insert(key);
        } else if is_certain {
            let context = clock::begin_trace();
            let (trace, epoch) = (context.trace_id(), entry.epoch);
            let said = "begun here, or unmounted by hand, and its claim is gone: undone";
            tracing::warn!(%volume, %alloc, epoch, trace, "{said}");
            if let Err(problem) = mounter.undo(volume, alloc, entry, context).await {
                tracing::warn!(trace, %problem, "it is not undone yet");
            }
        }
    }
    mounter.tell_unaccounted(mounts);
    missing
}

/// The journalled use, as a mount that no claim covers.
pub fn unaccounted_mount((volume, alloc): &Key, entry: &Use) -> UnaccountedMount {
    UnaccountedMount {
        namespace: volume.namespace.clone(),
        volume: volume.volume.clone(),
        alloc: alloc.clone(),
        path: entry.target.to_string_lossy().into_owned(),
    }
}

/// Whether a workload may still have it. A block device need not be in the mount table.
async fn may_be_mounted(entry: &Use) -> bool {
    entry.attachment == AttachmentMode::BlockDevice
        || MountTable::read().await.map_or(true, |table| table.has(&entry.target))
}

/// The uses whose claim is not in the list.
fn unclaimed(
    uses: Vec<(VolumeKey, AllocId, Use)>,
    claimed: &Claimed,
) -> Vec<(VolumeKey, AllocId, Use)> {
    let is_missing = |(volume, alloc, _): &(VolumeKey, AllocId, Use)| {
        !claimed.keys.contains(&(volume.clone(), alloc.clone()))
    };
    uses.into_iter().filter(is_missing).collect()
}

/// Which of these uses are claimed for the node, asked for within that time; `None` when not all
/// claims of the node are known.
pub async fn ask(
    bus: &Bus,
    node: &NodeId,
    here: &BTreeSet<Key>,
    within: Duration,
) -> Result<Option<Claimed>, Problem> {
    let all = Namespace::all();
    let of_node = Status { node: Some(node.clone()), ..Status::default() };
    let mut claimed = Claimed { index: u64::MAX, keys: BTreeSet::new() };
    let call = Call::within(clock::begin_trace(), within);
    let client = Client::new(bus.clone());
    let pages = client.pages::<verb::ClaimStatus>(&all, of_node, &call, PAGES_MAX, |page| {
        claimed.take_in(page, here);
    });
    Ok(pages.await?.then_some(claimed))
}

#[cfg(test)]
mod tests {
    use berth_contract::code::Code;
    use berth_contract::key::claim;
    use berth_contract::message::query::UnreadableRecord;
    use berth_domain::access::{AccessMode, Mode};
    use berth_domain::{PluginId, Timestamp, VolumeId};

    use super::*;

    fn used(alloc: &str, epoch: u64) -> (VolumeKey, AllocId, Use) {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let entry = Use {
            state: UseState::Intent,
            epoch,
            plugin: PluginId::new("dev.berth").unwrap(),
            external_id: "vol-1".to_owned(),
            access: AccessMode::MultiNodeMultiWriter,
            attachment: AttachmentMode::FileSystem,
            mode: Mode::Write,
            staging: None,
            staged: false,
            disk: None,
            left_out: Vec::new(),
            contents: Vec::new(),
            options: None,
            target: "/s/a/target".into(),
            boot_id: "boot".to_owned(),
            since: Timestamp::from_unix_ms(1),
        };
        (volume, AllocId::new(alloc).unwrap(), entry)
    }

    #[test]
    fn only_a_list_that_is_younger_than_the_claim_can_say_that_it_is_gone() {
        let uses = || vec![used("claimed", 5), used("gone", 6), used("new", 8)];
        let (volume, alloc, _) = used("claimed", 5);
        let claimed = Claimed { index: 7, keys: BTreeSet::from([(volume, alloc)]) };
        let certain = |claimed: &Claimed| {
            let missing = unclaimed(uses(), claimed).into_iter();
            missing.filter(|(.., entry)| claimed.is_younger_than(entry)).collect::<Vec<_>>()
        };
        assert_eq!(unclaimed(uses(), &claimed), [used("gone", 6), used("new", 8)]);
        assert_eq!(certain(&claimed), [used("gone", 6)]);
        let older = Claimed { index: 5, ..claimed };
        assert_eq!(certain(&older), []);
        assert_eq!(certain(&Claimed::default()), [], "what is not known is in use");
    }

    #[test]
    fn of_a_long_list_only_the_claims_of_uses_that_are_here_are_kept() {
        let (volume, alloc, _) = used("a", 5);
        let here = BTreeSet::from([(volume.clone(), alloc.clone())]);
        let unreadable = |alloc: AllocId| UnreadableRecord {
            key: claim(&volume, &alloc),
            code: Code::DamagedRecord,
            error: "damaged".to_owned(),
        };
        let mut claimed = Claimed { index: u64::MAX, keys: BTreeSet::new() };
        for page in 0..PAGES_MAX {
            let others = (0..100).map(|at| AllocId::new(format!("other-{page}-{at}")).unwrap());
            let unreadable = others.chain([alloc.clone()]).map(unreadable).collect();
            let next = Some(page.to_string());
            claimed.take_in(Claims { index: 9, claims: Vec::new(), next, unreadable }, &here);
        }
        assert_eq!(claimed, Claimed { index: 9, keys: here });
    }
}
