//! The plans as tables: what is known, what is asked, which calls follow.

use std::path::Path;

use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::volume::MountOptions;
use berth_domain::{Namespace, PluginId, Timestamp, VolumeId, VolumeKey};
use berth_host::Mount;

use super::detach::NewerClaim;
use super::republish::RepublishRefusal;
use super::*;
use crate::host::paths::Paths;
use crate::journal::{JournalledDetach, JournalledUse, OptionsFingerprint, UseState};

/// One volume on one node, as a row of a table describes it.
#[derive(Default)]
struct KnownVolume {
    journal: VolumeUses,
    mounts: Vec<PathBuf>,
    /// What alloc `a` is granted with.
    asked: MountOptions,
}

fn place(alloc: &str) -> VolumePaths {
    let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
    let plugin = PluginId::new("dev.berth").unwrap();
    Paths::new(Path::new("/s")).volume_paths(&plugin, &volume, &id(alloc))
}

fn table(points: &[PathBuf]) -> MountTable {
    let mount = |point: &PathBuf| Mount { point: point.clone(), ..Mount::default() };
    points.iter().map(mount).collect()
}

fn id(alloc: &str) -> AllocId {
    AllocId::new(alloc).unwrap()
}

impl KnownVolume {
    fn nothing() -> Self {
        Self::default()
    }

    fn journalled(mut self, alloc: &str, epoch: u64, state: UseState) -> Self {
        let place = place(alloc);
        let entry = JournalledUse {
            expansion: None,
            staged: false,
            disk: None,
            left_out: Vec::new(),
            contents: Vec::new(),
            by: None,
            state,
            epoch,
            plugin: PluginId::new("dev.berth").unwrap(),
            external_id: "vol-1".to_owned(),
            access: AccessMode::MultiNodeMultiWriter,
            attachment: AttachmentMode::FileSystem,
            mode: Mode::Write,
            staging: Some(place.staging),
            options: Some(OptionsFingerprint::salted_hash(&MountOptions::default(), [7; 16])),
            mount: MountOptions::default().summary(),
            target: place.target,
            boot_id: "boot".to_owned(),
            since: Timestamp::from_unix_ms(0),
        };
        self.journal.uses.insert(id(alloc), entry);
        self
    }

    fn intent(self, alloc: &str, epoch: u64) -> Self {
        self.journalled(alloc, epoch, UseState::Intent)
    }

    fn published(self, alloc: &str, epoch: u64) -> Self {
        self.journalled(alloc, epoch, UseState::Published).mounted(alloc)
    }

    fn without_staging(mut self, alloc: &str) -> Self {
        self.journal.uses.get_mut(&id(alloc)).unwrap().staging = None;
        self
    }

    fn mounted(mut self, alloc: &str) -> Self {
        self.mounts.push(place(alloc).target);
        self
    }

    fn staged(mut self) -> Self {
        self.mounts.push(place("any").staging);
        self
    }

    fn rebooted(mut self) -> Self {
        self.mounts.clear();
        self
    }

    fn detached(mut self, alloc: &str, epoch: u64, done: bool) -> Self {
        self.journal.detached.insert(id(alloc), JournalledDetach { epoch, done });
        self
    }

    /// What the grant of epoch 5 to alloc `a` leads to.
    fn mount(&self, stages: bool) -> Result<String, MountRefusal> {
        let mounts = table(&self.mounts);
        let place = place("a");
        let scene = VolumeOnNode { journal: &self.journal, mounts: &mounts, place: &place };
        let (attachment, options) = (AttachmentMode::FileSystem, &self.asked);
        let arrival = MountInput { alloc: &id("a"), epoch: 5, stages, attachment, options };
        plan_mount(scene, arrival).map(|calls| short(&calls))
    }

    /// What it takes to make alloc `a` of epoch 5 go.
    fn detach(&self, stages: bool) -> Result<String, NewerClaim> {
        let mounts = table(&self.mounts);
        let place = place("a");
        let scene = VolumeOnNode { journal: &self.journal, mounts: &mounts, place: &place };
        plan_detach(scene, DetachInput { alloc: &id("a"), epoch: 5, stages })
            .map(|calls| short(&calls))
    }
}

