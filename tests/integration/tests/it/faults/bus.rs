//! The bus is killed at a point of a flow, or the way of one process to it breaks or goes deaf.

use berth_integration::Options;

use super::blow::Blow;
use super::flow::Flow;
use super::points::{Which, at_points};
use super::{all, options};

/// Every point, or in a fast run one in so many.
fn some(step: usize) -> Which {
    if all() { Which::Every } else { Which::OneIn(step) }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_server_is_killed_in_a_claim() {
    at_points(Flow::Claim, Blow::KillBus, Which::Every, options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_server_is_killed_in_a_release() {
    at_points(Flow::Release, Blow::KillBus, Which::Every, options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_three_is_killed_in_a_claim() {
    let options = Options { servers: 3, ..options() };
    at_points(Flow::Claim, Blow::KillBus, some(2), options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_three_is_killed_in_a_release() {
    let options = Options { servers: 3, ..options() };
    at_points(Flow::Release, Blow::KillBus, some(4), options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_breaks_in_a_claim() {
    at_points(Flow::Claim, Blow::Cut, Which::Every, options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_breaks_in_a_release() {
    at_points(Flow::Release, Blow::Cut, Which::Every, options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_deaf_in_a_claim() {
    at_points(Flow::Claim, Blow::Lose, some(2), options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_deaf_in_a_release() {
    at_points(Flow::Release, Blow::Lose, some(4), options()).await;
}
