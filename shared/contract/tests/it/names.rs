//! Subjects, keys, buckets, streams, headers and codes, listed: one line each.

use std::fmt::Write as _;

use berth_contract::code::Code;
use berth_contract::subject::{AgentVerb, ControllerRpc, Global, Namespaced};
use berth_contract::{bucket, header, key, service, stream, subject};
use berth_domain::plugin::Half;

use crate::sample;

#[test]
fn subjects() {
    let mut list = String::new();
    for verb in [
        Namespaced::VolumeRegister,
        Namespaced::VolumeDeregister,
        Namespaced::VolumeStatus,
        Namespaced::VolumeList,
        Namespaced::ClaimTake,
        Namespaced::ClaimRelease,
        Namespaced::ClaimCheckpoint,
        Namespaced::ClaimStatus,
        Namespaced::AllocRegister,
        Namespaced::AllocStop,
        Namespaced::AllocStatus,
        Namespaced::AllocList,
    ] {
        let subject = verb.subject(&sample::namespace());
        writeln!(list, "{:<18}{subject}: {}", verb.endpoint(), verb.description()).unwrap();
    }
    for verb in [
        Global::PluginStatus,
        Global::NodeStatus,
        Global::NodeReport,
        Global::NodeLeave,
        Global::GcForce,
    ] {
        writeln!(list, "{:<18}{}", verb.endpoint(), verb.subject()).unwrap();
    }
    for verb in [AgentVerb::Mount, AgentVerb::Detach, AgentVerb::Status] {
        writeln!(list, "{:<18}{}", verb.as_str(), verb.subject(&sample::node_id())).unwrap();
    }
    for rpc in [ControllerRpc::Publish, ControllerRpc::Unpublish, ControllerRpc::Validate] {
        writeln!(list, "{:<18}{}", rpc.as_str(), rpc.subject(&sample::plugin())).unwrap();
    }
    let queue = subject::controller_queue(&sample::plugin());
    writeln!(list, "{:<18}{queue}", "queue group").unwrap();
    let event = subject::event(Some(&sample::namespace()), "claim", "data");
    writeln!(list, "{:<18}{event}", "event").unwrap();
    insta::assert_snapshot!("subjects", list);
}

#[test]
fn keys() {
    let (volume, alloc, node) = (sample::key(), sample::alloc_id(), sample::node_id());
    let keys = [
        key::spec(&volume),
        key::claim(&volume, &alloc),
        key::subtree(&volume),
        key::alloc(&volume.namespace, &alloc),
        key::instance(&sample::plugin(), &node, Half::Controller),
        key::node(&node),
        key::node_lease(&node),
        key::leader_lease("gc"),
    ];
    insta::assert_snapshot!("keys", keys.join("\n"));
}

#[test]
fn buckets_streams_services_and_headers() {
    let mut list = String::new();
    for bucket in bucket::ALL {
        writeln!(list, "{bucket:?}").unwrap();
    }
    writeln!(list, "{:?}", stream::EVENTS).unwrap();
    for service in [
        service::CLAIM,
        service::PLUGIN_REGISTRY,
        service::VOLUMEWATCHER,
        service::GC,
        service::NODE_AGENT,
        service::CONTROLLER,
    ] {
        writeln!(list, "{service:?}").unwrap();
    }
    writeln!(list, "{} {} {}", header::TRACEPARENT, header::DEADLINE, header::OPERATION).unwrap();
    insta::assert_snapshot!("buckets-streams-services-headers", list);
}

/// A code never changes its meaning: a new one is a new line.
#[test]
fn codes() {
    let list: Vec<String> =
        Code::ALL.iter().map(|code| format!("{code} {code:?}: {}", code.title())).collect();
    insta::assert_snapshot!("codes", list.join("\n"));
}
