//! Mounts that no claim covers: nothing is destroyed or forgotten under them (rules 15 and 21).

use berth_domain::volume::{MountDoubt, UnaccountedMount};
use berth_domain::{AllocId, Namespace, PluginId};

use super::*;

fn mount() -> MountDoubt {
    let mount = UnaccountedMount {
        namespace: Namespace::default(),
        volume: VolumeId::new("data").unwrap(),
        alloc: AllocId::new("a").unwrap(),
        path: text("/p"),
        plugin: Some(PluginId::new("p").unwrap()),
        external_id: Some(text("vol-1")),
        used: None,
    };
    MountDoubt::mounted(&NodeId::new("n1").unwrap(), &mount)
}

fn doubts() -> [MountDoubt; 3] {
    let hidden = mount().as_seen_in(&Namespace::new("other").unwrap());
    [mount(), hidden, MountDoubt::not_said(&NodeId::new("n2").unwrap())]
}

fn deregister(force: bool) -> Command {
    Command::Deregister { force, reason: text("asked") }
}

#[test]
fn a_volume_that_may_be_mounted_is_neither_deleted_nor_forgotten_nor_exchanged() {
    for doubt in doubts() {
        let in_doubt = Err(Refusal::MayBeMounted { mounts: vec![doubt.clone()] });
        let mut world = World::created_volume();
        world.mounts = vec![doubt.clone()];
        assert_eq!(world.delete(), in_doubt, "{doubt}");
        assert_eq!(world.apply(&deregister(false)), in_doubt, "{doubt}");
        world.mounts.clear();
        world.delete().unwrap();
        assert_eq!(world.stage(), Stage::Deleting);

        // By force it closes, and its record goes once it is mounted nowhere.
        let mut world = World::created_volume();
        world.mounts = vec![doubt.clone()];
        world.apply(&deregister(true)).unwrap();
        for force in [true, false] {
            assert_eq!(world.apply(&deregister(force)), Ok(Step::nothing()), "{doubt}");
        }
        world.mounts.clear();
        assert!(deletes_spec(&world.apply(&deregister(false)).unwrap()), "{doubt}");

        // Registering it with another id forgets the volume that has the mount.
        let mut world = World::with(EXCLUSIVE);
        world.mounts = vec![doubt.clone()];
        let other = VolumeSpec { external_id: Some(text("other")), ..world.offered.clone() };
        assert_eq!(world.apply(&Command::Register(other.clone())), in_doubt, "{doubt}");
        let renamed = VolumeSpec { name: text("for people").into(), ..world.offered.clone() };
        world.apply(&Command::Register(renamed)).unwrap();
        world.mounts.clear();
        world.apply(&Command::Register(other)).unwrap();
    }
}

#[test]
fn an_accepted_deletion_waits_for_a_mount_that_is_found_later_and_goes_on_by_itself() {
    let mut world = World::created_volume();
    world.delete().unwrap();
    for doubt in doubts() {
        world.mounts = vec![doubt.clone()];
        let step = world.drive().unwrap();
        assert_eq!(step.call, None, "{doubt}");
        assert_eq!(world.operation().mounted.as_deref(), Some(&doubt), "the record says it");
        // It is said once.
        let again = world.drive();
        assert_eq!(again, Err(Refusal::NotDue { next_try: None }), "{doubt}");
        assert_eq!(world.delete().unwrap(), Step::nothing(), "the deletion stays accepted");
    }
    world.mounts.clear();
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeDelete));
    assert_eq!(world.operation().mounted, None);
    // A call that was not answered is not repeated either.
    world.settle(unanswered()).unwrap();
    world.pass_all_deadlines();
    world.mounts = vec![mount()];
    assert_eq!(world.drive().unwrap().call, None);
    world.mounts.clear();
    world.drive().unwrap();
    // Nor is one that failed: the mount is what it waits for, and no time.
    world.settle(failed()).unwrap();
    assert!(world.operation().progress.calls.next_try.is_some());
    world.pass_all_deadlines();
    world.mounts = vec![mount()];
    world.drive().unwrap();
    assert_eq!(world.operation().progress.calls.next_try, None);
    world.mounts.clear();
    world.drive().unwrap();
    assert!(deletes_spec(&world.settle(done()).unwrap()));
}

#[test]
fn the_volume_of_a_run_is_kept_while_it_may_be_mounted() {
    let of_run = Provision { for_alloc: Some(alloc("run")), ..provision("fleet-1") };
    let mut world = World::creating_as(of_run);
    world.drive().unwrap();
    world.settle(created(made())).unwrap();
    world.mounts = vec![mount()];
    let over = drive_by(None, false, None);
    assert_eq!(world.apply(&over), Err(Refusal::MayBeMounted { mounts: vec![mount()] }));
    world.mounts.clear();
    world.apply(&over).unwrap();
    assert_eq!(world.stage(), Stage::Deleting);
}

#[test]
fn an_expansion_waits_for_a_mount_only_where_the_plugin_needs_the_volume_out_of_use() {
    for (offline, call) in [(true, None), (false, Some(CallKind::VolumeExpand))] {
        let mut world = World::created_volume();
        let expand = Command::Expand {
            required_bytes: 9,
            limit_bytes: None,
            offline,
            node_only: false,
            when_free: true,
        };
        world.apply(&expand).unwrap();
        world.mounts = vec![mount()];
        assert_eq!(call_of(&world.drive().unwrap()), call, "offline: {offline}");
    }
}
