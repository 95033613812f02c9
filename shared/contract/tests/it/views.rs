//! What is shown: replies that put records together, and cannot be stored.

use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::message::history::{self, EventBody, EventKind};
use berth_contract::message::{agent, alloc, node, registry, volume};
use berth_contract::service;
use berth_domain::alloc::AllocState;
use berth_domain::plugin::{Count, Half, NodeState};
use berth_domain::volume::Closing;
use berth_domain::volume::storage::{OperationKind, Stage};

use crate::messages::{claim_status, reply, request};
use crate::sample;
use crate::storage::storage_status;

fn count(healthy: usize, expected: usize) -> Count {
    Count { healthy, expected }
}

fn instance(half: Half) -> registry::InstanceStatus {
    let sample = sample::instance();
    registry::InstanceStatus {
        plugin: sample::plugin(),
        node: sample::node_id(),
        half,
        healthy: true,
        description: sample.description,
        shares_id_with: (half == Half::Node).then(sample::node_id),
        version: sample.version,
        since: sample.since,
        process: sample.process,
        controller: sample.controller.filter(|_| half == Half::Controller),
        abilities: sample.node.filter(|_| half == Half::Node),
    }
}

fn abnormal() -> String {
    "plugin ebs.csi.aws.com says that the volume is not well: a disk is dying".to_owned()
}

#[test]
fn a_volume_and_a_list_of_them() {
    let spec = sample::spec();
    reply(
        "reply-volume-status",
        &volume::VolumeStatus {
            id: sample::volume(),
            namespace: sample::namespace(),
            name: spec.name.to_value(),
            closing: Some(Closing { since: sample::at(9), reason: "no longer needed".to_owned() }),
            plugin: sample::plugin(),
            provider: "ebs.csi.aws.com".to_owned(),
            external_id: Some("vol-0a1b".to_owned()),
            capabilities: spec.capabilities.to_value(),
            in_use: Some(sample::capability()),
            fs_type: Some("ext4".to_owned()),
            // How many, and not which: they may be secret.
            mount_flags: 1,
            mount_group: Some("1000".to_owned()),
            topologies: spec.topologies.to_value(),
            capacity_bytes: spec.capacity_bytes,
            parameters: spec.parameters.to_value(),
            context: spec.context.to_value(),
            has_secrets: true,
            health: volume::Health {
                healthy: true,
                description: "it can be claimed on 2 nodes".to_owned(),
                controllers: Some(count(1, 1)),
                nodes: count(2, 3),
                abnormal: Some(abnormal()),
            },
            exhausted: Some("RESOURCE_EXHAUSTED: 25 of 25 are attached".to_owned()),
            registered_twice: vec!["a volume of another namespace".to_owned()],
            unaccounted: vec![sample::unaccounted().to_string()],
            mounts: vec![sample::mount_doubt()],
            hint: Some("see why with `berth plugin status ebs.csi.aws.com`".to_owned()),
            last_refusal: Some(sample::refusal()),
            storage: Some(storage_status()),
            snapshot_count: 3,
            claim_count: 2,
            claims: vec![claim_status()],
            create_index: 3,
            modify_index: 42,
            unreadable: vec![sample::unreadable()],
        },
    );
    let stub = volume::VolumeStub {
        id: sample::volume(),
        namespace: sample::namespace(),
        name: spec.name.to_value(),
        plugin: sample::plugin(),
        provider: "ebs.csi.aws.com".to_owned(),
        external_id: Some("vol-0a1b".to_owned()),
        capabilities: vec![sample::capability()],
        in_use: Some(sample::capability()),
        topologies: vec![sample::map("zone", "a")],
        readers: 0,
        writers: 1,
        releasing: 1,
        waiting: 2,
        healthy: true,
        controllers: Some(count(1, 2)),
        nodes: Some(count(4, 5)),
        abnormal: Some(abnormal()),
        closing: true,
        stage: Some(Stage::Creating),
        operation: Some(OperationKind::Create),
        refused: Some(OperationKind::Delete),
        class: Some(sample::class_id()),
        capacity_bytes: Some(10 << 30),
        registered_twice: true,
        mount: sample::mount_summary(),
        create_index: 3,
        modify_index: 42,
    };
    reply(
        "reply-volume-list",
        &volume::Volumes {
            index: 57,
            volumes: vec![stub],
            next: Some("team=20a.data.spec".to_owned()),
            unreadable: vec![sample::unreadable()],
        },
    );
}

