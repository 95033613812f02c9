//! Random histories of one volume: what holds after every step of every one of them.

use std::time::Duration;

use berth_domain::access::{AccessMode, CapabilityFilter, Mode};
use berth_domain::proof::{Proof, ProofKind, Proven};
use berth_domain::volume::{
    Attempt, Begin, CallKind, CallOwner, Claim, Command, Context, NoRoute, Outcome, Policy,
    Refusal, Route, State, Step, Take, Volume, VolumeSpec,
};
use berth_domain::{AllocId, AttemptId, NodeId, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::anything::{access, capability, may_write, mode, name, named_attempt, outcome, route};
use crate::ledger::drives;
use crate::storage_event::{StorageEvent, storage_command, storage_event};
use crate::world::{World, spec, take, worker};

/// Something that happens to the volume, or time.
#[derive(Debug, Clone)]
enum Event {
    Wait(Duration),
    Register(Box<VolumeSpec>),
    Deregister {
        force: bool,
    },
    Take {
        alloc: AllocId,
        mode: Mode,
        access: Option<AccessMode>,
        wait: bool,
        way: Way,
    },
    Release {
        alloc: AllocId,
        epoch: Option<u64>,
    },
    Confirm {
        alloc: AllocId,
        earlier: bool,
    },
    Begin {
        alloc: AllocId,
        wanted: bool,
        early: bool,
        seen: Option<Seen>,
    },
    /// The current attempt of the alloc's claim is answered.
    Answer {
        alloc: AllocId,
        outcome: Outcome,
        goes_on: bool,
    },
    /// Any attempt there ever was is answered, by its number.
    Late {
        alloc: AllocId,
        attempt: usize,
        outcome: Outcome,
    },
    Storage(StorageEvent),
}

type Way = Result<Route, NoRoute>;

/// What was seen of the claim before a proof for its node was read.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// The claim as it is.
    Claim,
    /// An earlier claim of the same alloc.
    Earlier,
    /// A claim of another node.
    Elsewhere,
}

fn event() -> impl Strategy<Value = Event> {
    let alloc = || name::<AllocId>('a', 4);
    let asked = (alloc(), mode(), option::weighted(0.2, access()), any::<bool>(), route());
    let seen =
        prop_oneof![3 => Just(Seen::Claim), 1 => Just(Seen::Earlier), 1 => Just(Seen::Elsewhere)];
    prop_oneof![
        4 => (0..90_000_u64).prop_map(|ms| Event::Wait(Duration::from_millis(ms))),
        1 => vec(capability(), 1..4)
            .prop_map(|capabilities| VolumeSpec { capabilities: capabilities.into(), ..spec(&[]) })
            .prop_map(|spec| Event::Register(Box::new(spec))),
        1 => any::<bool>().prop_map(|force| Event::Deregister { force }),
        8 => asked.prop_map(|(alloc, mode, access, wait, way)| {
            Event::Take { alloc, mode, access, wait, way }
        }),
        2 => (alloc(), option::weighted(0.3, 0..40_u64))
            .prop_map(|(alloc, epoch)| Event::Release { alloc, epoch }),
        2 => (alloc(), any::<bool>())
            .prop_map(|(alloc, earlier)| Event::Confirm { alloc, earlier }),
        8 => (alloc(), any::<bool>(), any::<bool>(), option::weighted(0.2, seen)).prop_map(
            |(alloc, wanted, early, seen)| Event::Begin { alloc, wanted, early, seen }
        ),
        8 => (alloc(), prop_oneof![2 => Just(done()), 1 => outcome()], any::<bool>())
            .prop_map(|(alloc, outcome, goes_on)| Event::Answer { alloc, outcome, goes_on }),
        2 => (alloc(), 0..60_usize, outcome())
            .prop_map(|(alloc, attempt, outcome)| Event::Late { alloc, attempt, outcome }),
        20 => storage_event().prop_map(Event::Storage),
    ]
}

