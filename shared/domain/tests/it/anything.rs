//! Any record, any question: also those that no history leads to.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter, Mode};
use berth_domain::proof::{Proof, ProofKind, Proven};
use berth_domain::retry::Schedule;
use berth_domain::volume::{
    Attempt, Begin, CallFailure, CallKind, CallOwner, Claim, Closing, Command, Context, ErrorCode,
    FailureFacts, Handle, HandleUse, HoldingProcess, LostClaim, MountOptions, NoRoute, NodeMount,
    NodeMountState, Outcome, Policy, Progress, Route, State, Step, Take, Volume, VolumeSpec, Write,
    invariant, step,
};
use berth_domain::{AllocId, AttemptId, GrpcCode, Timestamp};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::any_storage::{snapshots, storage_command, storage_life, storage_outcome};
use crate::world::worker;

/// Few, so that they meet.
pub fn name<T: std::str::FromStr + std::fmt::Debug>(
    letter: char,
    count: usize,
) -> impl Strategy<Value = T> {
    (0..count).prop_map(move |at| format!("{letter}{at}").parse().ok().unwrap())
}

pub fn time() -> impl Strategy<Value = Timestamp> {
    // About the same time, so that deadlines are sometimes ahead and sometimes behind.
    (1_000_000_u64..1_200_000).prop_map(Timestamp::from_unix_ms)
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![4 => time(), 1 => any::<u64>().prop_map(Timestamp::from_unix_ms)]
}

pub fn access() -> impl Strategy<Value = AccessMode> {
    prop::sample::select(AccessMode::ALL.to_vec())
}

fn attachment() -> impl Strategy<Value = AttachmentMode> {
    prop_oneof![Just(AttachmentMode::FileSystem), Just(AttachmentMode::BlockDevice)]
}

pub fn capability() -> impl Strategy<Value = Capability> {
    (access(), attachment()).prop_map(|(access, attachment)| Capability { access, attachment })
}

pub fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Read), Just(Mode::Write)]
}

fn call() -> impl Strategy<Value = CallKind> {
    use CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
    prop_oneof![Just(ControllerPublish), Just(NodeDetach), Just(ControllerUnpublish)]
}

fn state() -> impl Strategy<Value = State> {
    use State::{NodeDetached, Publishing, Taken, Unpublishing, Waiting};
    prop_oneof![
        Just(Waiting),
        Just(Publishing),
        Just(Taken),
        Just(Unpublishing),
        Just(NodeDetached)
    ]
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (name('t', 3), call(), name('w', 2), any_time()).prop_map(|(id, call, worker, deadline)| {
        Attempt { id, call, worker, deadline, bound: None }
    })
}

pub fn text() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "x", "two words", "\"データ\"\n"]).prop_map(str::to_owned)
}

/// Of an older version, which writes words only, and of this one. On the heap: a volume may have
/// many, and a test has a small stack.
pub fn failure() -> BoxedStrategy<CallFailure> {
    let code = option::of((1..999_u16).prop_map(ErrorCode));
    let grpc = option::of(prop::sample::select(GrpcCode::ALL.to_vec()));
    let process = (any::<u32>(), text()).prop_map(|(pid, command)| HoldingProcess { pid, command });
    let place = (option::of(name('n', 2)), vec(process, 0..3));
    let facts = (code, option::of(text()), grpc, place, option::of(text()), 0..9_u32);
    let failure = (text(), facts).prop_map(|(message, facts)| {
        let (code, rpc, grpc, (node, processes), next, crashes) = facts;
        let facts = FailureFacts { code, rpc, grpc, node, processes, next, crashes };
        CallFailure { message, facts }
    });
    failure.boxed()
}

pub fn boxed_failure() -> impl Strategy<Value = Option<Box<CallFailure>>> {
    option::of(failure().prop_map(Box::new))
}

pub fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..3)
}

pub fn proof() -> impl Strategy<Value = Proof> {
    use ProofKind::{Confirmed, PoweredOff, StorageFenced};
    let kind = prop::sample::select(vec![PoweredOff, StorageFenced, Confirmed]);
    (kind, text(), time(), text()).prop_map(|(kind, by, at, note)| Proof { kind, by, at, note })
}

