//! Puts calls and grants together from the records; pure.

use std::collections::BTreeSet;

use berth_contract::message::call::{Call, ClaimCall, ClaimDetails};
use berth_contract::message::claim::{Grant, Take, View};
use berth_contract::message::digest::AllocsDigest;
use berth_domain::access::Mode;
use berth_domain::alloc::Alloc;
use berth_domain::volume::{Attempt, CallKind, Claim, Handle, MountOptions, Volume, VolumeSpec};
use berth_domain::{AllocId, VolumeKey};
use berth_service::projection::Subtree;

/// The volume's mount options, overridden by those of the alloc's request (A11).
pub fn mount(spec: &VolumeSpec, volume: &VolumeKey, alloc: Option<&Alloc>) -> MountOptions {
    match alloc.and_then(|alloc| alloc.request_for(&volume.volume)) {
        Some(request) => spec.mount.merged_with(&request.mount),
        None => spec.mount.to_value(),
    }
}

/// The plugin's id of the volume (A10).
pub fn external_id(volume: &VolumeKey, spec: &VolumeSpec) -> String {
    spec.external_id(&volume.volume)
}

/// The volume that a claim is for. A claim that an earlier version wrote does not name it: then it
/// is the registered one.
fn claimed_volume(volume: &VolumeKey, now: &Volume, claim: &Claim) -> Option<Handle> {
    claim.handle().or_else(|| {
        let spec = now.spec.as_ref()?;
        Some(Handle { plugin: spec.plugin.clone(), external_id: external_id(volume, spec) })
    })
}

/// The call of an attempt; none if the claim is gone, or if its volume is unknown. If a volume's
/// registration was lost, its claim is released by the claim's own record.
pub fn call(
    volume: &VolumeKey,
    subtree: &Subtree,
    alloc_id: &AllocId,
    alloc: Option<&Alloc>,
    attempt: &Attempt,
    revision: u64,
) -> Option<ClaimCall> {
    let claim = subtree.volume.claims.get(alloc_id)?;
    let handle = claimed_volume(volume, &subtree.volume, claim)?;
    // The registration may be for another volume by now.
    let spec = subtree.volume.spec.as_ref();
    let spec = spec.filter(|spec| spec.handle(&volume.volume).as_ref() == Some(&handle));
    // Only an agent compares its mounts with its claims.
    let is_for_agent = attempt.call == CallKind::NodeDetach;
    let unstaged_by = claim.unstaged_by.as_ref().filter(|_| is_for_agent);
    let beside = is_for_agent
        .then(|| AllocSet::from_allocs(&claims_beside(&subtree.volume, alloc_id, claim)));
    let AllocSet { listed, digest } = beside.unwrap_or_default();
    let details = ClaimDetails {
        alloc: alloc_id.clone(),
        epoch: claim.epoch,
        node: claim.node.clone(),
        external_node: claim.external_node.clone(),
        controller: None,
        claims_beside: listed,
        claims_beside_digest: digest,
        unstaged_by: unstaged_by.cloned(),
        by: alloc.and_then(|alloc| alloc.by.clone()),
        access: claim.access,
        mode: claim.mode,
        attachment: claim.attachment,
        mount: spec.map(|spec| mount(spec, volume, alloc)).unwrap_or_default(),
        context: spec.map(|spec| spec.context.to_value()).unwrap_or_default(),
        span: subtree.trail(alloc_id).and_then(|trail| trail.attempt),
    };
    Some(Call {
        call: attempt.call,
        attempt: attempt.id.clone(),
        revision,
        deadline: attempt.deadline,
        namespace: volume.namespace.clone(),
        volume: volume.volume.clone(),
        external_id: handle.external_id,
        plugin: handle.plugin,
        ask_first: Vec::new(),
        secrets: spec.and_then(|spec| spec.secrets.clone()),
        details,
    })
}

/// Most allocs that a message lists. More are told by their digest.
const LISTED_MAX: usize = 256;

/// Allocs as a message tells them: the list, or its digest if it is long.
#[derive(Debug, Default, PartialEq, Eq)]
struct AllocSet {
    listed: Option<BTreeSet<AllocId>>,
    digest: Option<AllocsDigest>,
}

impl AllocSet {
    /// The set of these allocs, which come in the order of their ids.
    fn from_allocs(allocs: &[&AllocId]) -> Self {
        if allocs.len() > LISTED_MAX {
            return Self {
                listed: None,
                digest: Some(AllocsDigest::from_allocs(allocs.iter().copied())),
            };
        }
        Self { listed: Some(allocs.iter().copied().cloned().collect()), digest: None }
    }
}