#[test]
fn placements() {
    request(
        "request-volume-placement",
        &volume::ListPlacements {
            volumes: vec![sample::request()],
            index: Some(0),
            node: Some(sample::node_id()),
            page: sample::page("host.a"),
            newer: sample::newer(56),
        },
    );
    reply(
        "reply-volume-placement",
        &volume::Placements {
            index: 57,
            volumes: vec![volume::VolumeDemand {
                volume: sample::volume(),
                holding: 1,
                waiting: 2,
                abnormal: Some(abnormal()),
            }],
            nodes: vec![volume::NodePlacement {
                node: sample::node_id(),
                fits: false,
                fits_later: true,
                slots: vec![volume::PluginSlots {
                    plugin: sample::plugin(),
                    free: Some(3),
                    used: 13,
                }],
                obstacles: vec![volume::Obstacle {
                    volume: sample::volume(),
                    code: Code::Held,
                    message: "the volume is held by alloc web-0 on node host.other".to_owned(),
                    retryable: false,
                    can_wait: true,
                }],
            }],
            next: Some("host.example".to_owned()),
        },
    );
}

#[test]
fn events() {
    request(
        "request-history-list",
        &history::ListEvents {
            kinds: vec![EventKind::Claim, EventKind::Snapshot, EventKind::Request],
            volumes: vec![sample::volume()],
            allocs: vec![sample::alloc_id()],
            node: Some(sample::node_id()),
            plugin: Some(sample::plugin()),
            trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
            since: Some(sample::at(0)),
            only_namespace: Some(sample::namespace()),
            page: sample::page("older.4711"),
        },
    );
    let event = Event {
        namespace: Some(sample::namespace()),
        volume: Some(sample::volume()),
        alloc: Some(sample::alloc_id()),
        ..Event::new(EventName::ClaimTaken, sample::at(0), service::CLAIM)
    };
    let event = EventBody::read(&serde_json::to_vec(&event).unwrap()).unwrap();
    reply(
        "reply-history-list",
        &history::EventPage {
            events: vec![history::EventEntry { sequence: 4705, stored: sample::at(1), event }],
            next: Some("older.4705".to_owned()),
            end: format!("newer.4711.{}", sample::at(2).unix_ms()),
            begins: Some(sample::at(0)),
        },
    );
}

/// `history.list` finds events of every name, and agents tell none of what the claim service does.
#[test]
fn every_event_is_of_a_kind_that_can_be_asked_for() {
    for name in EventName::ALL {
        let (kind, what) = name.as_str().split_once('.').unwrap();
        let asked: EventKind = serde_json::from_value(kind.into()).unwrap();
        assert_eq!(asked.as_str(), kind);
        let is_of_mounts = what.contains("mount");
        let is_of_storage = matches!(asked, EventKind::Volume | EventKind::Snapshot);
        if is_of_storage && !is_of_mounts {
            assert!(!name.is_of_agents(), "{name}");
        }
    }
}

