//! Allocs, and the owners of allocs.

use berth_domain::Namespace;

use crate::message::{alloc, many, owner};

verbs! {
    /// Say that an alloc is placed on a node: id, node, volumes, owner, meta
    AllocRegister {
        step: "alloc.register", endpoint: "alloc-register",
        subject: "berth.v1.alloc.register.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT, DOCKER], effect: BriefChange,
        request: alloc::RegisterAlloc, reply: alloc::AllocStatus,
        errors: [
            AllocForeign, AllocTerminal, NoSuchNode, NoSuchVolume, RunnerCannotMount,
            UnsafeUpdate, VolumeNotRequested, AllocOwned, Changed,
        ],
    }

    /// Say where many allocs are placed, each with an answer of its own: allocs
    AllocRegisterMany {
        step: "alloc.register-many", endpoint: "alloc-register-many",
        subject: "berth.v1.alloc.register-many.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::RegisterMany, reply: many::AllocAnswers,
        errors: [],
    }

    /// Say that an alloc has ended, so that its claims are released: id, state, note, owner
    AllocStop {
        step: "alloc.stop", endpoint: "alloc-stop",
        subject: "berth.v1.alloc.stop.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT, NODE_AGENT, DOCKER], effect: BriefChange,
        request: alloc::StopAlloc, reply: alloc::AllocStatus,
        errors: [NoSuchAlloc, AllocOwned, Changed],
    }

    /// Say that many allocs have ended, each with an answer of its own: stops
    AllocStopMany {
        step: "alloc.stop-many", endpoint: "alloc-stop-many",
        subject: "berth.v1.alloc.stop-many.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::StopMany, reply: many::AllocAnswers,
        errors: [],
    }

    /// Stop the live allocs of an owner, which is the sender: owner, node, state, note
    AllocStopOwned {
        step: "alloc.stop-owned", endpoint: "alloc-stop-owned",
        subject: "berth.v1.alloc.stop-owned.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::StopOwned, reply: many::ChangedAllocs,
        errors: [],
    }

    /// Take over live allocs of an owner whose lease has ended: from, owner, ids
    AllocAdopt {
        step: "alloc.adopt", endpoint: "alloc-adopt",
        subject: "berth.v1.alloc.adopt.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: many::Adopt, reply: many::ChangedAllocs,
        errors: [OwnerHeld],
    }

    /// Wait until an alloc is mounted, has ended, or is free: id, until
    AllocWait {
        step: "alloc.wait", endpoint: "alloc-wait",
        subject: "berth.v1.alloc.wait.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, MOUNT], effect: Read,
        request: alloc::Wait, reply: alloc::Waited,
        errors: [],
    }

    /// Show one alloc with its claims: id
    AllocStatus {
        step: "alloc.status", endpoint: "alloc-status",
        subject: "berth.v1.alloc.status.<ns>", to: Namespace,
        service: CLAIM, senders: [READ, NODE_AGENT, DOCKER], effect: Read,
        request: alloc::AllocQuery, reply: alloc::AllocStatus,
        errors: [NoSuchAlloc],
    }

    /// List allocs, one short line each: prefix, node, state, owner, meta, unowned,
    /// forgettable_before
    AllocList {
        step: "alloc.list", endpoint: "alloc-list",
        subject: "berth.v1.alloc.list.<ns>", to: Namespace,
        service: CLAIM, senders: [LIST, NODE_AGENT, GC], effect: Read,
        request: alloc::ListAllocs, reply: alloc::Allocs,
        errors: [],
    }

    /// Remove the record of an alloc that ended before a time and has no claim: id, before
    AllocForget {
        step: "alloc.forget", endpoint: "alloc-forget",
        subject: "berth.v1.alloc.forget.<ns>", to: Namespace,
        service: CLAIM, senders: [OPERATOR, GC], effect: Change,
        request: alloc::Forget, reply: alloc::Forgotten,
        errors: [AllocKept],
    }

    /// Take or renew an owner's lease, at whose end its allocs may be adopted: owner, holder, ttl_s
    OwnerHold {
        step: "owner.hold", endpoint: "owner-hold",
        subject: "berth.v1.owner.hold.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: owner::HoldOwner, reply: owner::OwnerHeld,
        errors: [OwnerHeld],
    }

    /// Give an owner's lease up: owner, holder
    OwnerYield {
        step: "owner.yield", endpoint: "owner-yield",
        subject: "berth.v1.owner.yield.<ns>", to: Namespace,
        service: CLAIM, senders: [MOUNT], effect: BriefChange,
        request: owner::YieldOwner, reply: owner::OwnerYielded,
        errors: [OwnerHeld],
    }

    /// List owners of allocs, and whether their leases are held: prefix
    OwnerList {
        step: "owner.list", endpoint: "owner-list",
        subject: "berth.v1.owner.list.<ns>", to: Namespace,
        service: CLAIM, senders: [READ], effect: Read,
        request: owner::ListOwners, reply: owner::Owners,
        errors: [],
    }
}
