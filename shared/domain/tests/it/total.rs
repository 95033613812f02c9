//! Two whole tables, as golden files: what every command does in every state, and who may join whom
//! in every access mode. `INSTA_UPDATE=always` writes them again. The commit that changes a line
//! says why the change is safe.

use std::fmt::Write as _;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::proof::{Proof, ProofKind, Proven};
use berth_domain::volume::{
    Attempt, Begin, CallKind, CallOwner, Claim, Closing, Command, Handle, LostClaim, NodeMount,
    NodeMountState, Outcome, Refusal, State, Step, Take, Volume, VolumeSpec, Write,
};
use berth_domain::{AttemptId, NodeId, Timestamp};

use crate::fixture::{claim, dead, decide, failed, live, volume, with};
use crate::world::{alloc, spec, take, worker};

use CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
use State::{NodeDetached, Publishing, Taken, Unpublishing, Waiting};

const SHARED: AccessMode = AccessMode::MultiNodeMultiWriter;

/// The write, `+` the call that is made or `~` one that is kept, and what else the claim says; or
/// the name of the refusal.
fn words(decided: &Result<Step, Refusal>) -> String {
    let step = match decided {
        Ok(step) => step,
        Err(refusal) => {
            let all = format!("{refusal:?}");
            let name = all.split(['(', ' ']).next().unwrap_or_default();
            return format!("- {name}");
        }
    };
    let call = step.call.as_ref();
    match &step.write {
        None => "nothing".to_owned(),
        Some(Write::PutSpec(spec)) if spec.closing.is_some() => "close".to_owned(),
        Some(Write::PutSpec(_)) => "spec".to_owned(),
        Some(Write::DeleteSpec) => "spec deleted".to_owned(),
        Some(Write::DeleteClaim(_)) => "freed".to_owned(),
        Some(Write::PutSnapshot(..) | Write::DeleteSnapshot(_)) => "snapshot".to_owned(),
        Some(Write::PutClaim(_, claim)) => {
            let made = call.map(|call| format!(" + {}", call.call));
            let kept = claim.progress.attempt.as_ref().filter(|_| call.is_none());
            let kept = kept.map(|kept| format!(" ~ {}", kept.call));
            let marks = [
                claim.exhausted.then_some(" full"),
                claim.denied.then_some(" denied"),
                claim.unstaged_by.as_ref().map(|_| " with a word"),
                claim.progress.next_try.map(|_| " retry"),
                claim.proof.as_ref().map(|_| " proof"),
                claim.place_until.map(|_| " place kept"),
            ];
            let marks: String = marks.into_iter().flatten().collect();
            let calls = made.or(kept).unwrap_or_default();
            format!("{}{calls}{marks}", claim.state)
        }
    }
}

fn past() -> Timestamp {
    Timestamp::from_unix_ms(1)
}

fn ahead() -> Timestamp {
    Timestamp::from_unix_ms(1_000_000_000 + 20_000)
}

/// A claim in each state, with each attempt it may have.
fn states() -> Vec<(String, Claim)> {
    let of = |state| claim(SHARED, state, "n1");
    let mut states = vec![
        ("waiting".to_owned(), of(Waiting)),
        ("waiting, place kept".to_owned(), Claim { place_until: Some(ahead()), ..of(Waiting) }),
        ("waiting, place lost".to_owned(), Claim { place_until: Some(past()), ..of(Waiting) }),
        ("publishing, just failed".to_owned(), failed(of(Publishing), Some(ahead()))),
        ("publishing, found no room".to_owned(), Claim { exhausted: true, ..of(Publishing) }),
        ("taken".to_owned(), of(Taken)),
        ("unpublishing, just failed".to_owned(), failed(of(Unpublishing), Some(ahead()))),
    ];
    for (state, calls) in [
        (Publishing, &[ControllerPublish][..]),
        (Unpublishing, &[NodeDetach]),
        (NodeDetached, &[ControllerUnpublish, ControllerPublish]),
    ] {
        states.push((format!("{state}, idle"), of(state)));
        for call in calls {
            states.push((format!("{state}, {call} may act"), with(of(state), live(*call))));
            states.push((format!("{state}, {call} unanswered"), with(of(state), dead(*call))));
        }
        states.push((format!("{state}, failed"), failed(of(state), None)));
    }
    let denied = || Claim { denied: true, ..failed(of(NodeDetached), None) };
    states.push((format!("{NodeDetached}, denied"), denied()));
    let on_node = || Claim { denied: true, ..failed(of(Unpublishing), None) };
    states.push((format!("{Unpublishing}, denied"), on_node()));
    states
        .push((format!("{Unpublishing}, denied, asked again"), with(on_node(), dead(NodeDetach))));
    let unanswered = with(denied(), dead(ControllerUnpublish));
    states.push((format!("{NodeDetached}, denied, asked again"), unanswered));
    states
}

fn proven(epoch: u64) -> Proven {
    let proof =
        Proof { kind: ProofKind::Confirmed, by: "ann".to_owned(), at: past(), note: String::new() };
    Proven { node: NodeId::new("n1").unwrap(), epoch, proof }
}

