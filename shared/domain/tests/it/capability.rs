//! Which of a volume's capabilities a claim gets.

use berth_domain::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter};
use berth_domain::volume::{Command, Refusal, Take, VolumeSpec, Write};

use crate::world::{World, spec, take};

const WRITER: AccessMode = AccessMode::SingleNodeWriter;
const DIRECTORY: AttachmentMode = AttachmentMode::FileSystem;
const BLOCK: AttachmentMode = AttachmentMode::BlockDevice;

fn capability(access: AccessMode, attachment: AttachmentMode) -> Capability {
    Capability { access, attachment }
}

fn offering(capabilities: &[Capability]) -> (World, VolumeSpec) {
    let mut world = World::with(&[WRITER]);
    let spec = VolumeSpec { capabilities: capabilities.to_vec().into(), ..spec(&[]) };
    world.apply(&Command::Register(spec.clone())).unwrap();
    (world, spec)
}

/// An earlier version gave a directory to a request for a block device without an access mode.
#[test]
fn what_is_given_narrows_the_choice_and_the_first_that_fits_is_used() {
    let multi = AccessMode::SingleNodeMultiWriter;
    let offered =
        [capability(WRITER, DIRECTORY), capability(WRITER, BLOCK), capability(multi, BLOCK)];
    for (access, attachment, expected) in [
        (None, None, Some(offered[0])),
        (None, Some(DIRECTORY), Some(offered[0])),
        (None, Some(BLOCK), Some(offered[1])),
        (Some(WRITER), None, Some(offered[0])),
        (Some(multi), None, Some(offered[2])),
        (Some(WRITER), Some(BLOCK), Some(offered[1])),
        (Some(multi), Some(DIRECTORY), None),
        (Some(AccessMode::MultiNodeReaderOnly), None, None),
    ] {
        let (mut world, _) = offering(&offered);
        let capability = CapabilityFilter { access, attachment };
        match (world.apply(&Command::Take(Take { capability, ..take("a", "n1") })), expected) {
            (Ok(step), Some(expected)) => {
                let Some(Write::PutClaim(_, claim)) = step.write else { panic!("no claim") };
                assert_eq!(claim.capability(), expected, "{capability}");
            }
            (Err(refusal @ Refusal::CapabilityNotOffered { .. }), None) => {
                let said = refusal.to_string();
                assert!(said.contains(&capability.to_string()), "{said}");
                assert!(said.contains("single-node-writer/block-device"), "{said}");
            }
            (other, _) => panic!("{capability}: {other:?}"),
        }
    }
    let (mut directories, _) = offering(&offered[..1]);
    let capability = CapabilityFilter { access: None, attachment: Some(BLOCK) };
    let take = Take { capability, ..take("a", "n1") };
    let refusal = directories.apply(&Command::Take(take)).unwrap_err();
    assert!(matches!(refusal, Refusal::CapabilityNotOffered { .. }), "{refusal:?}");
}

/// A claim that names no capability gets the first one.
#[test]
fn another_order_of_capabilities_is_a_change_and_refused_while_claimed() {
    let (mut world, mut spec) =
        offering(&[capability(WRITER, DIRECTORY), capability(WRITER, BLOCK)]);
    assert_eq!(world.apply(&Command::Register(spec.clone())).unwrap().write, None);
    spec.capabilities.change(|all| all.reverse());
    let step = world.apply(&Command::Register(spec.clone())).unwrap();
    assert!(matches!(step.write, Some(Write::PutSpec(_))), "{step:?}");
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    spec.capabilities.change(|all| all.reverse());
    match world.apply(&Command::Register(spec)).unwrap_err() {
        Refusal::UnsafeUpdate { fields, .. } => assert_eq!(fields, ["capability"]),
        other => panic!("{other:?}"),
    }
}