/// The other allocs with a claim for the same node. The agent compares its mounts with them. A
/// claim in line counts: it may be taken, with the epoch of its place in line, before the call
/// arrives.
fn claims_beside<'a>(volume: &'a Volume, alloc: &AllocId, claim: &Claim) -> Vec<&'a AllocId> {
    let own = claim.handle();
    let is_of_same = |other: &Claim| own.is_none() || !other.is_of_other_than(own.as_ref());
    let others = volume.claims.iter().filter(|(other, _)| *other != alloc);
    let others = others.filter(|(_, other)| is_of_same(other));
    others.filter(|(_, other)| other.node == claim.node).map(|(other, _)| other).collect()
}

/// The grant of a taken claim, under the name that the request uses for the volume.
pub fn grant(
    key: &VolumeKey,
    volume: &Volume,
    spec: &VolumeSpec,
    claim: &Claim,
    alloc: &Alloc,
    take: &Take,
) -> Grant {
    // If any number may write, the agent does not compare.
    let is_compared = !claim.access.is_for_any_writers();
    let beside =
        is_compared.then(|| AllocSet::from_allocs(&claims_beside(volume, &take.alloc, claim)));
    let AllocSet { listed, digest } = beside.unwrap_or_default();
    Grant {
        epoch: claim.epoch,
        namespace: key.namespace.clone(),
        volume: key.volume.clone(),
        external_id: external_id(key, spec),
        plugin: spec.plugin.clone(),
        alloc: take.alloc.clone(),
        mode: claim.mode,
        access: claim.access,
        attachment: claim.attachment,
        mount: mount(spec, key, Some(alloc)),
        context: spec.context.to_value(),
        publish_context: claim.publish_context.clone(),
        secrets: spec.secrets.clone(),
        claims_beside: listed,
        claims_beside_digest: digest,
        expand_to: expand_to(spec),
        view: view(spec, claim, alloc, take),
        by: alloc.by.clone(),
    }
}

/// The size to which nodes have to expand the volume.
fn expand_to(spec: &VolumeSpec) -> Option<u64> {
    let expansion = spec.pending_expansion().filter(|expansion| expansion.is_at_nodes())?;
    Some(spec.bytes_at_nodes(expansion))
}

/// The view of the volume under another alias of the alloc.
fn view(spec: &VolumeSpec, claim: &Claim, alloc: &Alloc, take: &Take) -> Option<View> {
    let (place, request) = alloc.request_named(&take.volume, take.alias.as_deref())?;
    let base = alloc.request_for(&take.volume)?;
    (!std::ptr::eq(request, base)).then(|| View {
        place,
        mode: if request.read_only { Mode::Read } else { claim.mode },
        mount: spec.mount.merged_with(&request.mount),
    })
}

#[cfg(test)]
mod tests {
    use berth_domain::access::{AccessMode, AttachmentMode, Capability};
    use berth_domain::volume::State;
    use berth_domain::{NodeId, Timestamp};

    use super::*;

    fn claim(state: State, node: &str) -> Claim {
        let access = AccessMode::SingleNodeMultiWriter;
        let capability = Capability { access, attachment: AttachmentMode::FileSystem };
        let (node, since) = (NodeId::new(node).unwrap(), Timestamp::from_unix_ms(0));
        Claim {
            epoch: 7,
            controller: true,
            ..Claim::new(state, node, Mode::Write, capability, since)
        }
    }

    #[test]
    fn every_claim_for_the_node_covers_a_mount_also_one_in_line() {
        let id = |id: &str| AllocId::new(id).unwrap();
        let leaving = claim(State::Unpublishing, "n1");
        let claims = [
            ("a", leaving.clone()),
            ("b", claim(State::Waiting, "n1")),
            ("c", claim(State::Taken, "n1")),
            ("d", claim(State::Taken, "n2")),
        ];
        let claims = claims.into_iter().map(|(alloc, claim)| (id(alloc), claim)).collect();
        let volume = Volume { claims, ..Volume::default() };
        assert_eq!(claims_beside(&volume, &id("a"), &leaving), [&id("b"), &id("c")]);
    }

    #[test]
    fn a_message_has_the_list_of_few_allocs_and_the_digest_of_many() {
        let allocs: Vec<AllocId> =
            (0..=LISTED_MAX).map(|at| AllocId::new(format!("a{at:03}")).unwrap()).collect();
        let many: Vec<&AllocId> = allocs.iter().collect();
        let few = AllocSet::from_allocs(&many[1..]);
        assert_eq!((few.listed.map(|listed| listed.len()), few.digest), (Some(LISTED_MAX), None));
        let digest = Some(AllocsDigest::from_allocs(&allocs));
        assert_eq!(AllocSet::from_allocs(&many), AllocSet { listed: None, digest });
    }
}
