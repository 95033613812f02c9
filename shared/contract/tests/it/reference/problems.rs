//! An error of each code, as its caller receives it.
//!
//! Promises one for every code, with the facts that go with it: a new code says here how it reads.
//! What the domain refuses is said in its own words; of the rest these are the words of the place
//! that answers so.

use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::problem::Problem;
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Conflict, Mode};
use berth_domain::class::{ClassRefusal, ClassUse, Quota, SizeLimits};
use berth_domain::volume::storage::{OperationKind, SnapshotState, Stage};
use berth_domain::volume::{CallKind, CallOwner, Holder, Holders, Refusal, State};
use berth_domain::{AllocId, NodeId, VolumeId, limits};

use crate::sample;

/// The code's example, as in the field `error` of a reply.
pub fn example(code: Code) -> Problem {
    let problem = match code {
        Code::BadInput => {
            let fault = Fault { path: "id".into(), problem: "is missing".into(), line: None };
            Problem::bad_input(vec![fault]).at_step("volume.register")
        }
        Code::Unknown => {
            Problem::new(code, "what a newer version has to say").at_step("claim.take")
        }
        _ => of_volumes(code)
            .or_else(|| of_storage(code))
            .or_else(|| of_classes(code))
            .or_else(|| of_mounts(code))
            .or_else(|| of_places(code))
            .unwrap_or_else(|| of_requests(code)),
    };
    problem.trace("0af7651916cd43dd8448eb211c80319c")
}

/// The request itself, the bus, and allocs.
fn of_requests(code: Code) -> Problem {
    let no_volume = |message: &str, step: &str| Problem::new(code, message).at_step(step);
    let about = |message: &str, step: &str| no_volume(message, step).volume(sample::key());
    match code {
        Code::Late => about("the request came after its deadline", "claim.take"),
        Code::NoResponder => no_volume("no service answers at berth.v1.node.status", "node.status"),
        Code::NoAnswer => {
            let said = "no answer from berth.v1.volume.status.team=20a within 5.0s";
            no_volume(said, "volume.status")
        }
        Code::BusUnavailable => about(
            "bucket berth-volumes cannot be read now; check nats-server and try again",
            "volume.status",
        ),
        Code::NewerRecord => no_volume(
            "the record has schema 3; this version reads up to 2, and leaves it as it is",
            "alloc.status",
        ),
        Code::LevelTooLow => about(
            "replica claim/host-1/4711 of berth-claim, version 0.1.0, reads records up to \
             schema 1, and this needs 2",
            "volume.create",
        ),
        Code::DamagedRecord => no_volume(
            "the record default.data.claim.web-1 cannot be read here: the record cannot be read: \
             EOF while parsing a value at line 1 column 0",
            "volume.detach",
        ),
        Code::Internal => no_volume("claim-take panicked", "claim.take"),
        Code::Overloaded => {
            no_volume("256 requests are under way, as many as are taken", "claim.take").retryable()
        }
        Code::Changed => {
            let said = "the node's record is at revision 8, not 5";
            no_volume(said, "node.leave").node("host.example")
        }
        Code::NotAllowed => no_volume(
            "these credentials may not send to berth.v1.volume.register.team=20a",
            "volume.register",
        ),
        Code::BucketLost => no_volume(
            "bucket berth-volumes was deleted; what is known of it here is not answered any more",
            "claim.take",
        )
        .retryable(),
        Code::SealingKeyUnknown => {
            about("the registry has not recorded the key of node host.example", "secret.open")
                .node("host.example")
        }
        Code::NoSuchAlloc => about("no alloc web-1", "claim.take"),
        Code::AllocTerminal => {
            about("alloc web-1 is complete since 2026-01-01T00:00:00.000Z", "claim.take")
        }
        Code::AllocForeign => {
            about("alloc web-1 is placed on node host.example, not host.other", "claim.take")
        }
        Code::VolumeNotRequested => about("alloc web-1 did not ask for volume data", "claim.take"),
        Code::GrantVoid => about("the claim is gone by now", "agent.mount").retryable(),
        Code::AllocKept => about("alloc web-1 has a claim on volume team a/data", "alloc.forget"),
        Code::RunnerCannotMount => no_volume(
            "volume data: the runner of this workload can mount no volumes (task_driver_mounts = \
             none)",
            "alloc.register",
        ),
        Code::Deadlock => about(
            "web-1 waits for volume data behind web-0, web-0 for volume logs behind web-1",
            "claim.take",
        ),
        Code::AllocOwned => no_volume(
            "alloc web-1 is not changed: it belongs to owner scheduler-1 (user.anna)",
            "alloc.stop",
        ),
        Code::OwnerHeld => no_volume(
            "the lease of owner scheduler-1 is held by process host-4711 of user.anna since \
             2026-01-01T00:00:00.000Z",
            "owner.hold",
        )
        .retryable(),
        Code::GuardRefused => {
            no_volume("process 4711 does not live on node host.example", "agent.guard")
                .node("host.example")
        }
        other => panic!("how does {other} read? say it here"),
    }
}

