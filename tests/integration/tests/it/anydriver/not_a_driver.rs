//! A process at the socket that is no driver is unhealthy with a reason; the node continues.

use berth_domain::plugin::Half;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{await_instance, one_node, try_register};

async fn check_unhealthy(driver: fn(usize) -> Vec<String>, reason: &str) {
    let system = System::start(Options { driver, healthy: Some((0, 0)), ..one_node() }).await;
    let has_reason =
        |node: &Value| node["description"].as_str().is_some_and(|text| text.contains(reason));
    let node = await_instance(&system, "n1", Half::Node, has_reason).await;
    assert_eq!(node["healthy"], false, "{node}");
    assert!(node["abilities"].is_null(), "no abilities are shown: {node}");
    let refused = try_register(&system, "data", json!({})).await.unwrap_err();
    assert!(refused.message.contains("no healthy"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_takes_connections_and_says_nothing() {
    check_unhealthy(|_| vec!["--speak=nothing".to_owned()], "no answer within").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_server_at_the_socket() {
    check_unhealthy(|_| vec!["--speak=http1".to_owned()], "does not speak gRPC").await;
}
