//! The uses on this node that the claim service has claims for.
//!
//! **Never** takes silence, or an incomplete list, for the absence of a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::Client;
use berth_contract::key::{VolumeEntry, parse_volume};
use berth_contract::message::claim::{ClaimStatus, Claims, ListClaims};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::volume::{Handle, State};
use berth_domain::{Namespace, NodeId, VolumeKey};
use berth_service::clock;

use crate::journal::{JournalledUse, UseKey};

/// Largest number of pages that are read for one list. A node has a few hundred claims.
const PAGES_MAX: usize = 100;

/// The uses on this node that a claim covers, by one list of the node's claims.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimedUses {
    /// The list shows every claim that existed at this revision of the claim bucket.
    index: u64,
    /// The incarnation that the list is of; none if its pages are of several.
    incarnation: Option<u64>,
    /// Each with the volume that was granted, if the claim says it. Claims without a use on this
    /// node are left out: their number has no bound.
    claims: BTreeMap<UseKey, Option<Handle>>,
    /// Those of them that are being released, and wait for this node.
    leaving: BTreeSet<UseKey>,
}

impl ClaimedUses {
    /// Whether a claim covers the use. The claim may be of another volume, which has the name now.
    pub fn covers(&self, key: &UseKey, entry: &JournalledUse) -> bool {
        let is_same = |of: &Handle| entry.is_of(&of.plugin, &of.external_id);
        self.claims.get(key).is_some_and(|of| of.as_ref().is_none_or(is_same))
    }

    /// Whether the claim that covers the use waits for this node to unmount it.
    pub fn waits_for_unmount(&self, key: &UseKey) -> bool {
        self.leaving.contains(key)
    }

    /// Whether the list was read after the use's claim was made. If such a list lacks the claim,
    /// the claim is gone.
    pub fn is_younger_than(&self, entry: &JournalledUse) -> bool {
        entry.epoch <= self.index
    }

    /// The incarnation of the claim bucket that the list shows.
    pub fn incarnation(&self) -> Option<u64> {
        self.incarnation
    }

    /// Adds the claims of a page that cover uses in `here`.
    fn add_page(&mut self, page: Claims, here: &BTreeSet<UseKey>) {
        let is_first = self.index == u64::MAX;
        self.index = self.index.min(page.index);
        let of_page = Some(page.incarnation);
        self.incarnation = of_page.filter(|_| is_first || self.incarnation == of_page);
        let leaves = |claim: &&ClaimStatus| claim.state == State::Unpublishing;
        let leaving = page.claims.iter().filter(leaves);
        let leaving = leaving.map(|claim| {
            let volume = VolumeKey::new(claim.namespace.clone(), claim.volume.clone());
            (volume, claim.alloc.clone())
        });
        self.leaving.extend(leaving.filter(|key| here.contains(key)));
        let read = page.claims.into_iter().map(|claim| {
            let handle = claim.plugin.zip(claim.external_id);
            let handle = handle.map(|(plugin, external_id)| Handle { plugin, external_id });
            ((VolumeKey::new(claim.namespace, claim.volume), claim.alloc), handle)
        });
        // An unreadable claim may be for this node, so it counts as a claim.
        let unread = page.unreadable.iter().filter_map(|record| {
            let VolumeEntry::Claim(volume, alloc) = parse_volume(&record.key)? else { return None };
            Some(((volume, alloc), None))
        });
        self.claims.extend(read.chain(unread).filter(|(key, _)| here.contains(key)));
    }
}

/// Asks the claim service which of the uses in `here` are claimed for the node. Returns `None` when
/// the node has more claims than [`PAGES_MAX`] pages.
pub async fn read_claimed_uses(
    bus: &Bus,
    node: &NodeId,
    here: &BTreeSet<UseKey>,
    within: Duration,
) -> Result<Option<ClaimedUses>, Problem> {
    let all = Namespace::wildcard();
    let of_node = ListClaims { node: Some(node.clone()), ..ListClaims::default() };
    let mut claimed = ClaimedUses { index: u64::MAX, ..ClaimedUses::default() };
    let call = Call::within(clock::begin_unrecorded_trace(), within);
    let client = Client::new(bus.clone());
    let pages = client.pages::<verb::ClaimStatus>(&all, of_node, &call, PAGES_MAX, |page| {
        claimed.add_page(page, here);
    });
    Ok(pages.await?.then_some(claimed))
}