/// What is known of mounts, and of the nodes that have them.
fn of_mounts(code: Code) -> Option<Problem> {
    let node = "host.example";
    let told = |message: &str, step: &str| Problem::new(code, message).at_step(step);
    let about = |message: &str, step: &str| told(message, step).volume(sample::key());
    Some(match code {
        Code::MountsNotSaid => about(
            "it may be in use: node host.example has not said yet what it has mounted",
            "volume.delete",
        )
        .retryable(),
        Code::MountWell => about(
            "the volume is mounted at /var/lib/berth/csi/0a/target for alloc web-0, and the mount \
             answers: by force it would be unmounted under its workload, and mounted again",
            "agent.republish",
        )
        .node(node),
        Code::MountUnaccounted => about(
            "node host.example has volume team a/data mounted at /var/lib/berth/csi/0a/1b/target \
             for alloc web-0, and no claim covers it",
            "agent.detach",
        )
        .node(node)
        .retryable(),
        Code::MountsUnreported => about(
            "records of claims were restored, replaced or deleted, and these nodes have not \
             said since what is mounted there: host.example",
            "claim.take",
        )
        .retryable(),
        Code::RunUnknown => about(
            "it is not known whether lock 7f.lock runs alloc web-0: its lock file is gone, and it \
             is not known which file it was",
            "agent.detach",
        )
        .node(node)
        .retryable(),
        Code::NodeElsewhere => told(
            "node host-2.example is there, and its agent has the id of the agent of node \
             host.example",
            "node.gone",
        )
        .node(node),
        Code::NodeRenamed => told(
            "the state directory /var/lib/berth is that of node host.example, and the \
             configuration names node host-2.example",
            "agent.start",
        )
        .node(node),
        _ => return None,
    })
}

