//! The plugins of a node, as its agent is asked for them.

use berth_contract::message::plugin;
use berth_domain::volume::HoldingProcess;

use crate::messages::{reply, request};
use crate::sample;

#[test]
fn plugins_of_a_node() {
    let instance = || "3f2c9a10b4de".to_owned();
    request("request-agent-plugins", &plugin::AgentPluginsQuery {});
    let here = plugin::LocalInstance {
        plugin: sample::plugin(),
        instance: instance(),
        source: "/etc/berth/plugins.d/ebs.toml".to_owned(),
        socket: "/var/lib/berth/run/3f2c9a10b4de/csi.sock".to_owned(),
        serves: true,
        healthy: true,
        description: "ebs.csi.aws.com 1.2 is ready".to_owned(),
        version: Some("1.2".to_owned()),
        since: sample::at(0),
        supervised: true,
        pid: Some(4711),
        listener: Some(HoldingProcess { pid: 4712, command: "ebs-plugin".to_owned() }),
        restarts: 2,
        leaving: true,
        stopped_by: Some("ada@host".to_owned()),
        mounts: 3,
    };
    let fault = plugin::SourceFault {
        source: "/etc/berth/plugins.d/bad.toml".to_owned(),
        problem: "line 1: `id` must not be empty".to_owned(),
    };
    reply(
        "reply-agent-plugins",
        &plugin::AgentPlugins {
            node: sample::node_id(),
            instances: vec![here],
            faults: vec![fault],
        },
    );
    let (id, by) = (sample::plugin(), "ada@host".to_owned());
    request(
        "request-agent-plugin-stop",
        &plugin::StopPlugin { plugin: id, instance: Some(instance()), even_with_mounts: true, by },
    );
    reply("reply-agent-plugin-stop", &plugin::OrderedInstances { instances: vec![instance()] });
    request(
        "request-agent-plugin-start",
        &plugin::StartPlugin { plugin: sample::plugin(), instance: Some(instance()) },
    );
    reply("reply-agent-plugin-start", &plugin::OrderedInstances { instances: vec![instance()] });
}