fn begins(wanted: bool, early: bool, proven: Option<Proven>) -> Command {
    Command::Begin(Begin {
        owner: CallOwner::Claim(alloc("a1")),
        worker: worker(),
        wanted,
        early,
        proven,
        executor: None,
    })
}

fn answers(current: Option<&Attempt>) -> Vec<(String, Command)> {
    let no = || "no".into();
    let outcomes = [
        ("done", Outcome::Done { publish_context: [].into() }),
        ("failed", Outcome::Failed(no())),
        ("not asked", Outcome::Unasked(no())),
        ("no room", Outcome::Exhausted(no())),
        ("refused", Outcome::Refused(no())),
        ("no answer", Outcome::Unanswered(no())),
    ];
    let another = AttemptId::new("another").unwrap();
    let mut answers = Vec::new();
    for (of, id) in [("its", current.map(|attempt| &attempt.id)), ("another", Some(&another))] {
        for (name, outcome) in outcomes.clone() {
            let Some(attempt) = id.cloned() else { continue };
            let worker = Some(worker());
            let command =
                Command::Answer { owner: CallOwner::Claim(alloc("a1")), attempt, outcome, worker };
            answers.push((format!("{of} call: {name}"), command));
        }
    }
    answers
}

/// Every command there is, with all that decides how it goes.
fn commands(claim: Option<&Claim>, spec: &VolumeSpec) -> Vec<(String, Command)> {
    let take = |name, node| take(name, node);
    let take_to_read = || Take { mode: Mode::Read, ..take("a1", "n1") };
    let change = |take, is_unmounted: bool| {
        let epoch = claim.map_or(0, |claim| claim.epoch);
        Command::Change { take, unmounted: is_unmounted.then_some(epoch) }
    };
    let deregister = |force| Command::Deregister { force, reason: "gone".to_owned() };
    let release =
        |epoch| Command::Release { alloc: alloc("a1"), epoch, reason: "by hand".to_owned() };
    let confirm = |epoch, call| {
        let word = proven(epoch).proof;
        Command::Confirm { alloc: alloc("a1"), epoch, call, confirmation: word }
    };
    let observe = |epoch| {
        let (state, since) = (NodeMountState::Mounted, past());
        let mount = NodeMount { state, since, rpc: None, tries: 0, error: None };
        Command::Observe { alloc: alloc("a1"), epoch, mount, node: None }
    };
    let recover = |name, node: &str| {
        let capability = Capability { access: SHARED, attachment: AttachmentMode::FileSystem };
        let handle = Handle { plugin: spec.plugin.clone(), external_id: "vol".to_owned() };
        let (node, mode, route) = (NodeId::new(node).unwrap(), Mode::Write, take(name, "n1").route);
        Command::Recover(LostClaim { alloc: alloc(name), node, mode, capability, handle, route })
    };
    let named = |update: VolumeSpec| Command::Register(update);
    let own = [
        ("take", Command::Take(take("a1", "n1"))),
        ("take, wait", Command::Take(Take { wait: true, ..take("a1", "n1") })),
        ("take elsewhere", Command::Take(take("a1", "n2"))),
        ("take to read", Command::Take(Take { mode: Mode::Read, ..take("a1", "n1") })),
        ("another takes, here", Command::Take(take("a2", "n1"))),
        ("another takes, elsewhere", Command::Take(take("a2", "n2"))),
        ("change to read", change(take_to_read(), true)),
        ("change to read, mounted", change(take_to_read(), false)),
        ("another waits", Command::Take(Take { wait: true, ..take("a2", "n2") })),
        ("recover", recover("a1", "n1")),
        ("recover elsewhere", recover("a1", "n2")),
        ("recover another's", recover("a2", "n1")),
        ("release", release(None)),
        ("release an earlier claim", release(Some(9))),
        ("confirm", confirm(10, ControllerUnpublish)),
        ("confirm an earlier claim", confirm(9, ControllerUnpublish)),
        ("confirm for its node", confirm(10, NodeDetach)),
        ("observe", observe(10)),
        ("observe an earlier claim", observe(9)),
        ("begin, wanted", begins(true, false, None)),
        ("begin, ended", begins(false, false, None)),
        ("begin, ended, early", begins(false, true, None)),
        ("begin, wanted, node gone", begins(true, false, Some(proven(10)))),
        ("begin, wanted, node was gone", begins(true, false, Some(proven(9)))),
        ("register the same", named(spec.clone())),
        (
            "register another name",
            named(VolumeSpec { name: "b".to_owned().into(), ..spec.clone() }),
        ),
        (
            "register another id",
            named(VolumeSpec { external_id: Some("b".to_owned()), ..spec.clone() }),
        ),
        ("deregister", deregister(false)),
        ("deregister by force", deregister(true)),
    ];
    let own = own.map(|(name, command)| (name.to_owned(), command));
    let current = claim.and_then(|claim| claim.progress.attempt.as_ref());
    own.into_iter().chain(answers(current)).collect()
}

