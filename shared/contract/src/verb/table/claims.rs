//! Claims on volumes.

use berth_domain::Namespace;

use crate::message::claim;

verbs! {
    /// Take a claim on a volume for an alloc: alloc, volume, node, mode, wait
    ClaimTake {
        step: "claim.take", endpoint: "claim-take",
        subject: "berth.v1.claim.take.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT, NODE_AGENT], effect: Change,
        request: claim::Take, reply: claim::Grant,
        errors: [] + CLAIM_REFUSED + PLUGIN_FAILED,
    }

    /// For agents, and for nodes that are gone: record a lost claim again, in release, so that its
    /// volume is detached
    ClaimRecover {
        step: "claim.recover", endpoint: "claim-recover",
        subject: "berth.v1.claim.recover.<ns>", to: Namespace,
        service: CLAIM, senders: [NODE_AGENT, PLUGIN_REGISTRY], effect: BriefChange,
        request: claim::Recover, reply: claim::Recovered,
        errors: [
            PluginUnhealthy, AccessInUse, Held, ClaimDiffers, RegistrationLost, SharedNodeId,
            VolumeNotReady,
        ],
    }

    /// Give a claim up: alloc, volume, epoch, reason
    ClaimRelease {
        step: "claim.release", endpoint: "claim-release",
        subject: "berth.v1.claim.release.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR, NODE_AGENT, GC], effect: BriefChange,
        request: claim::Release, reply: claim::Released,
        errors: [NoSuchVolume, NoSuchClaim, ClaimDiffers, StaleAttempt],
    }

    /// For volumewatchers of an older version: `work.checkpoint` of a claim
    ClaimCheckpoint {
        step: "claim.checkpoint", endpoint: "claim-checkpoint",
        subject: "berth.v1.claim.checkpoint.<ns>", to: Namespace,
        service: CLAIM, senders: [VOLUMEWATCHER], effect: Change,
        request: claim::Checkpoint, reply: claim::Checkpointed,
        errors: [NoSuchVolume, NoSuchClaim, StaleAttempt, NotDue],
    }

    /// For agents: record what the node does with a granted claim
    ClaimObserve {
        step: "claim.observe", endpoint: "claim-observe",
        subject: "berth.v1.claim.observe.<ns>", to: Namespace,
        service: CLAIM, senders: [NODE_AGENT], effect: Change,
        request: claim::Observe, reply: claim::Observed,
        errors: [NoSuchVolume, NoSuchClaim],
    }

    /// Show claims and what each waits for: prefix, volume, alloc, node, plugin, state, leaving
    ClaimStatus {
        step: "claim.status", endpoint: "claim-status",
        subject: "berth.v1.claim.status.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, NODE_AGENT, PLUGIN_REGISTRY, GC], effect: Read,
        request: claim::ListClaims, reply: claim::Claims,
        errors: [NoSuchVolume],
    }
}