/// A claim that may never have been.
pub fn claim() -> impl Strategy<Value = Claim> {
    let about = (state(), name('n', 2), mode(), any_time(), option::of(attempt()));
    let tries = (any::<u32>(), boxed_failure(), option::of(any_time()), option::of(text()));
    let reported = option::of(node_mount());
    let kept = (0..9_u64, access(), attachment(), any::<bool>(), external(), map(), reported);
    let denied = (any::<bool>(), option::of(proof()));
    let late = (option::of(any_time()), any::<bool>(), option::of(proof()), denied);
    (about, tries, kept, late).prop_map(|(about, tries, kept, late)| Claim {
        place_until: late.0,
        exhausted: late.1,
        proof: late.2,
        denied: late.3.0,
        unstaged_by: late.3.1,
        state: about.0,
        node: about.1,
        mode: about.2,
        since: about.3,
        progress: Progress {
            tries: tries.0,
            failure: tries.1,
            next_try: tries.2,
            attempt: about.4,
        },
        reason: tries.3,
        epoch: kept.0,
        access: kept.1,
        attachment: kept.2,
        controller: kept.3,
        external_node: kept.4,
        publish_context: kept.5,
        mount: kept.6,
        plugin: None,
        external_id: None,
    })
}

/// A spec that may offer nothing.
pub fn spec() -> impl Strategy<Value = VolumeSpec> {
    let closing = option::of((time(), text()));
    let names = (name('p', 2), text(), option::of(text()), closing);
    let flags = (option::of(text()), vec(text(), 0..3));
    let rest = (
        vec(map(), 0..3),
        option::of(any::<u64>()),
        map(),
        map(),
        0..9_u64,
        option::of(name('s', 2)),
        option::of(storage_life().prop_map(Box::new)),
    );
    (names, vec(capability(), 0..4), flags, rest).prop_map(|(names, capabilities, flags, rest)| {
        VolumeSpec {
            plugin: names.0,
            name: names.1.into(),
            external_id: names.2,
            closing: names.3.map(|(since, reason)| Box::new(Closing { since, reason })),
            capabilities: capabilities.into(),
            mount: MountOptions { fs_type: flags.0, flags: flags.1, group: None }.into(),
            topologies: rest.0.into(),
            capacity_bytes: rest.1,
            parameters: rest.2.into(),
            context: rest.3.into(),
            storage: rest.6,
            secrets: rest.5,
            create_index: rest.4,
        }
    })
}

fn volume() -> impl Strategy<Value = Volume> {
    (option::of(spec()), btree_map(name('a', 4), claim(), 0..4), snapshots()).prop_map(
        |(spec, claims, snapshots)| Volume {
            spec,
            claims: claims.into_iter().collect(),
            snapshots: snapshots.into(),
        },
    )
}

/// What a plugin calls a node: few, so that nodes share one.
fn external() -> impl Strategy<Value = Option<String>> {
    option::of("[xyz]")
}

pub fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => map().prop_map(|publish_context| Outcome::Done { publish_context }),
        4 => failure().prop_map(Outcome::Refused),
        4 => failure().prop_map(Outcome::Failed),
        4 => failure().prop_map(Outcome::Unasked),
        4 => failure().prop_map(Outcome::Exhausted),
        4 => failure().prop_map(Outcome::Unanswered),
        // No call of a claim has such an outcome.
        1 => storage_outcome(),
    ]
}

pub fn route() -> impl Strategy<Value = Result<Route, NoRoute>> {
    let reachable =
        (any::<bool>(), external(), map()).prop_map(|(controller, external_node, topology)| {
            Ok(Route { controller, external_node, topology })
        });
    let why = prop_oneof![text().prop_map(NoRoute::Plugin), text().prop_map(NoRoute::Clock)];
    prop_oneof![5 => reachable, 1 => why.prop_map(Err)]
}

fn handle() -> impl Strategy<Value = Handle> {
    (name('p', 2), name::<AllocId>('x', 2))
        .prop_map(|(plugin, external_id)| Handle { plugin, external_id: external_id.to_string() })
}

