//! The subjects that are read, and the tokens of pages.

use berth_contract::message::query::Page;
use serde_json::{Value, json};

use super::*;

fn filters_of(namespace: &str, query: Value) -> Vec<String> {
    let query: ListEvents = serde_json::from_value(query).unwrap();
    let subjects = filters(&Namespace::new(namespace).unwrap(), &query);
    subjects
        .iter()
        .map(|filter| filter.strip_prefix("berth.v1.event.").unwrap().to_owned())
        .collect()
}

#[test]
fn subjects_narrow_down_what_is_read_and_never_overlap() {
    for (namespace, query, expected) in [
        ("team-a", json!({}), &["team-a.>"][..]),
        ("*", json!({}), &[">"]),
        ("*", json!({"only_namespace": "*"}), &[">"]),
        ("*", json!({"only_namespace": "team-a"}), &["_.>", "team-a.>"]),
        ("team-a", json!({"volumes": ["a.b", "a.b"]}), &["team-a.*.a=2Eb.>"]),
        ("*", json!({"volumes": ["v"]}), &["*.*.v.>"]),
        (
            "team-a",
            json!({"kinds": ["request"], "volumes": ["v"], "allocs": ["a"]}),
            &["team-a.request.v.*.>"],
        ),
        (
            "team-a",
            json!({"kinds": ["request", "alloc"], "allocs": ["a"]}),
            &["team-a.alloc.a.>", "team-a.request.*.a.>"],
        ),
        (
            "team-a",
            json!({"kinds": ["claim", "call", "claim"], "volumes": ["v"]}),
            &["team-a.call.v.>", "team-a.claim.v.>"],
        ),
        (
            "team-a",
            json!({"kinds": ["claim", "request"]}),
            &["team-a.claim.>", "team-a.request.*.*.>"],
        ),
        ("team-a", json!({"kinds": ["node"]}), &["team-a.node.>"]),
        (
            "*",
            json!({"kinds": ["plugin", "node"], "node": "n1", "only_namespace": "team-a"}),
            &["_.node.n1.>", "_.plugin.>", "team-a.node.n1.>", "team-a.plugin.>"],
        ),
        ("team-a", json!({"allocs": ["web-1"]}), &["team-a.>"]),
    ] {
        assert_eq!(filters_of(namespace, query.clone()), expected, "{namespace} {query}");
    }
}

/// Whatever a request for one namespace contains, only subjects of this namespace are read.
#[test]
fn no_filter_leaves_the_namespace() {
    let ids = ["*", ">", "team-b", "a.b", "_", "=2A", "team-b.claim.>"];
    let kinds = ["volume", "claim", "call", "alloc", "request", "plugin", "node"];
    for id in ids {
        for kinds in [json!([]), json!(kinds)] {
            let query = json!({"kinds": kinds, "volumes": [id], "allocs": [id], "node": id,
                "plugin": id, "trace": id});
            let filters = filters_of("team-a", query);
            assert!(
                filters.iter().all(|filter| filter.starts_with("team-a.")),
                "{id}: {filters:?}"
            );
        }
        for namespace in ["team.a", "_", ">", "team-a.>"] {
            let filters = filters_of(namespace, json!({"volumes": [id]}));
            let of_fleet = |filter: &String| filter.starts_with(['_', '*', '>']);
            assert!(!filters.iter().any(of_fleet), "{namespace}: {filters:?}");
        }
    }
}

#[test]
fn a_token_says_where_to_go_on() {
    let position = Position { sequence: 7, stored: Timestamp::from_unix_ms(9) };
    for direction in [Direction::Older(7), Direction::Newer(position)] {
        assert_eq!(Direction::parse(&direction.token()), Some(direction));
    }
    for token in ["", "7", "older.", "older.-1", "newer.7", "newer.7.x", "later.7.9"] {
        let page = Page { limit: None, after: Some(token.to_owned()) };
        let only_namespace = Some(Namespace::new("team-b").unwrap());
        let query = ListEvents { page, only_namespace, ..ListEvents::default() };
        let refused = check(&Namespace::new("team-a").unwrap(), &query).unwrap_err();
        assert_eq!(refused.faults.len(), 2, "{token:?}: {refused:?}");
    }
}
