//! What is shown: replies that put records together, and cannot be stored.

use berth_contract::message::{agent, alloc, registry, volume};
use berth_domain::PluginId;
use berth_domain::alloc::AllocState;
use berth_domain::plugin::{Count, Half, NodeState};
use berth_domain::volume::Closing;

use crate::messages::{claim_status, reply, request};
use crate::sample;

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
        version: sample.version,
        since: sample.since,
        controller: sample.controller.filter(|_| half == Half::Controller),
        abilities: sample.node.filter(|_| half == Half::Node),
    }
}

#[test]
fn a_volume_and_a_list_of_them() {
    let spec = sample::spec();
    reply(
        "reply-volume-status",
        &volume::VolumeStatus {
            id: sample::volume(),
            namespace: sample::namespace(),
            name: spec.name.clone(),
            closing: Some(Closing { since: sample::at(9), reason: "no longer needed".to_owned() }),
            plugin: sample::plugin(),
            external_id: "vol-0a1b".to_owned(),
            capabilities: spec.capabilities,
            in_use: Some(sample::capability()),
            fs_type: Some("ext4".to_owned()),
            // How many, and not which: they may be secret.
            mount_flags: 1,
            topologies: spec.topologies,
            capacity_bytes: spec.capacity_bytes,
            parameters: spec.parameters,
            context: spec.context,
            has_secrets: true,
            health: volume::Health {
                healthy: true,
                description: "it can be claimed on 2 nodes".to_owned(),
                controllers: Some(count(1, 1)),
                nodes: count(2, 3),
            },
            claims: vec![claim_status()],
            create_index: 3,
            modify_index: 42,
        },
    );
    let stub = volume::VolumeStub {
        id: sample::volume(),
        namespace: sample::namespace(),
        name: spec.name,
        plugin: sample::plugin(),
        in_use: Some(sample::capability()),
        readers: 0,
        writers: 1,
        releasing: 1,
        waiting: 2,
        healthy: true,
        fs_type: Some("ext4".to_owned()),
        modify_index: 42,
    };
    reply("reply-volume-list", &volume::Volumes { index: 57, volumes: vec![stub] });
}

#[test]
fn plugins_and_nodes() {
    request("request-plugin-status", &registry::Status::<PluginId> { id: Some(sample::plugin()) });
    let plugin = registry::PluginStatus {
        id: sample::plugin(),
        provider: "ebs.csi.aws.com".to_owned(),
        versions: vec!["1.2.3".to_owned()],
        controllers: Some(count(1, 1)),
        nodes: count(2, 3),
        attaches: true,
        instances: vec![instance(Half::Controller), instance(Half::Node)],
    };
    reply("reply-plugin-status", &registry::Plugins { plugins: vec![plugin] });
    let node = registry::NodeStatus {
        id: sample::node_id(),
        state: NodeState::Down,
        since: sample::at(0),
        clock_skew_ms: -3,
        version: "0.1.0".to_owned(),
        boot_id: "aaae2d42".to_owned(),
        attributes: sample::map("hostname", "host"),
        instances: vec![instance(Half::Node)],
    };
    reply("reply-node-status", &registry::Nodes { nodes: vec![node] });
    reply("reply-node-report", &registry::Reported { clock_skew_ms: -3 });
    reply("reply-node-leave", &registry::Left { known: true, instances: 2 });
}

#[test]
fn agents_and_allocs() {
    request("request-agent-status", &agent::Status {});
    let mount = agent::MountStatus {
        namespace: sample::namespace(),
        volume: sample::volume(),
        alloc: sample::alloc_id(),
        epoch: 41,
        path: "/var/lib/berth/csi/0a/target".to_owned(),
        mounted: true,
    };
    reply(
        "reply-agent-status",
        &agent::AgentStatus {
            node: sample::node_id(),
            mounts: vec![mount],
            controllers: vec![sample::plugin()],
        },
    );
    let ended = alloc::AllocStatus {
        id: sample::alloc_id(),
        namespace: sample::namespace(),
        state: AllocState::Complete,
        node: sample::node_id(),
        index: None,
        since: sample::at(0),
        note: Some("exit code 0".to_owned()),
        volumes: Vec::new(),
        claims: Vec::new(),
    };
    reply("reply-alloc-list", &alloc::Allocs { allocs: vec![ended] });
}