/// Plugins and nodes.
fn of_places(code: Code) -> Option<Problem> {
    let (plugin, node) = ("ebs.csi.aws.com", "host.example");
    let told = |message: &str, step: &str| Problem::new(code, message).at_step(step);
    let about = |message: &str, step: &str| told(message, step).volume(sample::key());
    Some(match code {
        Code::NoSuchPlugin => {
            told("no agent has reported plugin ebs.csi.aws.com", "plugin.status").plugin(plugin)
        }
        Code::NoSuchNode => told("no node host.example has reported", "node.status").node(node),
        Code::PluginRefused => about(
            "the plugin does not confirm that the volume can be used so: it gave no reason",
            "volume.register",
        )
        .plugin(plugin),
        Code::PluginFailed => about(
            "ControllerPublishVolume on /run/csi/ebs.sock: INTERNAL: the backend is away",
            "controller.publish",
        )
        .plugin(plugin)
        .node(node),
        Code::StillBusy => about(
            "plugin ebs.csi.aws.com has not answered an earlier call for volume vol-0a1b",
            "agent.detach",
        )
        .plugin(plugin)
        .node(node),
        Code::OldCall => about(
            "the alloc uses the volume by its claim of epoch 43; it was told to go at 41",
            "agent.detach",
        )
        .node(node),
        Code::MountFailed => about(
            "the volume is mounted at /var/lib/berth/csi/0a/target, and nothing is there any more",
            "agent.mount",
        )
        .node(node),
        Code::UnmountFailed => {
            about("the directory /var/lib/berth/csi/0a cannot be removed", "agent.detach")
                .node(node)
                .retryable()
        }
        Code::VolumeHeldByProcess => about(
            "volume team a/data is still held on node host.example: process 4711 (postgres) has it \
             mounted at /data in mount namespace mnt:[4026532281]",
            "agent.detach",
        )
        .node(node)
        .retryable(),
        Code::NodeReady => told("the agent of node host.example holds its lease", "node.gone"),
        Code::PluginInUse => {
            let said = "plugin ebs.csi.aws.com is used by volumes: team a/data";
            told(said, "plugin.delete").plugin(plugin)
        }
        Code::TooManyJobs => {
            told("plugin ebs.csi.aws.com has 256 jobs", "plugin.expect").plugin(plugin)
        }
        Code::NodeReturning => {
            about("the node's lease is lost, and asked for again", "agent.mount").node(node)
        }
        Code::PathRefused => about("\"srv\" is not an absolute path", "agent.mount").node(node),
        Code::MountOptionsRefused => about(
            "a group is asked for, and plugin ebs.csi.aws.com on node host.example cannot mount a \
             volume for one (VOLUME_MOUNT_GROUP)",
            "claim.take",
        ),
        Code::PluginHeld => {
            told("instance 3f2c9a10b4de runs on: 2 mounts need it", "agent.plugin-stop")
                .plugin(plugin)
                .node(node)
        }
        Code::ForeignMount => about(
            "at /srv/data something is mounted (tmpfs, tmpfs) that nothing proves to be this \
             volume, so it is left alone: it is another mount; see what it is with `findmnt \
             --mountpoint /srv/data`, then unmount it or move it away with `umount /srv/data`",
            "agent.detach",
        )
        .node(node)
        .retryable(),
        Code::NotReadOnly => about(
            "plugin ebs.csi.aws.com answered NodePublishVolume with OK, but at \
             /var/lib/berth/csi/0a/target there is a block device that can be written, and only \
             reading was asked for",
            "agent.mount",
        )
        .plugin(plugin)
        .node(node),
        Code::SecretsUnavailable => {
            about("the volume's secrets: this claim service has no key for secrets", "secret.open")
        }
        _ => return None,
    })
}

/// What a volume refuses to have done at its storage, in the domain's words.
fn of_storage(code: Code) -> Option<Problem> {
    let (since, snapshot) = (sample::at(0), sample::snapshot_id());
    let holder = Holder {
        alloc: AllocId::new("web-0").unwrap(),
        node: NodeId::new("host.other").unwrap(),
        mode: Mode::Write,
        state: State::Taken,
        since,
    };
    let (refusal, step) = match code {
        Code::VolumeNotReady => {
            let failure = "controller.create: INTERNAL: the backend is away";
            let failure = Some(Box::new(failure.into()));
            (Refusal::NotReady { stage: Stage::Creating, failure }, "claim.take")
        }
        Code::VolumeExists => {
            let fields = vec!["size", "class"];
            (Refusal::Exists { stage: Stage::Ready, fields }, "volume.create")
        }
        Code::OperationUnderWay => {
            let operation = OperationKind::Expand;
            let refusal = Refusal::OperationUnderWay { operation, since, failure: None };
            (refusal, "volume.modify")
        }
        Code::NeverSmaller => {
            let refusal = Refusal::Shrinks { capacity: 20 << 30, required: 10 << 30 };
            (refusal, "volume.expand")
        }
        Code::VolumeInUse => {
            let holders = Holders { named: vec![holder], more: 0 };
            (Refusal::InUse { holders }, "volume.expand")
        }
        Code::StorageInUse => {
            let failure = None;
            (Refusal::SnapshotUnfinished { snapshot, failure }, "volume.delete")
        }
        Code::SnapshotExists => {
            let state = SnapshotState::Ready;
            (Refusal::SnapshotExists { snapshot, state }, "snapshot.create")
        }
        Code::NoSuchSnapshot => (Refusal::NoSuchSnapshot(snapshot), "snapshot.delete"),
        Code::SnapshotInGroup => {
            let members = vec![sample::volume(), VolumeId::new("logs").unwrap()];
            (Refusal::InGroup { members }, "snapshot.delete")
        }
        Code::TooManySnapshots => {
            (Refusal::TooManySnapshots(limits::SNAPSHOTS_MAX), "snapshot.create")
        }
        _ => return None,
    };
    let problem = Problem::new(code, &refusal).at_step(step).volume(sample::key());
    // A volume that is being created gets ready by itself; a failed one does not.
    Some(if refusal.is_of_creation() { problem.retryable() } else { problem })
}