fn section(table: &mut String, name: &str, volume: &Volume, of: &VolumeSpec) {
    writeln!(table, "{name}").unwrap();
    for (command, asked) in commands(volume.claims.values().next(), of) {
        let came = words(&decide(volume, &asked));
        writeln!(table, "    {command:<32}{came}").unwrap();
    }
}

/// Total: every state, every command, every outcome. What is refused is refused by name.
#[test]
fn every_command_in_every_state() {
    let mut table = String::new();
    let of = spec(&[SHARED]);
    section(&mut table, "not registered", &Volume::default(), &of);
    section(&mut table, "no claims", &volume(SHARED, []), &of);
    for (name, claim) in states() {
        section(&mut table, &name, &volume(SHARED, [("a1", claim)]), &of);
    }
    let closing = Some(Box::new(Closing { since: past(), reason: "gone".to_owned() }));
    for (name, claim) in states() {
        if claim.progress.attempt.is_none() {
            let mut volume = volume(SHARED, [("a1", claim)]);
            volume.spec = Some(VolumeSpec { closing: closing.clone(), ..of.clone() });
            section(&mut table, &format!("closing; {name}"), &volume, &of);
        }
    }
    insta::assert_snapshot!(table);
}

/// A claim that is there already, or ahead in the queue.
#[derive(Clone, Copy)]
struct Other {
    state: State,
    mode: Mode,
    node: &'static str,
    /// Whether it uses the volume in the way that is asked for.
    alike: bool,
}

fn other(state: State, mode: Mode, node: &'static str) -> Other {
    Other { state, mode, node, alike: true }
}

/// Whether a newcomer to `n1` may join, in this capability.
fn joins(capability: Capability, mode: Mode, others: &[Other]) -> String {
    let Capability { access, attachment } = capability;
    let unlike = match attachment {
        AttachmentMode::FileSystem => AttachmentMode::BlockDevice,
        AttachmentMode::BlockDevice => AttachmentMode::FileSystem,
    };
    let mut volume = volume(access, []);
    let both = [attachment, unlike].map(|attachment| Capability { access, attachment });
    volume.spec = Some(VolumeSpec { capabilities: both.to_vec().into(), ..spec(&[]) });
    for (at, other) in others.iter().enumerate() {
        let attachment = if other.alike { attachment } else { unlike };
        let held = claim(access, other.state, other.node);
        let held = Claim { mode: other.mode, attachment, ..held };
        volume.claims.insert(alloc(&format!("a{at}")), held);
    }
    let asked = Take { mode, capability: capability.into(), ..take("newcomer", "n1") };
    match decide(&volume, &Command::Take(asked)) {
        Ok(_) => "yes".to_owned(),
        Err(Refusal::Held { conflict, .. }) => format!("{conflict:?}"),
        Err(Refusal::AccessInUse { .. }) => "OtherUse".to_owned(),
        Err(Refusal::NoWriters { .. }) => "NoWriters".to_owned(),
        Err(refusal) => format!("{refusal:?}"),
    }
}

/// Safety 1 and 2, B3: all seven access modes, both attachment modes, reading and writing, against
/// the claims that may be there. A claim in release counts like a held one (rule 7).
#[test]
fn who_may_join_whom() {
    use Mode::{Read, Write};
    let columns: [(&str, &[Other]); 10] = [
        ("alone", &[]),
        ("reader here", &[other(Taken, Read, "n1")]),
        ("writer here", &[other(Taken, Write, "n1")]),
        ("reader there", &[other(Taken, Read, "n2")]),
        ("writer there", &[other(Taken, Write, "n2")]),
        ("reserved there", &[other(Publishing, Write, "n2")]),
        ("leaving there", &[other(Unpublishing, Write, "n2")]),
        ("detached there", &[other(NodeDetached, Write, "n2")]),
        ("ahead in line", &[other(Waiting, Write, "n2")]),
        ("other use here", &[Other { alike: false, ..other(Taken, Read, "n1") }]),
    ];
    let mut table = String::new();
    let heads: Vec<String> = columns.iter().map(|(head, _)| format!("{head:<15}")).collect();
    let heads = heads.join(" ");
    writeln!(table, "{:<46}{}", "", heads.trim_end()).unwrap();
    for access in AccessMode::ALL {
        for attachment in [AttachmentMode::FileSystem, AttachmentMode::BlockDevice] {
            for mode in [Read, Write] {
                let capability = Capability { access, attachment };
                let cell = |(_, others): &(&str, &[Other])| {
                    format!("{:<15}", joins(capability, mode, others))
                };
                let cells: Vec<String> = columns.iter().map(cell).collect();
                let cells = cells.join(" ");
                let (access, attachment) = (access.as_str(), attachment.as_str());
                let row = format!("{access:<26}{attachment:<13}{mode:<7}{cells}");
                writeln!(table, "{}", row.trim_end()).unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}
