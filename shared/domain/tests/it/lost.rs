//! A registration is lost while claims stand: they stay claims of the volume that they were granted
//! for (rules 15 and 17).

use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::volume::{
    Begin, CallOwner, Claim, Claims, Command, Context, Handle, HandleUse, LostClaim, Refusal,
    State, Step, Volume, VolumeSpec, Write, step,
};
use berth_domain::{NodeId, PluginId};

use crate::fixture::{claim, context, volume};
use crate::storage_event::{provision, with_provision};
use crate::world::{alloc, begin, release, spec, take, worker};

const EXCLUSIVE: AccessMode = AccessMode::SingleNodeWriter;

fn handle(external_id: &str) -> Handle {
    Handle { plugin: PluginId::new("p").unwrap(), external_id: external_id.to_owned() }
}

/// A claim that was granted for the volume with this id; of an older version if none.
fn granted(state: State, external_id: Option<&str>) -> Claim {
    let of = external_id.map(handle);
    Claim {
        plugin: of.as_ref().map(|of| of.plugin.clone()),
        external_id: of.map(|of| of.external_id),
        ..claim(EXCLUSIVE, state, "n1")
    }
}

/// Below the name stands this claim, and no volume is registered.
fn lost(claim: Claim) -> Volume {
    Volume { spec: None, ..volume(EXCLUSIVE, [("a", claim)]) }
}

/// Decides for a volume that has, or is to have, this id.
fn decide(volume: &Volume, command: &Command, external_id: &str) -> Result<Step, Refusal> {
    let handle = HandleUse { own: Some(handle(external_id)), ..HandleUse::default() };
    step(volume, command, &Context { handle, ..context() })
}

fn register(external_id: &str) -> Command {
    Command::Register(VolumeSpec {
        external_id: Some(external_id.to_owned()),
        ..spec(&[EXCLUSIVE])
    })
}

fn is_refused(decided: &Result<Step, Refusal>) -> bool {
    matches!(decided, Err(Refusal::OtherVolumesClaims { holders }) if holders.named.len() == 1)
}

#[test]
fn a_name_with_claims_is_given_to_no_other_volume() {
    use State::{NodeDetached, Publishing, Taken, Unpublishing, Waiting};
    let create = Command::Create(with_provision(spec(&[EXCLUSIVE]), provision("fleet-1")));
    for state in [Publishing, Taken, Unpublishing, NodeDetached] {
        for of in [Some("old"), None] {
            let volume = lost(granted(state, of));
            // A creation makes another volume at the storage.
            assert!(is_refused(&decide(&volume, &create, "new")), "{state} {of:?}");
            // Only a claim that says so is known to be of another one. The registration of the very
            // volume may be restored.
            let refused = is_refused(&decide(&volume, &register("new"), "new"));
            assert_eq!(refused, of.is_some(), "{state} {of:?}");
            assert!(decide(&volume, &register("old"), "old").is_ok(), "{state} {of:?}");
        }
    }
    // A place in line holds nothing.
    let line = lost(granted(Waiting, Some("old")));
    assert!(
        decide(&line, &create, "new").is_ok() && decide(&line, &register("new"), "new").is_ok()
    );
}

#[test]
fn a_claim_of_another_volume_is_released_and_not_granted_again() {
    let mut registered = volume(EXCLUSIVE, [("a", granted(State::Taken, Some("old")))]);
    let again = Command::Take(take("a", "n1"));
    assert!(is_refused(&decide(&registered, &again, "new")));
    assert_eq!(decide(&registered, &again, "old"), Ok(Step::nothing()));
    for gone in [false, true] {
        if gone {
            registered.spec = None;
        }
        let Some(Write::PutClaim(_, leaving)) =
            decide(&registered, &release("a"), "new").unwrap().write
        else {
            panic!("gone: {gone}")
        };
        assert_eq!(leaving.handle(), Some(handle("old")), "it stays what it is");
        let leaving =
            Volume { spec: registered.spec.clone(), ..volume(EXCLUSIVE, [("a", leaving)]) };
        let begun = decide(&leaving, &begin("a", false), "new").unwrap();
        assert!(begun.call.is_some(), "gone: {gone}");
    }
}