fn done() -> Outcome {
    Outcome::Done { publish_context: [("device".to_owned(), "/dev/x".to_owned())].into() }
}

/// What the event asks of the volume as it is.
fn command(world: &World, event: &Event) -> Option<Command> {
    Some(match event.clone() {
        Event::Wait(_) => return None,
        Event::Register(spec) => Command::Register(*spec),
        Event::Deregister { force } => Command::Deregister { force, reason: "asked".to_owned() },
        Event::Take { alloc, mode, access, wait, way } => {
            // Where an alloc is, it stays.
            let node = if alloc.as_str() < "a2" { "n1" } else { "n2" };
            let capability = CapabilityFilter { access, attachment: None };
            let asked = take(alloc.as_str(), node);
            let take = Take { mode, capability, wait, route: way, ..asked };
            let own = world.volume.claims.get(&alloc);
            match own.filter(|own| take.differs_from(own)) {
                Some(own) => {
                    let unmounted = own.mount.is_none().then_some(own.epoch);
                    Command::Change { take, unmounted }
                }
                None => Command::Take(take),
            }
        }
        Event::Release { alloc, epoch } => {
            Command::Release { alloc, epoch, reason: "asked".to_owned() }
        }
        Event::Confirm { alloc, earlier } => {
            let claim = world.volume.claims.get(&alloc)?;
            let epoch = claim.epoch - u64::from(earlier);
            let call = match claim.state {
                State::Unpublishing => CallKind::NodeDetach,
                _ => CallKind::ControllerUnpublish,
            };
            Command::Confirm { alloc, epoch, call, confirmation: proven(Seen::Claim, claim).proof }
        }
        Event::Begin { alloc, wanted, early, seen } => {
            let claim = world.volume.claims.get(&alloc);
            let proven = seen.zip(claim).map(|(seen, claim)| proven(seen, claim));
            Command::Begin(Begin {
                owner: CallOwner::Claim(alloc),
                worker: worker(),
                wanted,
                early,
                proven,
                executor: None,
            })
        }
        Event::Answer { alloc, outcome, goes_on } => {
            let attempt = world.volume.claims.get(&alloc)?.progress.attempt.as_ref()?.id.clone();
            Command::Answer {
                owner: CallOwner::Claim(alloc),
                attempt,
                outcome,
                worker: goes_on.then(worker),
            }
        }
        Event::Late { alloc, attempt, outcome } => {
            let attempt = AttemptId::new(format!("attempt-{attempt}")).unwrap();
            Command::Answer {
                owner: CallOwner::Claim(alloc),
                attempt,
                outcome,
                worker: Some(worker()),
            }
        }
        Event::Storage(event) => return storage_command(world, &event),
    })
}

fn proven(seen: Seen, claim: &Claim) -> Proven {
    let proof = Proof {
        kind: ProofKind::PoweredOff,
        by: "somebody".to_owned(),
        at: Timestamp::default(),
        note: String::new(),
    };
    let (node, epoch) = (claim.node.clone(), claim.epoch);
    match seen {
        Seen::Claim => Proven { node, epoch, proof },
        Seen::Earlier => Proven { node, epoch: epoch - 1, proof },
        Seen::Elsewhere => Proven { node: NodeId::new("n9").unwrap(), epoch, proof },
    }
}

/// The event, and what must hold of what it did. The world checks the invariants.
fn happen(world: &mut World, event: &Event) -> Result<(), TestCaseError> {
    if let Event::Wait(wait) = event {
        world.pass(*wait);
    }
    let Some(command) = command(world, event) else { return Ok(()) };
    let before = world.volume.clone();
    let Ok(step) = world.apply(&command) else { return Ok(()) };
    let context = world.context();
    one_write_then_one_call(&step, &command, &context)?;
    calls_are_alone(&world.volume, &context)?;
    nobody_passes_who_found_no_room(&before, &step, &command)?;
    for (alloc, old) in &before.claims {
        match world.volume.claims.get(alloc) {
            Some(new) if new == old => {}
            Some(new) => {
                what_is_kept_is_kept(old, new)?;
                what_is_new_was_said(old, new, &command)?;
                attempts_end_by_answers(old, new, &command, &context)?;
            }
            None => freed_for_a_reason(&before, alloc, old, &command, &context)?,
        }
    }
    again_is_harmless(world, &command)
}