/// What a class or a plugin's abilities refuse.
fn of_classes(code: Code) -> Option<Problem> {
    let limits =
        SizeLimits { min_bytes: Some(1 << 30), max_bytes: Some(100 << 30), default_bytes: None };
    let quota = Quota { volumes: Some(2), bytes: Some(25 << 30) };
    let used = ClassUse { volumes: 2, bytes: 20 << 30 };
    let (message, step) = match code {
        Code::NoSuchClass => ("no class fast".to_owned(), "volume.create"),
        Code::ClassRefused => {
            let refusal = ClassRefusal::Size { required: 200 << 30, limits };
            (refusal.to_string(), "volume.create")
        }
        Code::QuotaExceeded => {
            let refusal = ClassRefusal::Quota { used, quota, more: 10 << 30 };
            (format!("class fast: {refusal}"), "volume.create")
        }
        Code::ClassInUse => ("class fast has 2 volumes: data, logs".to_owned(), "class.delete"),
        Code::PluginLacks => {
            let said = "plugin ebs.csi.aws.com cannot expand volumes: it does not say that it has \
                the ability EXPAND_VOLUME";
            (said.to_owned(), "volume.expand")
        }
        Code::PluginUnable => {
            let said = "DeleteVolume on /run/csi/ebs.sock: FAILED_PRECONDITION: it is attached";
            (said.to_owned(), "controller.delete")
        }
        _ => return None,
    };
    let problem = Problem::new(code, message).at_step(step);
    Some(match code {
        Code::PluginLacks => problem.volume(sample::key()).plugin(sample::plugin()),
        Code::PluginUnable => {
            problem.volume(sample::key()).plugin(sample::plugin()).node(sample::node_id())
        }
        Code::ClassInUse => problem,
        _ => problem.volume(sample::key()),
    })
}