#[test]
fn plugins_and_nodes() {
    request(
        "request-plugin-status",
        &registry::ListPlugins {
            id: Some(sample::plugin()),
            prefix: "ebs".to_owned(),
            node: Some(sample::node_id()),
            kind: Some(registry::PluginType::Monolith),
            page: sample::page("ebs=2Ecsi=2Eaws=2Ecom.instance.host=2Eexample.controller"),
            newer: sample::newer(56),
        },
    );
    let plugin = registry::PluginStatus {
        id: sample::plugin(),
        provider: "ebs.csi.aws.com".to_owned(),
        versions: vec!["1.2.3".to_owned()],
        controllers: Some(count(1, 1)),
        nodes: count(2, 3),
        attaches: true,
        instances: vec![instance(Half::Controller), instance(Half::Node)],
        jobs: vec![registry::JobStatus {
            namespace: sample::namespace(),
            job: sample::job_id(),
            controllers: 1,
            nodes: 3,
            since: sample::at(0),
        }],
    };
    reply("reply-plugin-expect", &registry::Expected { changed: true });
    reply("reply-plugin-delete", &registry::Deleted { instances: 2, jobs: 1 });
    reply(
        "reply-plugin-status",
        &registry::Plugins {
            index: 57,
            plugins: vec![plugin],
            next: Some("ebs=2Ecsi=2Eaws=2Ecom.instance.host=2Eexample.node".to_owned()),
            unreadable: vec![sample::unreadable()],
        },
    );
    let node = registry::NodeStatus {
        id: sample::node_id(),
        state: NodeState::Down,
        since: sample::at(0),
        revision: 57,
        clock_skew_ms: -3,
        version: "0.1.0".to_owned(),
        boot_id: "aaae2d42".to_owned(),
        attributes: sample::map("hostname", "host"),
        unaccounted: vec![sample::unaccounted()],
        gone: Some(sample::proof()),
        back: Some(sample::at(0)),
        instances: vec![instance(Half::Node)],
    };
    reply(
        "reply-node-status",
        &registry::Nodes {
            index: 57,
            nodes: vec![node],
            next: Some("host.example".to_owned()),
            unreadable: vec![sample::unreadable()],
        },
    );
    let (state, gone) = (NodeState::Down, Some(sample::proof()));
    let clock = Some(sample::at(60_000));
    let unproven = vec!["ebs.csi.aws.com".parse().unwrap()];
    let reported =
        registry::Reported { clock_skew_ms: -3, clock, state, gone, pace_s: 30, unproven };
    reply("reply-node-report", &reported);
    reply("reply-node-host", &registry::Hosted {});
    reply("reply-node-hold", &node::LeaseAnswer { revision: Some(57), found: None, volumes: None });
    let value = "{\"node\":\"host.example\"}".to_owned();
    let found = node::FoundLease { revision: 57, value, has_ttl: true };
    reply(
        "reply-node-hold-by-another",
        &node::LeaseAnswer { revision: None, found: Some(found), volumes: None },
    );
    reply("reply-node-yield", &node::Yielded {});
    reply("reply-node-tell", &node::StoredEvents { stored: 1 });
    reply("reply-node-leave", &registry::NodeLeft { known: true, instances: 2, gone: true });
    reply(
        "reply-node-gone",
        &registry::Declared { proof: sample::proof(), claims: Some(vec![claim_status()]) },
    );
}

