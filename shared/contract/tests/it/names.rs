//! Subjects, keys, buckets, streams, headers and codes, listed: one line each.

use std::fmt::Write as _;

use berth_contract::code::Code;
use berth_contract::verb::{self, Row};
use berth_contract::{bucket, header, key, service, stream, subject, token};
use berth_domain::plugin::Half;

use crate::sample;

#[test]
fn subjects() {
    let mut list = String::new();
    for one in verb::ALL {
        let subject = one
            .subject
            .replace("<ns>", &token::encode(sample::namespace()))
            .replace("<node>", &token::encode(sample::node_id()))
            .replace("<plugin>", &token::encode(sample::plugin()));
        let Row { service, endpoint, description, .. } = one;
        writeln!(list, "{:<22}{endpoint:<18}{subject}: {description}", service.name).unwrap();
    }
    let queue = subject::controller_queue(&sample::plugin());
    writeln!(list, "{:<18}{queue}", "queue group").unwrap();
    let event = subject::EventSubject {
        namespace: Some(&sample::namespace()),
        kind: "claim",
        id: Some("data"),
        alloc: Some(&sample::alloc_id()),
        by: Some("user.anna"),
    };
    writeln!(list, "{:<18}{event}", "event").unwrap();
    insta::assert_snapshot!("subjects", list);
}

#[test]
fn keys() {
    let (volume, alloc, node) = (sample::key(), sample::alloc_id(), sample::node_id());
    let keys = [
        key::spec(&volume),
        key::claim(&volume, &alloc),
        key::snapshot(&volume, &sample::snapshot_id()),
        key::barrier(&volume),
        key::subtree(&volume),
        key::class(&sample::class_id()),
        key::quota(&sample::class_id(), &volume.namespace),
        key::handle(&sample::spec().handle(&volume.volume).unwrap()),
        key::alloc(&volume.namespace, &alloc),
        key::instance(&sample::plugin(), &node, Half::Controller),
        key::job(&sample::plugin(), &volume.namespace, &sample::job_id()),
        key::node(&node),
        key::node_lease(&node),
        key::owner_lease(&volume.namespace, &sample::owner_id()),
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
    for service in service::ALL {
        writeln!(list, "{service:?}").unwrap();
    }
    for name in [header::TRACEPARENT, header::DEADLINE, header::OPERATION, header::WRITE] {
        writeln!(list, "{name}").unwrap();
    }
    insta::assert_snapshot!("buckets-streams-services-headers", list);
}

/// A code never changes its meaning: a new one is a new line.
#[test]
fn codes() {
    let list: Vec<String> =
        Code::ALL.iter().map(|code| format!("{code} {code:?}: {}", code.title())).collect();
    insta::assert_snapshot!("codes", list.join("\n"));
}
