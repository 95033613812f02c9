//! The journal against a real disk: what was written is there after it is opened again.

use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::volume::MountOptions;
use berth_domain::{Namespace, PluginId, Timestamp, VolumeId};
use berth_durable::{Durable, DurableError};

use super::*;

fn volume(id: &str) -> VolumeKey {
    VolumeKey::new(Namespace::new("team a").unwrap(), VolumeId::new(id).unwrap())
}

fn alloc(id: &str) -> AllocId {
    AllocId::new(id).unwrap()
}

fn entry(state: UseState, epoch: u64) -> JournalledUse {
    JournalledUse {
        state,
        epoch,
        plugin: PluginId::new("dev.berth").unwrap(),
        external_id: "vol-1".to_owned(),
        access: AccessMode::MultiNodeMultiWriter,
        attachment: AttachmentMode::FileSystem,
        mode: Mode::Write,
        staging: Some("/s/staging".into()),
        staged: false,
        options: Some(OptionsFingerprint::salted_hash(&MountOptions::default(), [7; 16])),
        mount: MountOptions::default().summary(),
        target: "/s/a/target".into(),
        disk: None,
        left_out: Vec::new(),
        contents: Vec::new(),
        expansion: None,
        by: None,
        boot_id: "boot".to_owned(),
        since: Timestamp::from_unix_ms(1),
    }
}

#[tokio::test]
async fn what_was_written_is_there_after_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (data, logs) = (volume("data/1.x"), volume("logs"));
    let disk = Some(Disk { device: "7:3".to_owned(), seq: 41 });
    let published = JournalledUse { disk, ..entry(UseState::Published, 7) };
    {
        let journal = Journal::open(path.clone()).await.unwrap();
        journal.write_use(&data, &alloc("a"), entry(UseState::Intent, 7)).await.unwrap();
        journal.write_use(&data, &alloc("a"), published.clone()).await.unwrap();
        journal.write_use(&data, &alloc("b.2"), entry(UseState::Intent, 9)).await.unwrap();
        journal.write_use(&logs, &alloc("a"), published.clone()).await.unwrap();
        journal
            .write_detach(&data, &alloc("b.2"), JournalledDetach { epoch: 9, done: false })
            .await
            .unwrap();
        journal
            .write_detach(&logs, &alloc("a"), JournalledDetach { epoch: 7, done: false })
            .await
            .unwrap();
        journal
            .write_detach(&logs, &alloc("a"), JournalledDetach { epoch: 7, done: true })
            .await
            .unwrap();
    }
    let journal = Journal::open(path).await.unwrap();
    let mut expected = VolumeUses::default();
    expected.uses.insert(alloc("a"), published);
    expected.uses.insert(alloc("b.2"), entry(UseState::Intent, 9));
    expected.detached.insert(alloc("b.2"), JournalledDetach { epoch: 9, done: false });
    assert_eq!(journal.volume(&data), expected);
    let mut expected = VolumeUses::default();
    expected.detached.insert(alloc("a"), JournalledDetach { epoch: 7, done: true });
    assert_eq!(journal.volume(&logs), expected);
    assert_eq!(journal.uses().len(), 2);
}