/// Rules 1, 2 and 4: the call is the attempt that the write names, new, and with a deadline.
fn one_write_then_one_call(
    step: &Step,
    command: &Command,
    context: &Context,
) -> Result<(), TestCaseError> {
    if let Some(write) = &step.write {
        prop_assert!(may_write(command, write), "{command:?} wrote {write:?}");
    }
    let named = step.write.as_ref().and_then(named_attempt);
    prop_assert_eq!(step.call.as_ref(), named.filter(|named| named.id == context.attempt));
    if let Some(call) = &step.call {
        prop_assert_eq!(call.deadline, context.now.after(context.policy.call_timeout));
    }
    Ok(())
}

fn is_live(attempt: &Attempt, context: &Context) -> bool {
    attempt.may_still_act(context.now, context.policy.clock_margin)
}

/// Rule 3: a controller call that may act is alone on the volume, a node call alone on its node.
fn calls_are_alone(volume: &Volume, context: &Context) -> Result<(), TestCaseError> {
    let live = volume.claims.values().filter_map(|claim| {
        let attempt =
            claim.progress.attempt.as_ref().filter(|attempt| is_live(attempt, context))?;
        Some((&claim.node, attempt.call))
    });
    let live: Vec<_> = live.collect();
    for (at, (node, call)) in live.iter().enumerate() {
        for (other, their_call) in &live[at + 1..] {
            let apart = !call.is_controller() && !their_call.is_controller();
            prop_assert!(apart && node != other, "{call} beside {their_call}");
        }
    }
    Ok(())
}

/// From the grant to the last: where, how, by whom it was attached, and which claim it is. A claim
/// never goes back.
fn what_is_kept_is_kept(old: &Claim, new: &Claim) -> Result<(), TestCaseError> {
    prop_assert_eq!(&old.node, &new.node);
    prop_assert_eq!(old.mode, new.mode);
    prop_assert_eq!(old.epoch, new.epoch);
    prop_assert!(old.state <= new.state, "{} after {}", new.state, old.state);
    if old.state != State::Waiting {
        prop_assert_eq!(old.capability(), new.capability());
        prop_assert_eq!(old.controller, new.controller);
        prop_assert_eq!(&old.external_node, &new.external_node);
    }
    if old.state >= State::Taken {
        prop_assert_eq!(&old.publish_context, &new.publish_context);
    }
    Ok(())
}

/// Rule 12 and A7: a claim leaves its node by a proof only that is of this claim, and is out of
/// room only by the plugin's word.
fn what_is_new_was_said(old: &Claim, new: &Claim, command: &Command) -> Result<(), TestCaseError> {
    if new.proof != old.proof {
        prop_assert!(new.proof.is_some() && proves(command, old), "{command:?} proved nothing");
        prop_assert!(matches!(old.state, State::Taken | State::Unpublishing));
        prop_assert_eq!(new.state, State::NodeDetached);
    }
    if new.exhausted && !old.exhausted {
        let said = matches!(command, Command::Answer { outcome: Outcome::Exhausted(_), .. });
        prop_assert!(said, "{command:?} said nothing of room");
    }
    Ok(())
}

/// Whether the command brings a proof for this very claim.
fn proves(command: &Command, claim: &Claim) -> bool {
    let Command::Begin(Begin { proven: Some(proven), .. }) = command else { return false };
    proven.node == claim.node && proven.epoch == claim.epoch
}

