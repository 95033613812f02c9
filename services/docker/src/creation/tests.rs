//! What a name does with its volume, for the states of both.

use berth_domain::volume::storage::Reclaim;
use berth_domain::{Namespace, VolumeId};
use serde_json::json;

use super::*;

const TITLE: &str = "Docker volume data of node n1";
const SENT: Timestamp = Timestamp::from_unix_ms(1_000_000);

fn volume(stage: Stage, name: &str, create_index: u64) -> VolumeStatus {
    let failure = json!({"operation": "create", "at": SENT, "error": "too large"});
    let volume = json!({
        "id": "data", "namespace": "default", "name": name, "plugin": "p", "external_id": "e",
        "capabilities": [], "claims": [], "create_index": create_index, "modify_index": 9,
        "health": {"healthy": true, "description": "", "nodes": {"healthy": 1, "expected": 1}},
        "storage": {
            "stage": stage, "reclaim": "delete",
            "failure": if stage == Stage::Failed { failure } else { json!(null) },
        },
    });
    serde_json::from_value(volume).unwrap()
}

fn registered(create_index: u64) -> VolumeStatus {
    VolumeStatus { storage: None, ..volume(Stage::Ready, TITLE, create_index) }
}

fn requested(before: Option<u64>) -> CreationProgress {
    CreationProgress::Requested { at: SENT, before }
}

fn creation(progress: CreationProgress) -> Creation {
    Creation { options: StorageOptions::default(), progress }
}

/// The next step, `after` the request was sent.
fn step(progress: CreationProgress, volume: Option<&VolumeStatus>, after: Duration) -> String {
    let step = next_step(&progress, volume, TITLE, SENT.after(after));
    format!("{step:?}").split([' ', '(']).next().unwrap_or_default().to_owned()
}

#[test]
fn the_volume_that_its_request_made_is_the_names_own() {
    let made = CreationStep::Advance(CreationProgress::Made { create_index: 7 });
    let joined = CreationStep::Advance(CreationProgress::Joined);
    for (volume, before, expected) in [
        (volume(Stage::Ready, TITLE, 7), None, &made),
        (volume(Stage::Unused, TITLE, 7), None, &made),
        (volume(Stage::Ready, TITLE, 7), Some(5), &made),
        (volume(Stage::Ready, TITLE, 7), Some(7), &joined),
        (volume(Stage::Ready, "Docker volume data of node n2", 7), None, &joined),
        (volume(Stage::Unused, "", 7), None, &joined),
        (registered(7), None, &joined),
    ] {
        let step = next_step(&requested(before), Some(&volume), TITLE, SENT);
        assert_eq!(step, *expected, "{volume:?}, {before:?}");
    }
}

#[test]
fn a_request_is_forgotten_only_when_it_can_have_no_effect_any_more() {
    let (early, late) = (REQUEST_LIFE.saturating_sub(Duration::from_millis(1)), REQUEST_LIFE);
    assert_eq!(step(requested(None), None, early), "Await");
    assert_eq!(step(requested(None), None, late), "Forget");
    for stage in [Stage::Creating, Stage::Deleting] {
        assert_eq!(step(requested(None), Some(&volume(stage, TITLE, 7)), late), "Await");
    }
    let removing = CreationProgress::Removing { create_index: 7, at: SENT };
    assert_eq!(step(removing, None, early), "Forget");
    assert_eq!(step(removing, Some(&volume(Stage::Ready, TITLE, 8)), early), "Forget");
    for stage in [Stage::Creating, Stage::Deleting] {
        assert_eq!(step(removing, Some(&volume(stage, TITLE, 7)), late), "Await");
    }
    let ready = volume(Stage::Ready, TITLE, 7);
    assert_eq!(step(removing, Some(&ready), early), "Await");
    let made = CreationStep::Advance(CreationProgress::Made { create_index: 7 });
    assert_eq!(next_step(&removing, Some(&ready), TITLE, SENT.after(late)), made, "not deleted");
}

#[test]
fn a_refused_creation_leaves_nothing_of_its_own() {
    let refused = volume(Stage::Failed, TITLE, 7);
    let step = next_step(&requested(None), Some(&refused), TITLE, SENT);
    let error = "the storage refused it: too large".to_owned();
    assert_eq!(step, CreationStep::ClearRefused { create_index: 7, error });
    let of_other = volume(Stage::Failed, "", 7);
    let step = next_step(&requested(None), Some(&of_other), TITLE, SENT);
    assert!(matches!(step, CreationStep::Forget(_)), "the record is the other's: {step:?}");
}

