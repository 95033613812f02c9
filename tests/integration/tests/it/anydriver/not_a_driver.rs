//! A process at the socket that is no driver is unhealthy with a reason; the node continues.

use berth_domain::plugin::Half;
use berth_integration::{Options, System};
use serde_json::json;

use super::{alone, seen, try_register};

async fn stranger(driver: fn(usize) -> Vec<String>, says: &str) {
    let system = System::start(Options { driver, healthy: Some((0, 0)), ..alone() }).await;
    let told = |one: &serde_json::Value| {
        one["description"].as_str().is_some_and(|text| text.contains(says))
    };
    let node = seen(&system, "n1", Half::Node, told).await;
    assert_eq!(node["healthy"], false, "{node}");
    assert!(node["abilities"].is_null(), "nothing is known of it: {node}");
    let refused = try_register(&system, "data", json!({})).await.unwrap_err();
    assert!(refused.message.contains("no healthy"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_takes_connections_and_says_nothing() {
    stranger(|_| vec!["--speak=nothing".to_owned()], "no answer within").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_server_at_the_socket() {
    stranger(|_| vec!["--speak=http1".to_owned()], "does not speak gRPC").await;
}