#[test]
fn dead_mounts_are_all_taken_down_before_any_comes_back() {
    let known = KnownVolume::nothing().published("a", 5).published("b", 6).staged();
    let turn = |known: &KnownVolume, who: &[(&str, u64)], stages| {
        let mounts = table(&known.mounts);
        let place = place("a");
        let scene = VolumeOnNode { journal: &known.journal, mounts: &mounts, place: &place };
        let target = |alloc: &str| self::place(alloc).target;
        let allocs: Vec<_> =
            who.iter().map(|(alloc, epoch)| (id(alloc), *epoch, target(alloc))).collect();
        plan_republish(scene, RepublishInput { allocs: &allocs, stages })
    };
    let all = turn(&known, &[("a", 5), ("b", 6)], true).unwrap();
    let (staging, a, b) = (place("a").staging, place("a").target, place("b").target);
    let down = [
        NodeCall::Unpublish { target: a.clone() },
        NodeCall::Unpublish { target: b.clone() },
        NodeCall::Unstage { staging: staging.clone() },
    ];
    assert_eq!(all.down, down);
    let publish = |target| NodeCall::Publish { staging: Some(staging.clone()), target };
    let stage = NodeCall::Stage { staging: staging.clone() };
    assert_eq!(all.up, [vec![stage, publish(a.clone())], vec![publish(b)]]);

    // Another's staging is left alone, and so is one that only the mount table knows of.
    let one = turn(&known, &[("a", 5)], true).unwrap();
    assert_eq!(one.down, [NodeCall::Unpublish { target: a.clone() }]);
    assert_eq!(one.up, [vec![publish(a.clone())]]);
    let unknown = KnownVolume::nothing().published("a", 5).mounted("b").staged();
    assert_eq!(turn(&unknown, &[("a", 5)], true).unwrap(), one);
    let unstaged = KnownVolume::nothing().published("a", 5);
    let bare = turn(&unstaged, &[("a", 5)], false).unwrap();
    assert_eq!(bare.up, [vec![NodeCall::Publish { staging: None, target: a }]]);

    // What was told to go, or is here by another claim, is not brought back.
    let leaving = KnownVolume::nothing().published("a", 5).detached("a", 5, false);
    let alloc = id("a");
    let refused = turn(&leaving, &[("a", 5)], true).unwrap_err();
    assert_eq!(refused, RepublishRefusal::Leaving { alloc: alloc.clone() });
    let refused = turn(&known, &[("a", 4)], true).unwrap_err();
    assert_eq!(refused, RepublishRefusal::Gone { alloc, epoch: 4 });
}

