//! `berth volume delete`

use berth_contract::code::Code;
use berth_contract::hint::volume_argument;
use berth_contract::message::storage::{DeleteVolume, StorageChanged, StorageStatus};
use berth_contract::message::volume::{VolumeQuery, VolumeStatus};
use berth_contract::verb;
use berth_domain::VolumeKey;
use berth_domain::volume::storage::Reclaim;

use super::change::{Following, deadline};
use super::volume_create::place_text;
use crate::args::VolumeDelete;
use crate::failure::Failure;
use crate::session::Session;
use crate::storage::StorageGoal;
use berth_explain::AtStorage;

/// Deletes a volume at its storage, after it was confirmed.
pub async fn delete(args: &VolumeDelete, session: &Session) -> Result<(), Failure> {
    let until = deadline(session);
    let body = VolumeQuery::current(args.id.clone());
    let volume = session.ask_service::<verb::VolumeStatus>(&session.namespace, &body).await?;
    confirm(args, &volume)?;
    let body = DeleteVolume {
        id: args.id.clone(),
        reason: args.reason.clone(),
        // Deletes the volume that was shown, not a new one that has taken its name since.
        create_index: Some(volume.create_index),
    };
    let reply = session.ask_service::<verb::VolumeDelete>(&session.namespace, &body).await;
    let changed = reply.or_else(|failure| accept_gone(failure, &volume))?;
    let goal = StorageGoal::Deleted { create_index: volume.create_index };
    let namespace = &session.namespace;
    let following = Following { session, namespace, goal: &goal, wait: args.wait, until };
    following.finish(&args.id, changed, |changed, _| deleted_text(changed, &volume)).await
}

/// The volume was there when the command began. If it is gone now, it was deleted: perhaps by a try
/// of this request whose answer was lost.
fn accept_gone(failure: Failure, volume: &VolumeStatus) -> Result<StorageChanged, Failure> {
    if failure.code() != Some(Code::NoSuchVolume) {
        return Err(failure);
    }
    Ok(StorageChanged {
        id: volume.id.clone(),
        namespace: volume.namespace.clone(),
        changed: false,
        gone: true,
        index: volume.modify_index,
        storage: None,
        secrets: None,
    })
}

/// Refuses to go on without the confirmations, and says what would be destroyed.
fn confirm(args: &VolumeDelete, volume: &VolumeStatus) -> Result<(), Failure> {
    // Nothing is at the storage: only the record is removed, which needs no confirmation.
    if AtStorage::find(volume) != AtStorage::Volume {
        return Ok(());
    }
    let key = VolumeKey::new(volume.namespace.clone(), volume.id.clone());
    let keeps = format!("`berth volume deregister {}` keeps its data", volume_argument(&key));
    if !args.yes {
        return Err(Failure::usage(
            destroys(volume),
            format_args!("make sure that nobody needs it, then say it again with --yes;\n{keeps}"),
        ));
    }
    if is_retained(volume) && !args.even_retained {
        return Err(Failure::usage(
            format_args!(
                "volume {key} is to be kept at its storage: its reclaim policy is retain; {}",
                destroys(volume)
            ),
            format_args!("{keeps}; to destroy it: --yes --even-retained"),
        ));
    }
    Ok(())
}

fn is_retained(volume: &VolumeStatus) -> bool {
    volume.storage.as_ref().and_then(|storage| storage.reclaim) == Some(Reclaim::Retain)
}

/// `this destroys volume default/data with all its data: 10GiB at plugin p, which calls it x; …`
fn destroys(volume: &VolumeStatus) -> String {
    let VolumeStatus { id, namespace, snapshot_count, claim_count, .. } = volume;
    let mut parts = vec![format!(
        "this destroys volume {namespace}/{id} with all its data: {}",
        place_text(volume)
    )];
    parts.extend(volume.storage.as_ref().map(origin_text));
    match snapshot_count {
        0 => {}
        1 => parts.push("its snapshot stays".to_owned()),
        count => parts.push(format!("its {count} snapshots stay")),
    }
    match claim_count {
        0 => {}
        1 => parts.push("it has a claim, so it is refused now".to_owned()),
        count => parts.push(format!("it has {count} claims, so it is refused now")),
    }
    parts.join("; ")
}

/// `it is of class fast, reclaim policy delete`
fn origin_text(storage: &StorageStatus) -> String {
    let StorageStatus { class, reclaim, for_alloc, .. } = storage;
    let origin = match (class, reclaim) {
        (_, None) => return "it was registered, and not created by Berth".to_owned(),
        (Some(class), Some(_)) => format!("it is of class {class}"),
        (None, Some(_)) => "it is of no class".to_owned(),
    };
    let policy = match reclaim {
        Some(Reclaim::Retain) => "retain",
        _ => "delete",
    };
    let run = for_alloc.as_ref().map(|alloc| format!(", for the run of alloc {alloc}"));
    format!("{origin}, reclaim policy {policy}{}", run.unwrap_or_default())
}