#[tokio::test]
async fn what_was_staged_is_known_after_it_is_opened_again_and_is_an_intent_to_earlier_versions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let staged = JournalledUse { staged: true, ..entry(UseState::Intent, 7) };
    {
        let journal = Journal::open(path.clone()).await.unwrap();
        journal.write_use(&volume("data"), &alloc("a"), entry(UseState::Intent, 7)).await.unwrap();
        journal.write_use(&volume("data"), &alloc("a"), staged.clone()).await.unwrap();
    }
    let journal = Journal::open(path).await.unwrap();
    let known = journal.volume(&volume("data")).uses.remove(&alloc("a")).unwrap();
    assert_eq!((known.progress(), &known), ("staged", &staged));
    let stored = String::from_utf8(entry::encode_value(&staged).unwrap()).unwrap();
    assert!(stored.starts_with(r#"{"state":"intent","epoch":7,"#), "{stored}");
    assert!(stored.contains(r#""staged":true,"#) && stored.ends_with(r#""schema":1}"#), "{stored}");
}

#[tokio::test]
async fn an_older_detach_does_not_lower_the_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path().join("journal")).await.unwrap();
    journal
        .write_detach(&volume("v"), &alloc("a"), JournalledDetach { epoch: 9, done: false })
        .await
        .unwrap();
    journal
        .write_detach(&volume("v"), &alloc("a"), JournalledDetach { epoch: 4, done: false })
        .await
        .unwrap();
    assert_eq!(journal.volume(&volume("v")).detached[&alloc("a")].epoch, 9);
}

#[tokio::test]
async fn a_second_agent_with_the_same_state_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Journal::open(dir.path().to_owned()).await.unwrap();
    let second = Journal::open(dir.path().to_owned()).await.err().unwrap();
    assert!(matches!(second, JournalError::Disk(DurableError::InUse(_))), "{second}");
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_the_start_and_is_named() {
    let good = "team.data.a.use";
    for (key, value) in [
        ("team.data.use", "{}"),
        ("team.data.a.other", "{}"),
        ("te am.data.a.use", "{}"),
        (good, "{"),
        (good, r#"{"state":"intent","schema":1}"#),
        (good, r#"{"state":"intent","schema":2}"#),
        ("team.data.a.detached", r#"{"epoch":"seven","done":true,"schema":1}"#),
    ] {
        let dir = tempfile::tempdir().unwrap();
        {
            let (mut disk, _) = Durable::open(dir.path().to_owned(), "volumes").unwrap();
            disk.write([(key.into(), Some(value.into()))]).unwrap();
        }
        let error = Journal::open(dir.path().to_owned()).await.err().unwrap();
        assert!(matches!(error, JournalError::Entry { .. }), "{error}");
        assert!(error.to_string().contains(key), "{error}");
    }
}

/// These are on the disks of running nodes: an upgraded agent reads them, and one that is put back
/// to this version reads what the newer one wrote in the same form.
#[tokio::test]
async fn what_an_agent_of_any_version_of_this_form_wrote_is_read_and_written_so() {
    let stored = [
        (
            "team=20a.data.a.use",
            concat!(
                r#"{"state":"published","epoch":7,"plugin":"dev.berth","external_id":"vol-1","#,
                r#""access":"multi-node-multi-writer","attachment":"file-system","mode":"write","#,
                r#""staging":"/s/staging","target":"/s/a/target","boot_id":"boot","#,
                r#""since":"1970-01-01T00:00:00.001Z","schema":1}"#,
            ),
        ),
        ("team=20a.data.b.detached", r#"{"epoch":9,"done":false,"schema":1}"#),
    ];
    let dir = tempfile::tempdir().unwrap();
    let open = || Durable::open(dir.path().to_owned(), "volumes").unwrap();
    {
        let (mut disk, _) = open();
        disk.write(stored.map(|(key, value)| (key.into(), Some(value.into())))).unwrap();
    }
    let published = JournalledUse { options: None, ..entry(UseState::Published, 7) };
    {
        let journal = Journal::open(dir.path().to_owned()).await.unwrap();
        let known = journal.volume(&volume("data"));
        assert_eq!(known.uses[&alloc("a")], published);
        assert_eq!(known.detached[&alloc("b")], JournalledDetach { epoch: 9, done: false });
        journal.write_use(&volume("data"), &alloc("a"), published).await.unwrap();
        journal
            .write_detach(&volume("data"), &alloc("b"), JournalledDetach { epoch: 9, done: false })
            .await
            .unwrap();
    }
    let (_disk, entries) = open();
    let written = entries
        .into_iter()
        .map(|(key, value)| (String::from_utf8(key).unwrap(), String::from_utf8(value).unwrap()));
    let stored = stored.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(written.collect::<Vec<_>>(), stored);
}

#[tokio::test]
async fn a_journal_whose_disk_was_full_is_written_again() {
    if !berth_harness::root::or_skip("a disk of its own") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = berth_harness::dirs::Disk::mount(dir.path().join("journal"), 32 << 20);
    let journal = Journal::open(disk.path().to_owned()).await.unwrap();
    let (end, shutdown) = Shutdown::new();
    let keeping = tokio::spawn(journal.clone().keep_open(shutdown));
    let write = async |id: &str| {
        journal.write_use(&volume("data"), &alloc(id), entry(UseState::Intent, 7)).await
    };
    write("before").await.unwrap();
    disk.fill();
    let mut fault = journal.fault().follow();
    let mut refused = 0;
    while write("while").await.is_ok() {
        refused += 1;
        assert!(refused < 100_000, "a full disk takes everything");
    }
    let said = fault.wait_for(Option::is_some).await.unwrap().clone().unwrap();
    assert!(said.contains("cannot be written") && said.contains("No space"), "{said}");
    let closed = chain(&write("while").await.unwrap_err());
    assert!(closed.contains("No space"), "{closed}");
    assert!(journal.volume(&volume("data")).uses.contains_key(&alloc("before")), "it is read");
    disk.free();
    fault.wait_for(Option::is_none).await.unwrap();
    write("after").await.unwrap();
    let known = journal.volume(&volume("data")).uses;
    for id in ["before", "after"] {
        assert!(known.contains_key(&alloc(id)), "{id}: {known:?}");
    }
    end.request();
    keeping.await.unwrap();
    drop(journal);
    let again = Journal::open(disk.path().to_owned()).await.unwrap();
    assert_eq!(again.volume(&volume("data")).uses, known);
}