pub fn command() -> impl Strategy<Value = Command> {
    let alloc = || name::<AllocId>('a', 4);
    let asked =
        (capability(), any::<bool>(), any::<bool>()).prop_map(|(one, access, attachment)| {
            CapabilityFilter {
                access: access.then_some(one.access),
                attachment: attachment.then_some(one.attachment),
            }
        });
    let take = (alloc(), name('n', 2), mode(), asked, any::<bool>(), route());
    let proven = (name('n', 2), 0..9_u64, proof()).prop_map(|(node, epoch, proof)| Proven {
        node,
        epoch,
        proof,
    });
    prop_oneof![
        1 => spec().prop_map(Command::Register),
        1 => (any::<bool>(), text())
            .prop_map(|(force, reason)| Command::Deregister { force, reason }),
        4 => (take, option::of(option::of(0_u64..4))).prop_map(|(take, change)| {
            let (alloc, node, mode, capability, wait, route) = take;
            let take = Take { alloc, node, mode, capability, wait, route, worker: worker() };
            match change {
                None => Command::Take(take),
                Some(unmounted) => Command::Change { take, unmounted },
            }
        }),
        2 => (alloc(), name('n', 2), mode(), capability(), handle(), route()).prop_map(
            |(alloc, node, mode, capability, handle, route)| {
                Command::Recover(LostClaim { alloc, node, mode, capability, handle, route })
            }
        ),
        2 => (alloc(), option::of(0..9_u64), text())
            .prop_map(|(alloc, epoch, reason)| Command::Release { alloc, epoch, reason }),
        2 => (alloc(), 0..9_u64, call(), proof())
            .prop_map(|(alloc, epoch, call, confirmation)| {
                Command::Confirm { alloc, epoch, call, confirmation }
            }),
        1 => (alloc(), 0..9_u64, node_mount())
            .prop_map(|(alloc, epoch, mount)| Command::Observe {
                alloc,
                epoch,
                mount,
                node: None,
            }),
        4 => (alloc(), any::<bool>(), any::<bool>(), option::of(proven)).prop_map(
            |(alloc, wanted, early, proven)| {
                let (owner, worker) = (CallOwner::Claim(alloc), worker());
                Command::Begin(Begin { owner, worker, wanted, early, proven, executor: None })
            }
        ),
        4 => (alloc(), name('t', 3), outcome(), option::of(name('w', 2))).prop_map(
            |(alloc, attempt, outcome, worker)| {
                let owner = CallOwner::Claim(alloc);
                Command::Answer { owner, attempt, outcome, worker }
            }
        ),
        12 => storage_command(),
    ]
}