#[cfg(test)]
mod tests {
    use berth_contract::code::Code;
    use berth_contract::key::claim;
    use berth_contract::message::query::UnreadableRecord;
    use berth_domain::access::{AccessMode, AttachmentMode, Mode};
    use berth_domain::volume::MountSummary;
    use berth_domain::{AllocId, PluginId, Timestamp, VolumeId};

    use super::*;
    use crate::journal::UseState;

    fn journalled(alloc: &str, epoch: u64) -> (UseKey, JournalledUse) {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let entry = JournalledUse {
            expansion: None,
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
            by: None,
            options: None,
            mount: MountSummary::default(),
            target: "/s/a/target".into(),
            boot_id: "boot".to_owned(),
            since: Timestamp::from_unix_ms(1),
        };
        ((volume, AllocId::new(alloc).unwrap()), entry)
    }

    #[test]
    fn only_a_list_younger_than_the_claim_can_say_that_it_is_gone() {
        let (key, _) = journalled("claimed", 5);
        let claims = BTreeMap::from([(key.clone(), None)]);
        let claimed = ClaimedUses { index: 7, claims, ..ClaimedUses::default() };
        let is_gone = |claimed: &ClaimedUses, (key, entry): (UseKey, JournalledUse)| {
            !claimed.covers(&key, &entry) && claimed.is_younger_than(&entry)
        };
        assert!(!is_gone(&claimed, journalled("claimed", 5)));
        assert!(is_gone(&claimed, journalled("gone", 6)));
        assert!(!is_gone(&claimed, journalled("new", 8)));
        let older = ClaimedUses { index: 5, ..claimed };
        assert!(!is_gone(&older, journalled("gone", 6)));
        assert!(!is_gone(&ClaimedUses::default(), journalled("gone", 6)));
    }

    #[test]
    fn a_claim_covers_no_use_of_another_volume_that_had_the_name() {
        let (key, entry) = journalled("a", 5);
        let of = |external_id: &str| {
            let plugin = entry.plugin.clone();
            Some(Handle { plugin, external_id: external_id.to_owned() })
        };
        for (handle, expected) in [(None, true), (of("vol-1"), true), (of("vol-2"), false)] {
            let claims = BTreeMap::from([(key.clone(), handle)]);
            let claimed = ClaimedUses { index: 7, claims, ..ClaimedUses::default() };
            assert_eq!(claimed.covers(&key, &entry), expected, "{claimed:?}");
        }
    }

    #[test]
    fn a_long_list_keeps_only_claims_of_uses_on_this_node() {
        let ((volume, alloc), _) = journalled("a", 5);
        let here = BTreeSet::from([(volume.clone(), alloc.clone())]);
        let unreadable = |alloc: AllocId| UnreadableRecord {
            key: claim(&volume, &alloc),
            code: Code::DamagedRecord,
            error: "damaged".to_owned(),
        };
        let mut claimed = ClaimedUses { index: u64::MAX, ..ClaimedUses::default() };
        for page in 0..PAGES_MAX {
            let others = (0..100).map(|at| AllocId::new(format!("other-{page}-{at}")).unwrap());
            let next = Some(page.to_string());
            let unreadable = others.chain([alloc.clone()]).map(unreadable).collect();
            let page = Claims { index: 9, incarnation: 3, claims: Vec::new(), next, unreadable };
            claimed.add_page(page, &here);
        }
        let (claims, leaving) =
            (here.into_iter().map(|key| (key, None)).collect(), BTreeSet::new());
        assert_eq!(claimed, ClaimedUses { index: 9, incarnation: Some(3), claims, leaving });
        let other = Claims {
            index: 9,
            incarnation: 4,
            claims: Vec::new(),
            next: None,
            unreadable: Vec::new(),
        };
        claimed.add_page(other, &BTreeSet::new());
        assert_eq!(claimed.incarnation(), None, "a list of two incarnations shows neither");
    }
}