#[test]
fn a_new_claim_says_which_volume_it_is_of_and_an_older_one_does_with_its_next_write() {
    let of_write = |decided: Result<Step, Refusal>| match decided.unwrap().write {
        Some(Write::PutClaim(_, claim)) => claim.handle(),
        other => panic!("{other:?}"),
    };
    let free = volume(EXCLUSIVE, []);
    let granted_now = decide(&free, &Command::Take(take("a", "n1")), "vol");
    assert_eq!(of_write(granted_now), Some(handle("vol")));
    // A claim that was made before this registration may be of another volume.
    for (create_index, expected) in [(9, Some(handle("vol"))), (11, None), (0, None)] {
        let mut older = volume(EXCLUSIVE, [("a", granted(State::Taken, None))]);
        older.spec.as_mut().unwrap().create_index = create_index;
        let released = of_write(decide(&older, &release("a"), "vol"));
        assert_eq!(released, expected, "registered at {create_index}, claimed at 10");
    }
}

/// An operator has unmounted, on n1, what alloc `a` had of the volume `old`.
fn recover() -> Command {
    Command::Recover(LostClaim {
        alloc: alloc("a"),
        node: NodeId::new("n1").unwrap(),
        mode: Mode::Write,
        capability: Capability { access: EXCLUSIVE, attachment: AttachmentMode::FileSystem },
        handle: handle("old"),
        route: take("a", "n1").route,
    })
}

/// Until the storage has detached the volume, nobody else is granted it, and it is not deleted.
#[test]
fn a_lost_claim_is_recovered_in_release_also_where_the_registration_is_lost() {
    let free = volume(EXCLUSIVE, []);
    for before in [free.clone(), Volume { spec: None, ..free.clone() }] {
        let Some(Write::PutClaim(_, claim)) = decide(&before, &recover(), "old").unwrap().write
        else {
            panic!("{before:?}")
        };
        assert_eq!((claim.state, claim.handle()), (State::Unpublishing, Some(handle("old"))));
        assert!(claim.controller && claim.external_node.is_some(), "{claim:?}");
        let after = Volume { spec: before.spec, ..volume(EXCLUSIVE, [("a", claim)]) };
        assert_eq!(decide(&after, &recover(), "old"), Ok(Step::nothing()), "repeated");
        assert!(decide(&after, &Command::Take(take("b", "n2")), "old").is_err());
        assert!(decide(&after, &begin("a", false), "old").unwrap().call.is_some());
    }
    // Nobody in line is before it.
    let line = volume(EXCLUSIVE, [("b", granted(State::Waiting, None))]);
    assert!(decide(&line, &recover(), "old").unwrap().write.is_some());
    // A claim that holds the volume elsewhere stays alone on the record.
    let held = volume(EXCLUSIVE, [("b", granted(State::Taken, Some("old")))]);
    assert!(matches!(decide(&held, &recover(), "old"), Err(Refusal::Held { .. })));
    // The name is another volume's by now. The mount of the old one does no harm meanwhile.
    let other = volume(EXCLUSIVE, [("b", granted(State::Unpublishing, Some("new")))]);
    assert!(is_refused(&decide(&other, &recover(), "new")));
}

#[test]
fn a_volume_is_not_deleted_at_its_storage_before_a_recovered_claim_is_released() {
    let made = with_provision(spec(&[EXCLUSIVE]), provision("fleet-1"));
    let made = VolumeSpec { external_id: Some("old".to_owned()), ..made };
    let mut volume = Volume { spec: Some(made), ..volume(EXCLUSIVE, []) };
    let put = |volume: &mut Volume, step: Step| match step.write {
        Some(Write::PutSpec(spec)) => volume.spec = Some(spec),
        Some(Write::PutClaim(alloc, claim)) => drop(volume.claims.insert(alloc, claim)),
        other => panic!("{other:?}"),
    };
    let delete = decide(&volume, &Command::Delete { reason: String::new() }, "old").unwrap();
    put(&mut volume, delete);
    let recovered = decide(&volume, &recover(), "old").unwrap();
    put(&mut volume, recovered);
    let drive = Command::Begin(Begin {
        owner: CallOwner::Volume,
        worker: worker(),
        wanted: false,
        early: true,
        proven: None,
        executor: None,
    });
    let waits = decide(&volume, &drive, "old");
    assert!(matches!(waits, Err(Refusal::NotDue { .. })), "{waits:?}");
    volume.claims = Claims::default();
    assert!(decide(&volume, &drive, "old").unwrap().call.is_some());
}