fn node_mount() -> impl Strategy<Value = NodeMount> {
    use NodeMountState::{Dead, Failing, Hung, Missing, Mounted, Publishing, Staging};
    let states =
        prop::sample::select(vec![Dead, Failing, Hung, Missing, Mounted, Publishing, Staging]);
    (states, time(), option::of(text()), 0..3_u32).prop_map(|(state, since, error, tries)| {
        NodeMount { state, since, rpc: error.clone(), tries, error }
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    let wait = || (0..100_000_u64).prop_map(Duration::from_millis);
    (wait(), wait(), wait(), wait(), wait()).prop_map(|(timeout, margin, abandoned, first, max)| {
        Policy {
            call_timeout: timeout,
            clock_margin: margin,
            abandoned_after: abandoned,
            place_kept: abandoned,
            retry: Schedule { first, max },
        }
    })
}

pub fn context() -> impl Strategy<Value = Context> {
    (any_time(), any::<u32>(), policy()).prop_map(|(now, jitter, policy)| Context {
        now,
        attempt: AttemptId::new("new").unwrap(),
        jitter,
        policy,
        handle: HandleUse::default(),
        copies: Vec::new(),
        mounts: Vec::new(),
    })
}

/// The part of the volume that a command is about.
pub fn subject(command: &Command) -> CallOwner {
    match command {
        Command::Register(_)
        | Command::Reserve
        | Command::Deregister { .. }
        | Command::Create(_)
        | Command::Delete { .. }
        | Command::Expand { .. }
        | Command::Modify { .. } => CallOwner::Volume,
        Command::CutSnapshot { snapshot, .. }
        | Command::AdoptSnapshot { snapshot, .. }
        | Command::DeleteSnapshot { snapshot, .. } => CallOwner::Snapshot(snapshot.clone()),
        Command::Take(Take { alloc, .. })
        | Command::Change { take: Take { alloc, .. }, .. }
        | Command::Recover(LostClaim { alloc, .. })
        | Command::Release { alloc, .. }
        | Command::Confirm { alloc, .. }
        | Command::Observe { alloc, .. } => CallOwner::Claim(alloc.clone()),
        Command::Begin(Begin { owner, .. }) | Command::Answer { owner, .. } => owner.clone(),
    }
}

/// Whether a command may lead to this write: of what it is about. The first claim of a volume may
/// also begin its creation.
pub fn may_write(command: &Command, write: &Write) -> bool {
    let written = match write {
        Write::PutSpec(_) if matches!(command, Command::Take(_)) => return true,
        Write::PutSpec(_) | Write::DeleteSpec => CallOwner::Volume,
        Write::PutClaim(alloc, _) | Write::DeleteClaim(alloc) => CallOwner::Claim(alloc.clone()),
        Write::PutSnapshot(id, _) | Write::DeleteSnapshot(id) => CallOwner::Snapshot(id.clone()),
    };
    written == subject(command)
}

/// The attempt that a write names.
pub fn named_attempt(write: &Write) -> Option<&Attempt> {
    match write {
        Write::PutClaim(_, claim) => claim.progress.attempt.as_ref(),
        Write::PutSpec(spec) => spec.operation()?.progress.calls.attempt.as_ref(),
        Write::PutSnapshot(_, snapshot) => snapshot.progress.calls.attempt.as_ref(),
        Write::DeleteSpec | Write::DeleteClaim(_) | Write::DeleteSnapshot(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Total: any command on any record gives a step or a refusal; a step writes nothing but what
    /// was spoken of, and a refusal can be said in words.
    #[test]
    fn any_command_on_any_record_is_decided(
        volume in volume(), command in command(), context in context(),
    ) {
        let decided = step(&volume, &command, &context);
        match &decided {
            Err(refusal) => prop_assert!(!refusal.to_string().is_empty()),
            Ok(Step { write: None, call }) => prop_assert_eq!(call, &None),
            Ok(Step { write: Some(write), call }) => {
                prop_assert!(may_write(&command, write), "{decided:?}");
                let is_named = call.is_none() || call.as_ref() == named_attempt(write);
                prop_assert!(is_named, "{decided:?}");
            }
        }
        // Pure: the same question gets the same answer.
        prop_assert_eq!(decided, step(&volume, &command, &context));
    }

    /// A report of a node changes nothing of the protocol.
    #[test]
    fn an_observation_changes_nothing_but_the_mount_of_a_claim_that_is_taken(
        volume in volume(), alloc in name::<AllocId>('a', 4), epoch in 0..9_u64,
        mount in node_mount(), context in context(),
    ) {
        let observe = Command::Observe {
            alloc: alloc.clone(),
            epoch,
            mount: mount.clone(),
            node: None,
        };
        let before = volume.claims.get(&alloc);
        match step(&volume, &observe, &context) {
            Err(refusal) => {
                let counts = |claim: &Claim| claim.epoch == epoch && claim.state == State::Taken;
                prop_assert!(!before.is_some_and(counts), "{refusal}");
            }
            Ok(Step { write: Some(Write::PutClaim(_, after)), call }) => {
                let expected = Claim { mount: Some(mount), ..before.unwrap().clone() };
                prop_assert_eq!((after, call), (expected, None));
            }
            Ok(step) => prop_assert_eq!(step, Step::nothing()),
        }
    }

    /// Whatever a record says, whether it is sound can be said.
    #[test]
    fn any_record_is_sound_or_says_why_not(volume in volume()) {
        prop_assert!(invariant::broken(&volume).is_none_or(|why| !why.is_empty()));
    }
}
