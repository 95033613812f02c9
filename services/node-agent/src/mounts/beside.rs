//! The other claims on a volume at this node, as the claim service tells them.
//!
//! **Promises** a list that covers what the whole list does. Where a message has only its digest,
//! the claim service is asked for the list, unless the node's uses have the same digest, or there
//! are none beside the own one.
//!
//! **Never** takes a list that is incomplete, or an answer that did not come, for the absence of a
//! claim.

use std::collections::BTreeSet;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::key::{VolumeEntry, parse_volume};
use berth_contract::message::call::ClaimCall;
use berth_contract::message::claim::{ClaimStatus, Claims, Grant, ListClaims};
use berth_contract::message::digest::AllocsDigest;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::limits::CLAIMS_MAX;
use berth_domain::{AllocId, VolumeKey};
use berth_host::MountTable;

use super::claims::{ClaimService, time_left};
use crate::caller::RequestContext;
use crate::executor::PluginVolume;
use crate::host::paths::VolumePaths;
use crate::journal::VolumeUses;
use crate::mounts::plan::VolumeOnNode;

/// Largest number of pages that are read for one list. A page has 50 claims at least.
const PAGES_MAX: usize = CLAIMS_MAX / 50;

/// The claims as a message tells them.
#[derive(Debug)]
pub(super) struct ToldClaims {
    allocs: ToldAllocs,
    /// The message may lack claims of later epochs.
    until_epoch: u64,
}

#[derive(Debug)]
enum ToldAllocs {
    Listed(BTreeSet<AllocId>),
    Digest(AllocsDigest),
}

/// All of them that may have a use here.
#[derive(Debug)]
pub(super) struct ClaimsBeside {
    pub(super) allocs: BTreeSet<AllocId>,
    /// The list may lack claims of later epochs.
    pub(super) until_epoch: u64,
}

impl ToldClaims {
    /// What a detach says.
    pub(super) fn from_call(call: &ClaimCall) -> Option<Self> {
        let details = &call.details;
        let allocs =
            ToldAllocs::new(details.claims_beside.as_ref(), details.claims_beside_digest.as_ref())?;
        Some(Self { allocs, until_epoch: call.revision })
    }

    /// What a grant says. `None` if any number of allocs may write, because then another mount is
    /// no danger.
    pub(super) fn from_grant(grant: &Grant) -> Option<Self> {
        let (listed, digest) = (grant.claims_beside.as_ref(), grant.claims_beside_digest.as_ref());
        let is_exclusive = !grant.access.is_for_any_writers();
        let allocs = ToldAllocs::new(listed, digest).filter(|_| is_exclusive)?;
        Some(Self { allocs, until_epoch: grant.epoch })
    }
}

impl ToldAllocs {
    fn new(listed: Option<&BTreeSet<AllocId>>, digest: Option<&AllocsDigest>) -> Option<Self> {
        let listed = listed.map(|allocs| Self::Listed(allocs.clone()));
        listed.or_else(|| Some(Self::Digest(digest?.clone())))
    }
}

/// What is about to be mounted, or taken down.
#[derive(Debug, Clone, Copy)]
pub(super) struct AccountedUse<'a> {
    /// The name of the volume.
    pub(super) volume: &'a VolumeKey,
    /// The volume itself.
    pub(super) handle: &'a PluginVolume,
    pub(super) alloc: &'a AllocId,
}

impl ClaimService {
    /// The list that `told` is of.
    pub(super) async fn list_beside(
        &self,
        told: &ToldClaims,
        own: AccountedUse<'_>,
        (journal, place): (&VolumeUses, &VolumePaths),
        context: RequestContext,
    ) -> Result<ClaimsBeside, Problem> {
        let until_epoch = told.until_epoch;
        let digest = match &told.allocs {
            ToldAllocs::Listed(allocs) => {
                return Ok(ClaimsBeside { allocs: allocs.clone(), until_epoch });
            }
            ToldAllocs::Digest(digest) => digest,
        };
        let AccountedUse { handle, alloc, .. } = own;
        let uses = journal.uses.iter().filter(|(other, entry)| {
            *other != alloc && entry.is_of(&handle.plugin, &handle.external_id)
        });
        let uses = uses.map(|(other, _)| other);
        if AllocsDigest::from_allocs(uses.clone()) == *digest {
            return Ok(ClaimsBeside { allocs: uses.cloned().collect(), until_epoch });
        }
        // Most claims are in line, and have no mount. A list only covers uses: without any beside
        // the own one, an empty list is as good.
        let is_alone = MountTable::read().await.is_ok_and(|mounts| {
            !VolumeOnNode { journal, mounts: &mounts, place }.has_other_uses(alloc)
        });
        if is_alone {
            return Ok(ClaimsBeside { allocs: BTreeSet::new(), until_epoch });
        }
        // It is not older than the message: the service reads what is stored when it is asked.
        let allocs = self.read_beside(own, context).await?;
        Ok(ClaimsBeside { allocs, until_epoch })
    }

    async fn read_beside(
        &self,
        own: AccountedUse<'_>,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<BTreeSet<AllocId>, Problem> {
        let volume = own.volume;
        let here = ListClaims {
            volume: Some(volume.volume.clone()),
            node: Some(self.node.clone()),
            ..ListClaims::default()
        };
        let call = Call::within(trace, time_left(deadline));
        let mut allocs = BTreeSet::new();
        let client = self.client();
        let pages =
            client.pages::<verb::ClaimStatus>(&volume.namespace, here, &call, PAGES_MAX, |page| {
                add_page(&mut allocs, page, own);
            });
        // Seldom needed, and large.
        if !Box::pin(pages).await? {
            let message = format!("node {} has too many claims on {volume} to list", self.node);
            return Err(Problem::new(Code::TooManyClaims, message).retryable());
        }
        allocs.remove(own.alloc);
        Ok(allocs)
    }
}

/// Adds the claims of a page that may be on the same volume as the own claim.
fn add_page(allocs: &mut BTreeSet<AllocId>, page: Claims, own: AccountedUse<'_>) {
    let may_be_same = |claim: &ClaimStatus| {
        let of_plugin = claim.plugin.as_ref().is_none_or(|plugin| *plugin == own.handle.plugin);
        let is_named = |id: &String| *id == own.handle.external_id;
        of_plugin && claim.external_id.as_ref().is_none_or(is_named)
    };
    let read = page.claims.into_iter().filter(may_be_same).map(|claim| claim.alloc);
    // An unreadable claim may be for this node, so it counts as a claim.
    let unread = page.unreadable.iter().filter_map(|record| match parse_volume(&record.key)? {
        VolumeEntry::Claim(volume, alloc) => (volume == *own.volume).then_some(alloc),
        _ => None,
    });
    allocs.extend(read.chain(unread));
}