#[test]
fn a_name_without_its_volume_is_forgotten() {
    let made = CreationProgress::Made { create_index: 7 };
    for (progress, index, expected) in
        [(made, 7, "Settled"), (made, 8, "Forget"), (CreationProgress::Joined, 8, "Settled")]
    {
        let ready = volume(Stage::Ready, TITLE, index);
        assert_eq!(step(progress, Some(&ready), REQUEST_LIFE), expected, "{progress:?}");
        assert_eq!(step(progress, None, Duration::ZERO), "Forget", "{progress:?}");
    }
    let leaving = volume(Stage::Deleting, TITLE, 7);
    assert_eq!(step(made, Some(&leaving), Duration::ZERO), "Await");
    // A volume that is created at its first use is shown during its creation.
    assert_eq!(step(made, Some(&volume(Stage::Creating, TITLE, 7)), Duration::ZERO), "Settled");
}

#[test]
fn a_removal_deletes_the_names_own_volume_and_no_other() {
    let made = CreationProgress::Made { create_index: 7 };
    let removing = CreationProgress::Removing { create_index: 7, at: SENT };
    let own = volume(Stage::Ready, TITLE, 7);
    let recreated = volume(Stage::Ready, TITLE, 8);
    let foreign = volume(Stage::Ready, "", 7);
    for (progress, volume, deletes) in [
        (made, &own, true),
        (removing, &own, true),
        (requested(None), &own, true),
        (made, &recreated, false),
        (removing, &recreated, false),
        (requested(Some(7)), &own, false),
        (requested(None), &foreign, false),
        (CreationProgress::Joined, &own, false),
    ] {
        let plan = plan_removal(Some(&creation(progress)), Some(volume), TITLE, SENT);
        let expected = RemovalPlan::DeleteVolume { create_index: 7 };
        assert_eq!(plan == expected, deletes, "{progress:?} {volume:?}: {plan:?}");
    }
    let plan = plan_removal(None, Some(&own), TITLE, SENT);
    assert!(matches!(plan, RemovalPlan::KeepVolume(_)), "a name that was only given: {plan:?}");
    assert_eq!(
        plan_removal(Some(&creation(requested(None))), None, TITLE, SENT),
        RemovalPlan::AwaitRequest
    );
}

#[test]
fn a_removal_keeps_a_volume_by_its_reclaim_policy() {
    let made = creation(CreationProgress::Made { create_index: 7 });
    let mut own = volume(Stage::Ready, TITLE, 7);
    for reclaim in [Some(Reclaim::Retain), None] {
        own.storage.as_mut().unwrap().reclaim = reclaim;
        let plan = plan_removal(Some(&made), Some(&own), TITLE, SENT);
        assert!(matches!(plan, RemovalPlan::KeepVolume(_)), "{reclaim:?}: {plan:?}");
    }
}

#[test]
fn the_request_says_what_the_options_say() {
    let mut target =
        VolumeTarget::without_options(Namespace::default(), VolumeId::new("data").unwrap());
    target.size = Some(1 << 30);
    let node = NodeId::new("n1").unwrap();
    let class = StorageOptions {
        class: Some(ClassId::new("fast").unwrap()),
        reclaim: Some(Reclaim::Retain),
        ..StorageOptions::default()
    };
    let sent = serde_json::to_value(class.document(&target, TITLE, (&node, None))).unwrap();
    let expected = json!({"id": "data", "name": TITLE, "class": "fast", "size": 1 << 30,
        "reclaim": "retain", "node": "n1"});
    assert_eq!(sent, expected, "the class says the rest");

    target.fs = Some("xfs".to_owned());
    let plugin = StorageOptions {
        plugin: Some(PluginId::new("nfs").unwrap()),
        parameters: BTreeMap::from([("tier".to_owned(), "hunter2".to_owned())]),
        ..StorageOptions::default()
    };
    let sent = serde_json::to_value(plugin.document(&target, TITLE, (&node, None))).unwrap();
    assert_eq!(sent["capability"][0]["access"], "single-node-writer", "{sent}");
    assert_eq!(
        (&sent["mount"]["fs_type"], &sent["parameters"]["tier"]),
        (&json!("xfs"), &json!("hunter2"))
    );
    assert!(!plugin.describe().concat().contains("hunter2"), "{:?}", plugin.describe());

    target.access = Some(AccessMode::MultiNodeMultiWriter);
    let sent = serde_json::to_value(class.document(&target, TITLE, (&node, None))).unwrap();
    assert_eq!(sent["capability"][0]["access"], "multi-node-multi-writer", "{sent}");
}

#[test]
fn a_creation_is_read_as_it_was_written() {
    let options = StorageOptions {
        class: Some(ClassId::new("fast").unwrap()),
        limit: Some(Size::new(7).unwrap()),
        ..StorageOptions::default()
    };
    for progress in [
        requested(None),
        requested(Some(3)),
        CreationProgress::Made { create_index: 7 },
        CreationProgress::Joined,
        CreationProgress::Removing { create_index: 7, at: SENT },
    ] {
        let creation = Creation { options: options.clone(), progress };
        let text = serde_json::to_string(&creation).unwrap();
        assert_eq!(serde_json::from_str::<Creation>(&text).unwrap(), creation, "{text}");
    }
}