#[test]
fn agents_and_allocs() {
    request("request-agent-status", &agent::AgentQuery {});
    let mount = agent::MountStatus {
        namespace: sample::namespace(),
        volume: sample::volume(),
        alloc: sample::alloc_id(),
        epoch: 41,
        plugin: Some(sample::plugin()),
        external_id: Some("vol-0abc".to_owned()),
        options: sample::mount_summary(),
        path: "/var/lib/berth/csi/0a/target".to_owned(),
        mounted: true,
        staging: Some("/var/lib/berth/csi/0a/staging".to_owned()),
        staged: true,
        state: agent::MountState::Published,
        since: sample::at(0),
        earlier_boot: true,
        health: agent::MountHealth::Dead,
        trouble: Some("Transport endpoint is not connected".to_owned()),
        left_out: vec!["the plugin left out noexec, which the agent has set".to_owned()],
        health_since: Some(sample::at(5)),
    };
    let work = agent::WorkStatus {
        namespace: sample::namespace(),
        volume: sample::volume(),
        alloc: sample::alloc_id(),
        epoch: Some(41),
        step: "agent.detach".to_owned(),
        since: sample::at(1),
        rpc: Some("NodeUnpublishVolume".to_owned()),
        rpc_since: Some(sample::at(2)),
        hung: true,
    };
    let failure = agent::FailureStatus {
        namespace: sample::namespace(),
        volume: sample::volume(),
        alloc: sample::alloc_id(),
        epoch: Some(41),
        step: "agent.detach".to_owned(),
        tries: 3,
        since: sample::at(1),
        failure: sample::call_failure(),
        at: sample::at(3),
    };
    reply(
        "reply-agent-status",
        &agent::AgentStatus {
            requests: Some(vec![agent::MountRequests {
                namespace: sample::namespace(),
                alloc: sample::alloc_id(),
                volume: Some(sample::volume()),
                count: 1,
            }]),
            node: sample::node_id(),
            boot_id: "aaae2d42".to_owned(),
            since: sample::at(0),
            mounts: vec![mount],
            strays: vec!["/var/lib/berth/csi/0b/target".to_owned()],
            work: vec![work],
            storage: vec![agent::StorageCallStatus {
                namespace: sample::namespace(),
                volume: sample::volume(),
                step: "controller.create".to_owned(),
                since: sample::at(1),
                hung: true,
            }],
            late: vec![agent::LateAnswer {
                namespace: sample::namespace(),
                volume: sample::volume(),
                step: "controller.create".to_owned(),
                name: "berth-data-1".to_owned(),
                at: sample::at(4),
            }],
            failures: vec![failure],
            controllers: vec![sample::plugin()],
            guards: vec![agent::GuardStatus {
                namespace: sample::namespace(),
                alloc: sample::alloc_id(),
                guard: "process 4711".to_owned(),
                lives: true,
                unknown: None,
            }],
            runs: Some("/var/lib/berth/runs".to_owned()),
            access: Some(sample::access()),
        },
    );
    let (namespace, volume) = (sample::namespace(), sample::volume());
    let alloc = Some(sample::alloc_id());
    let unmount = agent::Unmount {
        namespace: namespace.clone(),
        volume: volume.clone(),
        alloc: alloc.clone(),
    };
    request("request-agent-unmount", &unmount);
    request("request-agent-republish", &agent::Republish { namespace, volume, alloc, force: true });
    let path = "/var/lib/berth/csi/0a/target".to_owned();
    let mounts = vec![agent::UnmountedMount { alloc: sample::alloc_id(), path: path.clone() }];
    reply("reply-agent-unmount", &agent::Unmounted { mounts });
    let mounts = vec![agent::RepublishedMount { alloc: sample::alloc_id(), path }];
    reply("reply-agent-republish", &agent::Republished { mounts });
}

#[test]
fn a_list_of_allocs() {
    let ended = alloc::AllocStub {
        id: sample::alloc_id(),
        namespace: sample::namespace(),
        state: AllocState::Complete,
        node: sample::node_id(),
        since: sample::at(0),
        note: Some("exit code 0".to_owned()),
        owner: Some(sample::owner_id()),
        unowned_since: None,
        by: Some("user.anna".to_owned()),
        meta: sample::meta(),
        volumes: vec![sample::volume()],
        mounts: vec![alloc::RequestedMount {
            volume: sample::volume(),
            name: "scratch".to_owned(),
            mount: sample::mount_summary(),
        }],
        claims: 1,
        modify_index: 42,
    };
    let next = Some("team=20a.web-1".to_owned());
    reply(
        "reply-alloc-list",
        &alloc::Allocs {
            index: 57,
            allocs: vec![ended],
            next,
            unreadable: vec![sample::unreadable()],
        },
    );
}

#[test]
fn what_an_agent_does_for_a_whole_alloc() {
    let (alloc, mount_all) = (sample::alloc_id(), sample::namespace());
    request(
        "request-agent-mount-all",
        &agent::MountAll {
            namespace: mount_all,
            alloc: alloc.clone(),
            wait: true,
            paths: sample::map("scratch", "/srv/jobs/web-1/scratch"),
        },
    );
    let mounted = agent::MountedVolume {
        name: "scratch".to_owned(),
        volume: sample::volume(),
        path: "/var/lib/berth/csi/0a/target".to_owned(),
        read_only: true,
        epoch: 41,
    };
    reply("reply-agent-mount-all", &agent::MountedAll { volumes: vec![mounted] });
    let guard = agent::Guard { pid: Some(4711), start: Some(123_456), ..agent::Guard::default() };
    let (namespace_of_guard, owner) = (sample::namespace(), Some(sample::owner_id()));
    request(
        "request-agent-guard",
        &agent::SetGuard { namespace: namespace_of_guard, alloc, owner, guard },
    );
    reply("reply-agent-guard", &agent::Guarded {});
}