fn deleted_text(changed: &StorageChanged, volume: &VolumeStatus) -> String {
    let StorageChanged { id, namespace, gone, .. } = changed;
    match (gone, AtStorage::find(volume)) {
        (true, AtStorage::Volume) => format!("volume {namespace}/{id} is deleted at its storage"),
        (true, AtStorage::Nothing) => {
            format!("volume {namespace}/{id} is removed; nothing was at its storage")
        }
        (true, AtStorage::Unknown) => format!(
            "volume {namespace}/{id} is removed; a volume may be left at its storage: look in \
             `berth volume list --external {}`",
            volume.plugin
        ),
        (false, _) => format!("volume {namespace}/{id} is being deleted"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(storage: &Value) -> VolumeStatus {
        serde_json::from_value(json!({
            "id": "data", "namespace": "team", "plugin": "p", "external_id": "x-1",
            "capabilities": [], "claims": [], "create_index": 40, "modify_index": 44,
            "capacity_bytes": 10_u64 << 30, "snapshot_count": 2, "storage": storage,
            "health": {"healthy": true, "description": "", "nodes": {"healthy": 1, "expected": 1}},
        }))
        .unwrap()
    }

    fn deletion(yes: bool, even_retained: bool) -> VolumeDelete {
        VolumeDelete {
            id: berth_domain::VolumeId::new("data").unwrap(),
            yes,
            even_retained,
            reason: String::new(),
            wait: crate::args::WaitArgs::default(),
        }
    }

    fn confirmed(yes: bool, even_retained: bool, storage: &Value) -> Result<(), String> {
        confirm(&deletion(yes, even_retained), &volume(storage)).map_err(|failure| {
            assert_eq!(failure.exit(), crate::exit::USAGE);
            failure.to_string()
        })
    }

    #[test]
    fn an_unconfirmed_deletion_says_what_it_would_destroy_and_how_to_keep_it() {
        let of_class = json!({"stage": "ready", "class": "fast", "reclaim": "delete"});
        let text = confirmed(false, false, &of_class).unwrap_err();
        for part in [
            "volume team/data with all its data: 10GiB at plugin p, which calls it x-1",
            "it is of class fast, reclaim policy delete",
            "its 2 snapshots stay",
            "with --yes",
            "`berth volume deregister data --namespace team` keeps its data",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(confirmed(true, false, &of_class), Ok(()));
        let text = confirmed(false, false, &json!({"stage": "ready"})).unwrap_err();
        assert!(text.contains("it was registered, and not created by Berth"), "{text}");
    }

    #[test]
    fn a_retained_volume_needs_a_second_confirmation() {
        let retained = json!({"stage": "ready", "reclaim": "retain"});
        let text = confirmed(true, false, &retained).unwrap_err();
        assert!(text.contains("--even-retained") && text.contains("deregister"), "{text}");
        assert_eq!(confirmed(true, true, &retained), Ok(()));
    }

    #[test]
    fn a_volume_that_is_gone_when_the_request_is_made_again_is_deleted() {
        let volume = volume(&json!({"stage": "ready"}));
        let fails = |code| Failure::from(berth_contract::problem::Problem::new(code, "no"));
        let gone = accept_gone(fails(Code::NoSuchVolume), &volume).unwrap();
        assert_eq!(deleted_text(&gone, &volume), "volume team/data is deleted at its storage");
        assert!(accept_gone(fails(Code::ClaimsLive), &volume).is_err());
    }

    #[test]
    fn a_volume_that_is_not_at_the_storage_is_deleted_without_a_confirmation() {
        let no_id = json!(["it gives no id"]);
        for (stage, faults, said) in [
            ("failed", json!([]), "nothing was at its storage"),
            ("unused", json!([]), "nothing was at its storage"),
            ("failed", no_id, "look in `berth volume list --external p`"),
        ] {
            let storage = json!({"stage": stage, "reclaim": "retain", "faults": faults});
            let mut volume = volume(&storage);
            assert!(confirm(&deletion(false, false), &volume).is_err(), "it was created");
            volume.external_id = None;
            assert!(confirm(&deletion(false, false), &volume).is_ok());
            let fails = berth_contract::problem::Problem::new(Code::NoSuchVolume, "no");
            let gone = accept_gone(Failure::from(fails), &volume).unwrap();
            assert!(deleted_text(&gone, &volume).contains(said), "{stage}");
        }
    }
}
