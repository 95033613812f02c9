//! The sender of a write or call is killed there with SIGKILL, and restarts.

use super::blow::Blow;
use super::flow::Flow;
use super::options;
use super::points::{PointChoice, at_points};
use super::storage_flow::StorageFlow;

async fn killed_in(flow: Flow) {
    at_points(&[flow], Blow::Kill, PointChoice::Every, options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_volume_is_registered() {
    killed_in(Flow::Register).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_in_a_claim() {
    killed_in(Flow::Claim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_an_alloc_gets_its_two_volumes() {
    killed_in(Flow::Whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_an_alloc_gets_none_of_its_two_volumes() {
    killed_in(Flow::Undo).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_in_a_release() {
    killed_in(Flow::Release).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_volume_is_detached_by_hand() {
    killed_in(Flow::Detach).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_volume_is_deregistered_by_force() {
    killed_in(Flow::Close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_claims_are_collected() {
    killed_in(Flow::Collect).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_an_alloc_is_forgotten() {
    killed_in(Flow::Forget).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_node_is_forgotten() {
    killed_in(Flow::Leave).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_node_joins() {
    killed_in(Flow::Join).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_volume_is_created() {
    killed_in(Flow::Storage(StorageFlow::Create)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_volume_is_copied() {
    killed_in(Flow::Storage(StorageFlow::Copy)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_volume_is_deleted() {
    killed_in(Flow::Storage(StorageFlow::Delete)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_volume_is_expanded() {
    killed_in(Flow::Storage(StorageFlow::Expand)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_snapshot_is_cut_and_deleted() {
    killed_in(Flow::Storage(StorageFlow::Snapshot)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_while_a_group_is_cut_and_deleted() {
    killed_in(Flow::Storage(StorageFlow::Group)).await;
}