/// A7: no reservation begins while the plugin has no room for another.
fn nobody_passes_who_found_no_room(
    before: &Volume,
    step: &Step,
    command: &Command,
) -> Result<(), TestCaseError> {
    let (Command::Take(take), Some(_)) = (command, &step.call) else { return Ok(()) };
    let begins = before.claims.get(&take.alloc).is_none_or(|own| own.state == State::Waiting);
    let is_full = before.claims.values().any(|claim| claim.exhausted);
    prop_assert!(!(begins && is_full), "{take:?} was published");
    Ok(())
}

/// Rules 3, 5, 6 and 12: an attempt leaves the record by its answer, when it may no longer act, or
/// when it is the node's, and the node is proven gone.
fn attempts_end_by_answers(
    old: &Claim,
    new: &Claim,
    command: &Command,
    context: &Context,
) -> Result<(), TestCaseError> {
    let Some(attempt) = &old.progress.attempt else { return Ok(()) };
    let stays = new.progress.attempt.as_ref() == Some(attempt);
    let replaced = new.progress.attempt.is_some() && !is_live(attempt, context);
    let answered = outcome_of(command, attempt).is_some();
    let proven = attempt.call == CallKind::NodeDetach && proves(command, old);
    prop_assert!(stays || replaced || answered || proven, "{command:?} ended {attempt:?}");
    Ok(())
}

/// What the command says came of this attempt, if it is an answer, and no timeout, of it.
fn outcome_of<'a>(command: &'a Command, current: &Attempt) -> Option<&'a Outcome> {
    match command {
        Command::Answer { outcome: Outcome::Unanswered(_), .. } => None,
        Command::Answer { attempt, outcome, .. } => {
            Some(outcome).filter(|_| *attempt == current.id)
        }
        _ => None,
    }
}

/// A claim is freed only by a call that succeeded, when it held nothing, when another claim on its
/// node is sure to make the call (rule 9), or by a person's word for a controller that has failed
/// (rule 16); never by time.
fn freed_for_a_reason(
    before: &Volume,
    alloc: &AllocId,
    old: &Claim,
    command: &Command,
    context: &Context,
) -> Result<(), TestCaseError> {
    let outcome = old.progress.attempt.as_ref().and_then(|attempt| outcome_of(command, attempt));
    let succeeded = match (&old.progress.attempt, outcome) {
        (Some(attempt), Some(Outcome::Done { .. })) => Some(attempt.call),
        _ => None,
    };
    let may_act = old.progress.attempt.as_ref().is_some_and(|attempt| is_live(attempt, context));
    let is_idle = outcome.is_some() || !may_act;
    let is_relied_on = |(other, claim): (&AllocId, &Claim)| {
        let will_unpublish = match claim.state {
            State::Waiting => false,
            State::Publishing | State::Taken | State::Unpublishing => true,
            State::NodeDetached => claim.progress.attempt.is_none() && !claim.denied,
        };
        let alike = claim.external_node == old.external_node;
        other != alloc && alike && claim.controller && will_unpublish
    };
    let others_stay = before.claims.iter().any(is_relied_on);
    let proven = proves(command, old);
    let fits = match old.state {
        State::Waiting => match command {
            Command::Release { .. }
            | Command::Change { .. }
            | Command::Begin(Begin { wanted: false, .. }) => true,
            _ => proven || old.place_until.is_some_and(|until| until < context.now),
        },
        State::Taken => proven && (!old.controller || others_stay),
        State::Unpublishing => {
            let has_left = proven || succeeded == Some(CallKind::NodeDetach);
            has_left && (!old.controller || others_stay)
        }
        State::Publishing | State::NodeDetached => {
            let word = matches!(command, Command::Confirm { epoch, .. } if *epoch == old.epoch);
            let confirmed = word && old.state == State::NodeDetached && old.denied && !may_act;
            let detached = succeeded == Some(CallKind::ControllerUnpublish);
            detached || confirmed || (is_idle && others_stay)
        }
    };
    prop_assert!(fits, "{command:?} freed {old:?}");
    Ok(())
}