/// What a volume refuses, in the domain's words.
fn of_volumes(code: Code) -> Option<Problem> {
    let (writer, since) = (sample::capability(), sample::at(0));
    let reader =
        Capability { access: AccessMode::MultiNodeReaderOnly, attachment: writer.attachment };
    let block = Capability { attachment: AttachmentMode::BlockDevice, ..writer };
    let (other, mode) = (NodeId::new("host.other").unwrap(), Mode::Write);
    let holder = Holder {
        alloc: AllocId::new("web-0").unwrap(),
        node: other.clone(),
        mode,
        state: State::Taken,
        since,
    };
    let holders = Holders { named: vec![holder.clone()], more: 0 };
    let (refusal, step) = match code {
        Code::NoSuchVolume => (Refusal::NoSuchVolume, "claim.take"),
        Code::VolumeClosing => {
            let reason = "no longer needed".to_owned();
            (Refusal::Closing { since, reason }, "claim.take")
        }
        Code::HandleTaken => {
            (Refusal::HandleTaken { others: vec!["volume orders".to_owned()] }, "volume.register")
        }
        Code::RegistrationLost => (Refusal::OtherVolumesClaims { holders }, "volume.create"),
        Code::RegisteredTwice => {
            let others = vec!["a volume of another namespace".to_owned()];
            (Refusal::RegisteredTwice { others }, "claim.take")
        }
        Code::CapabilityNotOffered => (
            Refusal::CapabilityNotOffered { asked: block.into(), offered: vec![writer] },
            "claim.take",
        ),
        Code::AccessInUse => {
            (Refusal::AccessInUse { asked: reader, in_use: writer, holders }, "claim.take")
        }
        Code::ReadOnlyVolume => (Refusal::NoWriters { asked: reader }, "claim.take"),
        Code::Held => (Refusal::Held { conflict: Conflict::OneClaim, holders }, "claim.take"),
        Code::Busy => {
            let (owner, call) = (CallOwner::Claim(holder.alloc), CallKind::ControllerPublish);
            let until = sample::at(60);
            (Refusal::Busy { owner, call, until, failure: None }, "claim.take")
        }
        Code::Releasing => {
            (Refusal::Releasing { state: State::Unpublishing, since, failure: None }, "claim.take")
        }
        Code::ClaimDiffers => (Refusal::ClaimDiffers { node: other, mode }, "claim.take"),
        Code::ClaimsLive => (Refusal::ClaimsLive { holders }, "volume.deregister"),
        Code::UnsafeUpdate => {
            (Refusal::UnsafeUpdate { fields: vec!["plugin"], holders }, "volume.register")
        }
        Code::NoSuchClaim => (Refusal::NoSuchClaim(holder.alloc), "claim.release"),
        Code::StaleAttempt => (Refusal::StaleAttempt, "claim.checkpoint"),
        Code::NotDue => (Refusal::NotDue { next_try: None }, "claim.checkpoint"),
        Code::TooManyClaims => (Refusal::TooManyClaims(limits::CLAIMS_MAX), "claim.take"),
        Code::Waiting => {
            let said = "in line for its turn, after web-0 on host.other (taken)";
            return Some(Problem::new(code, said).at_step("claim.take").volume(sample::key()));
        }
        Code::PluginUnhealthy => {
            let why = "it is unhealthy on node host.example: GetPluginInfo: UNAVAILABLE";
            (Refusal::PluginUnready(why.to_owned()), "claim.take")
        }
        Code::NodeDown => {
            let why =
                format!("node host.example is down since {since}: its agent's lease has ended");
            (Refusal::NodeAway(why), "claim.take")
        }
        Code::ClockSkew => {
            let why = "node host.example is 7000 ms off, more than the margin of 2s; set its \
                clock, or deadlines mean nothing there";
            (Refusal::NodeClock(why.to_owned()), "claim.take")
        }
        Code::OutOfReach => {
            let why = "it can be reached in zone=a, and node host.example is in zone=b";
            (Refusal::OutOfReach(why.to_owned()), "claim.take")
        }
        Code::NodeFull => {
            let why = "node host.example has 25 volumes of plugin ebs.csi.aws.com, and the \
                plugin takes 25 there";
            (Refusal::NodeFull(why.to_owned()), "claim.take")
        }
        Code::StorageAway => {
            let why = "plugin ebs.csi.aws.com cannot reach its storage from node host.example: it \
                cannot be reached (PathDown): no route to 10.0.0.7";
            (Refusal::StorageAway(why.to_owned()), "claim.take")
        }
        Code::NoRoomHere => {
            let why = "plugin ebs.csi.aws.com last said that it has room for 1073741824 of \
                2147483648 bytes in zone=a, and for all of them in zone=b";
            (Refusal::NoRoomHere(why.to_owned()), "claim.take")
        }
        Code::SharedNodeId => {
            let why = "plugin ebs.csi.aws.com calls node host.example \"i-0abc\", as it calls node \
                host.other, which had the id first: give its driver on host.example an id of its \
                own; if host.other is gone for good, `berth node leave host.other`";
            (Refusal::SharedId(why.to_owned()), "claim.take")
        }
        Code::PluginExhausted => {
            let failure = Some(Box::new("RESOURCE_EXHAUSTED: 25 of 25 are attached".into()));
            let next_try = Some(sample::at(4));
            (Refusal::Exhausted { holder, failure, next_try }, "claim.take")
        }
        _ => return None,
    };
    let problem = Problem::new(code, &refusal).at_step(step).volume(sample::key());
    // These come to be without anybody's changing the request, as the claim service says.
    let may_come = matches!(code, Code::NodeDown | Code::ClockSkew | Code::NodeFull);
    let of_storage = matches!(code, Code::PluginExhausted | Code::StorageAway | Code::NoRoomHere);
    let may_come = may_come || of_storage || code == Code::SharedNodeId;
    Some(if may_come { problem.retryable() } else { problem })
}
