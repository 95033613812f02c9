//! What a record does not say, since an older version wrote it, and what it says besides, since a
//! newer one of the same schema did: for anything that a record may hold.
//!
//! A field that came later is optional, and without it the record means what it meant before. The
//! tables here say what that is, field by field.

use std::fmt::Debug;

use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::alloc::{Alloc, AllocState, VolumeRequest, VolumeType};
use berth_domain::owner::AllocOwner;
use berth_domain::plugin::{
    ControllerAbilities, Instance, Job, Node, NodeAbilities, NodeState, StorageTrouble,
    UnaccountedMount,
};
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::storage::{Operation, Provision, Snapshot, StorageLife, StorageProgress};
use berth_domain::volume::{
    CallKind, Claim, Command, HoldingProcess, MountOptions, MountUse, Refusal, State, Volume,
    VolumeSpec,
};
use berth_domain::{AllocId, Namespace, NodeId, OwnerId, PluginId, Timestamp, VolumeId};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::any_storage::{snapshot, storage_life};
use crate::anything::{access, claim, map, proof, spec, text, time};
use crate::fixture::{asks, decide};
use crate::world::{alloc, begin, spec as offering, take};

/// The optional fields of a record, each with what it says without.
type Optional = [(&'static str, Value)];

/// Which fields are left out, and which others there are.
type Other = (Vec<Index>, Map<String, Value>);

fn other() -> impl Strategy<Value = Other> {
    let value = prop_oneof![any::<bool>().prop_map(Value::from), text().prop_map(Value::from)];
    let later = btree_map("later-[a-z]{1,4}", value, 0..3);
    (vec(any::<Index>(), 0..6), later.prop_map(|later| later.into_iter().collect()))
}

/// The record as it is read without these fields, and with the others.
fn read_without<T: Serialize + DeserializeOwned + PartialEq + Debug>(
    body: &T,
    optional: &Optional,
    (left_out, later): &Other,
) -> Result<T, TestCaseError> {
    let whole = serde_json::to_value(body).unwrap().as_object().unwrap().clone();
    for name in whole.keys().filter(|name| optional.iter().all(|(known, _)| known != name)) {
        let mut damaged = whole.clone();
        damaged.remove(name);
        let damaged = serde_json::from_value::<T>(Value::Object(damaged));
        prop_assert!(damaged.is_err(), "nothing is made up for {name}");
    }
    let (mut older, mut due) = (whole.clone(), whole);
    older.extend(later.clone());
    if !optional.is_empty() {
        for (name, without) in left_out.iter().map(|index| index.get(optional)) {
            older.remove(*name);
            due.insert((*name).to_owned(), without.clone());
        }
    }
    let read: T = serde_json::from_value(Value::Object(older)).unwrap();
    prop_assert_eq!(&read, &serde_json::from_value::<T>(Value::Object(due)).unwrap());
    Ok(read)
}

fn optional_of_a_claim() -> [(&'static str, Value); 17] {
    [
        ("tries", json!(0)),
        ("next_try", json!(null)),
        ("error", json!(null)),
        ("failure", json!({})),
        ("place_until", json!(null)),
        ("exhausted", json!(false)),
        ("denied", json!(false)),
        ("reason", json!(null)),
        ("proof", json!(null)),
        ("unstaged_by", json!(null)),
        ("attempt", json!(null)),
        ("epoch", json!(0)),
        ("external_node", json!(null)),
        ("publish_context", json!({})),
        ("mount", json!(null)),
        ("plugin", json!(null)),
        ("external_id", json!(null)),
    ]
}

fn optional_of_a_spec() -> [(&'static str, Value); 11] {
    [
        ("closing", json!(null)),
        ("name", json!("")),
        ("external_id", json!(null)),
        ("mount", json!({})),
        ("topologies", json!([])),
        ("capacity_bytes", json!(null)),
        ("parameters", json!({})),
        ("context", json!({})),
        ("storage", json!(null)),
        ("secrets", json!(null)),
        ("create_index", json!(0)),
    ]
}

fn optional_of_a_progress() -> [(&'static str, Value); 8] {
    [
        ("tries", json!(0)),
        ("next_try", json!(null)),
        ("error", json!(null)),
        ("failure", json!({})),
        ("uncertain", json!(false)),
        ("executor", json!(null)),
        ("attempt", json!(null)),
        ("inherited", json!(false)),
    ]
}

fn optional_of_a_snapshot() -> [(&'static str, Value); 16] {
    [
        ("progress", json!({})),
        ("doomed", json!(false)),
        ("was_ready", json!(false)),
        ("external_id", json!(null)),
        ("second_id", json!(null)),
        ("foreign", json!(false)),
        ("size_bytes", json!(null)),
        ("growing", json!(false)),
        ("cut_at", json!(null)),
        ("topologies", json!([])),
        ("usable_from", json!([])),
        ("home", json!(null)),
        ("parameters", json!({})),
        ("secrets", json!(null)),
        ("group", json!(null)),
        ("create_index", json!(0)),
    ]
}

fn optional_of_a_provision() -> [(&'static str, Value); 12] {
    [
        ("by", json!(null)),
        ("required_bytes", json!(0)),
        ("limit_bytes", json!(null)),
        ("class", json!(null)),
        ("reclaim", json!("delete")),
        ("first_use", json!(false)),
        ("requisite", json!([])),
        ("node", json!(null)),
        ("first_claim", json!(null)),
        ("growth", json!(null)),
        ("origin", json!(null)),
        ("for_alloc", json!(null)),
    ]
}

fn request() -> impl Strategy<Value = VolumeRequest> {
    let flags = any::<[bool; 2]>();
    (option::of(text()), flags, option::of(access()), option::of(text())).prop_map(
        |(alias, [per_alloc, read_only], access, fs_type)| VolumeRequest {
            alias,
            kind: VolumeType::Csi,
            source: "data".parse().unwrap(),
            per_alloc,
            read_only,
            access,
            attachment: None,
            mount: MountOptions { fs_type, ..MountOptions::default() },
        },
    )
}

fn an_alloc() -> impl Strategy<Value = Alloc> {
    use AllocState::{Complete, Failed, Live, Stopped};
    let state = select(vec![Live, Complete, Failed, Stopped]);
    let volumes = vec(request(), 0..3);
    let owner = (any::<bool>(), option::of(time())).prop_map(|(leased, unowned_since)| {
        let name = OwnerId::new("scheduler-1").unwrap();
        AllocOwner { name, leased, unowned_since }
    });
    let whose = (option::of(text()), option::of(owner), map());
    (state, option::of(any::<u32>()), volumes, time(), option::of(text()), whose).prop_map(
        |(state, index, volumes, since, note, (by, owner, meta))| {
            let node = NodeId::new("n1").unwrap();
            Alloc { state, node, index, volumes, since, note, by, owner, meta }
        },
    )
}

fn a_node() -> impl Strategy<Value = Node> {
    let state = select(vec![NodeState::Ready, NodeState::Down]);
    let said = (any::<i64>(), text(), text(), map());
    let times = (time(), time(), option::of(proof()), option::of(time()));
    let mount = UnaccountedMount {
        namespace: Namespace::default(),
        volume: VolumeId::new("data").unwrap(),
        alloc: AllocId::new("web-0").unwrap(),
        path: "/m/target".to_owned(),
        plugin: None,
        external_id: None,
        used: None,
    };
    let known = UnaccountedMount {
        plugin: Some(PluginId::new("p").unwrap()),
        external_id: Some("x".to_owned()),
        used: Some(MountUse {
            mode: Mode::Write,
            access: AccessMode::SingleNodeWriter,
            attachment: AttachmentMode::FileSystem,
        }),
        ..mount.clone()
    };
    let unaccounted = select(vec![vec![], vec![mount], vec![known]]);
    (state, said, times, unaccounted).prop_map(|(state, said, times, unaccounted)| Node {
        state,
        since: times.0,
        clock_skew_ms: said.0,
        version: said.1,
        boot_id: said.2,
        reported: times.1,
        attributes: said.3,
        gone: times.2,
        back: times.3,
        unaccounted,
        uncompared: said.0 % 2 == 0,
        sealing_key: (said.0 % 3 == 0).then(|| "XKEY".to_owned()),
        hosts: (said.0 % 5 == 0).then(|| PluginId::new("p").unwrap()).into_iter().collect(),
        newcomer: (said.0 > 0).then_some(3),
    })
}

fn storage_trouble() -> impl Strategy<Value = StorageTrouble> {
    (any::<bool>(), text(), option::of(text())).prop_map(|(unreachable, said, fs_type)| {
        StorageTrouble {
            unreachable,
            said,
            access: fs_type.is_none().then_some(AccessMode::SingleNodeWriter),
            attachment: unreachable.then_some(AttachmentMode::BlockDevice),
            fs_type,
        }
    })
}

fn an_instance() -> impl Strategy<Value = Instance> {
    let flags = any::<[bool; 21]>();
    let controller = flags.prop_map(|can| ControllerAbilities {
        publish_unpublish_volume: can[0],
        publish_readonly: can[1],
        create_delete_volume: can[2],
        list_volumes: can[3],
        create_delete_snapshot: can[4],
        clone_volume: can[5],
        expand_volume: can[6],
        single_node_multi_writer: can[7],
        get_capacity: can[8],
        list_snapshots: can[9],
        get_snapshot: can[10],
        get_volume: can[11],
        modify_volume: can[12],
        volume_condition: can[13],
        get_volume_health: can[18],
        list_volume_health: can[19],
        snapshot_topology: can[20],
        list_published_nodes: can[14],
        group_snapshot: can[15],
        topology: can[16],
        expand_offline_only: can[17],
    });
    let numbers = (option::of(any::<u64>()), option::of(text()));
    let node = (any::<[bool; 9]>(), numbers, vec(storage_trouble(), 0..3), map());
    let node = node.prop_map(|(can, (max_volumes, full), storage, topology)| NodeAbilities {
        external_node: "ext".to_owned(),
        controller_service: can[0],
        stage_unstage_volume: can[1],
        get_volume_stats: can[2],
        expand_volume: can[3],
        volume_condition: can[4],
        single_node_multi_writer: can[5],
        volume_mount_group: can[6],
        get_volume_health: can[7],
        get_storage_health: can[8],
        max_volumes,
        full,
        storage,
        topology,
    });
    let process = (any::<u32>(), text()).prop_map(|(pid, command)| HoldingProcess { pid, command });
    let halves = (option::of(controller), option::of(node), option::of(process));
    (any::<bool>(), text(), time(), halves).prop_map(
        |(healthy, said, since, (controller, node, process))| Instance {
            healthy,
            description: said.clone(),
            provider: said.clone(),
            version: said,
            since,
            controller,
            node,
            id_since: None,
            process,
        },
    )
}

/// No time of ours is beyond the last one that can be written.
fn in_our_time(mut claim: Claim) -> Claim {
    let end = Timestamp::from_unix_ms(253_402_207_200_999);
    claim.since = claim.since.min(end);
    claim.progress.next_try = claim.progress.next_try.map(|at| at.min(end));
    claim.place_until = claim.place_until.map(|at| at.min(end));
    if let Some(attempt) = &mut claim.progress.attempt {
        attempt.deadline = attempt.deadline.min(end);
    }
    claim
}

proptest! {
    #[test]
    fn what_a_claim_does_not_say(claim in claim(), other in other()) {
        read_without(&in_our_time(claim), &optional_of_a_claim(), &other)?;
    }

    /// Whatever a claim said before places in line could be lost, plugins be full, persons answer
    /// for controllers, and proofs stand in for nodes: nothing is lost or let in by that.
    #[test]
    fn what_a_claim_of_before_means(claim in claim()) {
        let mut older = serde_json::to_value(in_our_time(claim)).unwrap();
        for later in ["place_until", "exhausted", "denied", "proof", "unstaged_by"] {
            older.as_object_mut().unwrap().remove(later);
        }
        let claim: Claim = serde_json::from_value(older).unwrap();
        prop_assert_eq!(&claim.proof, &None);
        let (state, epoch, access) = (claim.state, claim.epoch, claim.access);
        let claims = [(alloc("a"), claim)].into();
        let volume = Volume { spec: Some(offering(&[access])), claims, ..Volume::default() };
        if state == State::Waiting {
            // However long ago it got in line.
            let kept = matches!(decide(&volume, &begin("a", true)), Err(Refusal::NotDue { .. }));
            prop_assert!(kept, "its place is lost");
        }
        let word = Proof {
            kind: ProofKind::Confirmed,
            by: "somebody".to_owned(),
            at: Timestamp::default(),
            note: String::new(),
        };
        for call in [CallKind::ControllerUnpublish, CallKind::NodeDetach] {
            let (alloc, confirmation) = (alloc("a"), word.clone());
            let word = Command::Confirm { alloc, epoch, call, confirmation };
            prop_assert!(decide(&volume, &word).is_err(), "the plugin denied nothing");
        }
        let full = asks(&volume, take("b", "elsewhere"));
        prop_assert!(!matches!(full, Err(Refusal::Exhausted { .. })), "{full:?}");
    }

    #[test]
    fn what_a_spec_does_not_say(spec in spec(), other in other()) {
        read_without::<VolumeSpec>(&spec, &optional_of_a_spec(), &other)?;
        let optional = [("fs_type", json!(null)), ("flags", json!([])), ("group", json!(null))];
        read_without::<MountOptions>(&spec.mount, &optional, &other)?;
    }

    #[test]
    fn what_a_life_at_the_storage_does_not_say(life in storage_life(), other in other()) {
        let optional = [
            ("operation", json!(null)),
            ("failure", json!(null)),
            ("faults", json!([])),
            ("unusable", json!(false)),
            ("expanded_for", json!(null)),
            ("provision", json!(null)),
            ("mutable", json!({})),
        ];
        read_without::<StorageLife>(&life, &optional, &other)?;
        if let Some(operation) = &life.operation {
            let optional = [("progress", json!({})), ("mounted", json!(null))];
            read_without::<Operation>(operation, &optional, &other)?;
            let optional = optional_of_a_progress();
            read_without::<StorageProgress>(&operation.progress, &optional, &other)?;
        }
        if let Some(provision) = &life.provision {
            read_without::<Provision>(provision, &optional_of_a_provision(), &other)?;
        }
    }

    #[test]
    fn what_a_snapshot_does_not_say(snapshot in snapshot(), other in other()) {
        read_without::<Snapshot>(&snapshot, &optional_of_a_snapshot(), &other)?;
    }

    #[test]
    fn what_an_alloc_does_not_say(alloc in an_alloc(), other in other()) {
        let optional = [
            ("index", json!(null)),
            ("volumes", json!([])),
            ("note", json!(null)),
            ("by", json!(null)),
            ("owner", json!(null)),
            ("meta", json!({})),
        ];
        let read = read_without(&alloc, &optional, &other)?;
        prop_assert_eq!(read.state, alloc.state);
        let optional = [
            ("alias", json!(null)),
            ("type", json!("csi")),
            ("per_alloc", json!(false)),
            ("read_only", json!(false)),
            ("access", json!(null)),
            ("attachment", json!(null)),
            ("mount", json!({})),
        ];
        for request in &alloc.volumes {
            read_without(request, &optional, &other)?;
        }
    }

    /// In particular, a node that was not declared gone is not gone.
    #[test]
    fn what_a_node_does_not_say(node in a_node(), other in other()) {
        let optional = [
            ("clock_skew_ms", json!(0)),
            ("version", json!("")),
            ("boot_id", json!("")),
            ("reported", json!("1970-01-01T00:00:00.000Z")),
            ("attributes", json!({})),
            ("gone", json!(null)),
            ("back", json!(null)),
            ("unaccounted", json!([])),
            ("uncompared", json!(false)),
            ("sealing_key", json!(null)),
            ("hosts", json!([])),
            ("newcomer", json!(null)),
        ];
        read_without(&node, &optional, &other)?;
    }

    /// An ability that is not spoken of is one that the plugin has not.
    #[test]
    fn what_an_instance_does_not_say(instance in an_instance(), other in other()) {
        let absent = json!(null);
        let optional =
            [("controller", absent.clone()), ("node", absent.clone()), ("process", absent)];
        read_without(&instance, &optional, &other)?;
        if let Some(controller) = &instance.controller {
            let optional = [
                ("publish_readonly", json!(false)),
                ("create_delete_volume", json!(false)),
                ("list_volumes", json!(false)),
                ("create_delete_snapshot", json!(false)),
                ("clone_volume", json!(false)),
                ("expand_volume", json!(false)),
                ("single_node_multi_writer", json!(false)),
                ("get_capacity", json!(false)),
                ("list_snapshots", json!(false)),
                ("get_snapshot", json!(false)),
                ("get_volume", json!(false)),
                ("modify_volume", json!(false)),
                ("volume_condition", json!(false)),
                ("get_volume_health", json!(false)),
                ("list_volume_health", json!(false)),
                ("snapshot_topology", json!(false)),
                ("list_published_nodes", json!(false)),
                ("group_snapshot", json!(false)),
                ("topology", json!(false)),
                ("expand_offline_only", json!(false)),
            ];
            read_without(controller, &optional, &other)?;
        }
        if let Some(node) = &instance.node {
            let optional = [
                ("get_volume_stats", json!(false)),
                ("expand_volume", json!(false)),
                ("volume_condition", json!(false)),
                ("single_node_multi_writer", json!(false)),
                ("volume_mount_group", json!(false)),
                ("get_volume_health", json!(false)),
                ("get_storage_health", json!(false)),
                ("storage", json!([])),
                ("max_volumes", json!(null)),
                ("full", json!(null)),
                ("topology", json!({})),
            ];
            read_without(node, &optional, &other)?;
            for trouble in &node.storage {
                let optional =
                    ["access", "attachment", "fs_type"].map(|field| (field, json!(null)));
                read_without(trouble, &optional, &other)?;
            }
        }
    }

    #[test]
    fn what_a_job_says(counts in any::<[u32; 2]>(), since in time(), other in other()) {
        let [controllers, nodes] = counts;
        read_without(&Job { controllers, nodes, since }, &[], &other)?;
    }
}