/// The same once more, as when a reply was lost: nothing, or a refusal that says so.
fn again_is_harmless(world: &mut World, command: &Command) -> Result<(), TestCaseError> {
    let of_storage = match command {
        Command::Begin(begin) if begin.owner.is_of_storage() => Some(begin),
        _ => None,
    };
    let begins = matches!(command, Command::Take(_) | Command::Change { .. })
        || matches!(command, Command::Begin(begin) if !begin.owner.is_of_storage());
    match world.apply(command) {
        // A run that is over has its volume deleted, which the next one drives.
        Ok(_) if of_storage.is_some_and(|begin| !begin.wanted) => {}
        Ok(again) => prop_assert_eq!(again, Step::nothing(), "{:?}", command),
        Err(Refusal::NotDue { .. }) if of_storage.is_some() => {}
        Err(Refusal::NoSuchSnapshot(_)) => {}
        // `NotReady`: the first claim only began the creation.
        Err(Refusal::NotReady { .. } | Refusal::Busy { .. } | Refusal::NotDue { .. }) if begins => {
        }
        // What was written was that the place in line is kept; it is once.
        Err(_) if matches!(command, Command::Take(take) if take.route.is_err()) => {}
        Err(Refusal::AttachedAs { .. }) if begins => {}
        Err(Refusal::NoSuchClaim(_) | Refusal::StaleAttempt | Refusal::NoSuchVolume) => {}
        Err(refusal) => prop_assert!(false, "{command:?}: {refusal}"),
    }
    Ok(())
}

/// Whether this waits for a claim: nodes have to expand the volume, and none has it.
fn is_at_rest(world: &World, drive: &Command) -> bool {
    let expands = world.volume.spec.as_ref().and_then(VolumeSpec::operation);
    let expands = expands.is_some_and(|it| it.call() == CallKind::NodeExpand);
    let Command::Begin(Begin { owner: CallOwner::Volume, .. }) = drive else { return false };
    expands && world.volume.claims.is_empty()
}

/// Every call succeeds at once, and no other alloc wants the volume.
fn wind_down(world: &mut World) -> Result<(), TestCaseError> {
    for _ in 0..100 {
        let drives = drives(&world.volume);
        if world.volume.claims.is_empty() && drives.iter().all(|drive| is_at_rest(world, drive)) {
            return Ok(());
        }
        for drive in drives {
            let Command::Begin(Begin { owner, .. }) = &drive else { continue };
            let snapshot = match owner {
                CallOwner::Snapshot(id) => Some(id.clone()),
                _ => None,
            };
            let answer = StorageEvent::Settle { snapshot, outcome: None, flag: true };
            world.apply(&drive).ok();
            happen(world, &Event::Storage(answer))?;
        }
        for alloc in world.volume.claims.keys().cloned().collect::<Vec<_>>() {
            let (wanted, early, seen) = (false, false, None);
            happen(world, &Event::Begin { alloc: alloc.clone(), wanted, early, seen })?;
            happen(world, &Event::Answer { alloc, outcome: done(), goes_on: true })?;
        }
        world.pass(Policy::default().retry.max);
    }
    Err(TestCaseError::fail(format!("stuck: {:#?}", world.volume)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Safety 1, 2, 4 and 7 over random histories: the record is sound after each step, no call
    /// begins while another may act, nothing that a claim must keep is lost, nothing is freed but
    /// for a reason, and whatever is said twice is said once. From wherever a history has got to,
    /// all claims go when their allocs have ended.
    #[test]
    fn every_history_is_sound_and_can_end(
        access in access(), events in vec(event(), 1..80), registered in any::<bool>(),
    ) {
        let mut world = World::empty(&[access]);
        if registered {
            world.apply(&Command::Register(world.offered.clone())).unwrap();
        }
        for event in &events {
            happen(&mut world, event)?;
        }
        wind_down(&mut world)?;
    }
}