/// The calls in a few words; that their paths are alloc `a`'s is asserted on the way.
fn short(calls: &[NodeCall]) -> String {
    let (ours, words) = (place("a"), calls.iter());
    let word = |call: &NodeCall| match call {
        NodeCall::Stage { staging } => {
            assert_eq!(*staging, ours.staging);
            "stage"
        }
        NodeCall::Publish { staging, target } => {
            assert_eq!(*target, ours.target);
            match staging {
                Some(staging) => {
                    assert_eq!(*staging, ours.staging);
                    "publish"
                }
                None => "publish-unstaged",
            }
        }
        NodeCall::Unpublish { target } => {
            assert_eq!(*target, ours.target);
            "unpublish"
        }
        NodeCall::Unstage { staging } => {
            assert_eq!(*staging, ours.staging);
            "unstage"
        }
    };
    words.map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_mount_makes_the_calls_that_are_missing() {
    let nothing = KnownVolume::nothing;
    let table = [
        ("nothing is known", nothing(), "stage publish"),
        ("an intent may have done anything", nothing().intent("a", 5), "stage publish"),
        ("a staging mount proves nothing", nothing().intent("a", 5).staged(), "stage publish"),
        ("it is there", nothing().published("a", 5).staged(), ""),
        ("it is gone since a reboot", nothing().published("a", 5).rebooted(), "stage publish"),
        ("a mount without a journal", nothing().mounted("a").staged(), "stage publish"),
        ("another has it from the staging", nothing().published("b", 3), "publish"),
        ("another may have staged it", nothing().intent("b", 3).staged(), "stage publish"),
        ("another had it before a reboot", nothing().published("b", 3).rebooted(), "stage publish"),
        (
            "its own earlier claim was never undone here",
            nothing().published("a", 4),
            "unpublish unstage stage publish",
        ),
        (
            "its own earlier claim, beside another",
            nothing().published("a", 4).published("b", 3),
            "unpublish publish",
        ),
        ("it was told to go before this claim", nothing().detached("a", 4, true), "stage publish"),
        ("another was told to go", nothing().detached("b", 9, false), "stage publish"),
    ];
    for (case, known, calls) in table {
        assert_eq!(known.mount(true).as_deref(), Ok(calls), "{case}");
    }
}

/// One staging has one set of options: what another's was made with is not passed off as one's own.
#[test]
fn other_options_than_those_of_the_staging_are_refused() {
    let with = |known: KnownVolume, flags: &[&str]| {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        KnownVolume { asked: MountOptions { flags, ..MountOptions::default() }, ..known }
    };
    let differs = Err(MountRefusal::Differs { other: id("b") });
    let others = || KnownVolume::nothing().published("b", 3).staged();
    assert_eq!(with(others(), &["sync"]).mount(true), differs);
    assert_eq!(with(KnownVolume::nothing().intent("b", 3), &["sync"]).mount(true), differs);
    assert_eq!(with(others(), &[]).mount(true).as_deref(), Ok("publish"));
    // Nobody shares anything: the alloc's own earlier use goes first, and it is all there is.
    assert_eq!(
        with(KnownVolume::nothing().published("a", 5), &["sync"]).mount(true).as_deref(),
        Ok("")
    );
    let earlier = with(KnownVolume::nothing().published("a", 4), &["sync"]);
    assert_eq!(earlier.mount(true).as_deref(), Ok("unpublish unstage stage publish"));
    // Without a staging each publication has options of its own.
    let bare = || KnownVolume::nothing().published("b", 3).without_staging("b");
    assert_eq!(with(bare(), &["sync"]).mount(false).as_deref(), Ok("publish-unstaged"));
    // What an earlier version wrote says nothing.
    let mut unknown = others();
    unknown.journal.uses.get_mut(&id("b")).unwrap().options = None;
    assert_eq!(with(unknown, &["sync"]).mount(true).as_deref(), Ok("publish"));
    let mut device = others();
    device.journal.uses.get_mut(&id("b")).unwrap().attachment = AttachmentMode::BlockDevice;
    assert_eq!(device.mount(true), differs);
}

#[test]
fn a_plugin_that_does_not_stage_is_only_asked_to_publish() {
    let nothing = KnownVolume::nothing;
    let there = nothing().published("a", 5).without_staging("a");
    let earlier = nothing().published("a", 4).without_staging("a");
    for (known, calls) in [
        (nothing(), "publish-unstaged"),
        (nothing().published("b", 3).without_staging("b"), "publish-unstaged"),
        (there, ""),
        (earlier, "unpublish publish-unstaged"),
    ] {
        assert_eq!(known.mount(false).as_deref(), Ok(calls));
    }
    assert_eq!(nothing().detach(false).as_deref(), Ok("unpublish"));
    // What the journal says counts, also when the plugin says otherwise by now.
    let unstaged = nothing().published("a", 5).without_staging("a");
    assert_eq!(unstaged.detach(true).as_deref(), Ok("unpublish"));
    assert_eq!(nothing().published("a", 5).detach(false).as_deref(), Ok("unpublish unstage"));
}

/// Safety 3 and rule 10: without this, a grant that comes late mounts under the detach.
#[test]
fn a_grant_makes_no_call_once_the_alloc_was_told_to_go() {
    let void = |told| Err(MountRefusal::Detached { told, granted: 5 });
    for done in [false, true] {
        assert_eq!(KnownVolume::nothing().detached("a", 5, done).mount(true), void(5));
        assert_eq!(KnownVolume::nothing().detached("a", 6, done).mount(true), void(6));
        assert_eq!(
            KnownVolume::nothing().published("a", 5).detached("a", 5, done).mount(true),
            void(5)
        );
    }
    let superseded = KnownVolume::nothing().published("a", 6).mount(true);
    assert_eq!(superseded, Err(MountRefusal::Superseded { used: 6, granted: 5 }));
}

#[test]
fn a_detach_undoes_what_is_there_or_may_be() {
    let nothing = KnownVolume::nothing;
    let table = [
        ("the journal is lost", nothing(), "unpublish unstage"),
        (
            "the journal is lost, it is mounted",
            nothing().mounted("a").staged(),
            "unpublish unstage",
        ),
        ("an intent may have done anything", nothing().intent("a", 5), "unpublish unstage"),
        ("it is there", nothing().published("a", 5).staged(), "unpublish unstage"),
        (
            "it was there before a reboot",
            nothing().published("a", 5).rebooted(),
            "unpublish unstage",
        ),
        ("by an earlier claim", nothing().published("a", 4), "unpublish unstage"),
        ("another has it", nothing().published("a", 5).published("b", 3), "unpublish"),
        ("another may have it", nothing().published("a", 5).intent("b", 3), "unpublish"),
        ("another's mount, no journal", nothing().published("a", 5).mounted("b"), "unpublish"),
        ("lost, another's mount", nothing().mounted("b").staged(), "unpublish"),
        (
            "another is on its way out, and will unstage",
            nothing().published("a", 5).intent("b", 3).detached("b", 3, false),
            "unpublish",
        ),
        (
            "told before, not done",
            nothing().published("a", 5).detached("a", 5, false),
            "unpublish unstage",
        ),
        ("done", nothing().detached("a", 5, true), ""),
        ("done, for a later claim", nothing().detached("a", 6, true), ""),
        ("done, for an earlier claim", nothing().detached("a", 4, true), "unpublish unstage"),
        (
            "done, but it is mounted",
            nothing().detached("a", 5, true).mounted("a"),
            "unpublish unstage",
        ),
        ("told, its use unknown", nothing().detached("a", 5, false), "unpublish unstage"),
    ];
    for (case, known, calls) in table {
        assert_eq!(known.detach(true).as_deref(), Ok(calls), "{case}");
    }
}

#[test]
fn a_detach_of_an_earlier_claim_leaves_a_later_one_alone() {
    let later = KnownVolume::nothing().published("a", 6).detached("a", 4, true);
    assert_eq!(later.detach(true), Err(NewerClaim { used: 6, told: 5 }));
}

/// By value, never by a count: whatever the order, the volume is unstaged once, by the last.
#[test]
fn a_shared_volume_is_unstaged_by_the_last_to_go() {
    let both = KnownVolume::nothing().published("a", 5).published("b", 3).staged();
    assert_eq!(both.detach(true).as_deref(), Ok("unpublish"));
    let last = KnownVolume::nothing().published("a", 5).detached("b", 3, true).staged();
    assert_eq!(last.detach(true).as_deref(), Ok("unpublish unstage"));
}
