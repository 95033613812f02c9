//! The bus is killed at a point of a flow, or the way of one process to it breaks or goes deaf.

use berth_integration::Options;

use super::blow::Blow;
use super::flow::Flow;
use super::points::at_points;
use super::{options, some};

#[tokio::test(flavor = "multi_thread")]
async fn the_only_server_is_killed_in_a_claim() {
    at_points(Flow::Claim, Blow::KillBus, some(3), options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_only_server_is_killed_in_a_release() {
    at_points(Flow::Release, Blow::KillBus, some(3), options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_three_is_killed_in_a_claim() {
    let options = Options { servers: 3, ..options() };
    at_points(Flow::Claim, Blow::KillBus, some(5), options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_three_is_killed_in_a_release() {
    let options = Options { servers: 3, ..options() };
    at_points(Flow::Release, Blow::KillBus, some(5), options).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_breaks_in_a_claim() {
    at_points(Flow::Claim, Blow::Cut, some(3), options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_breaks_in_a_release() {
    at_points(Flow::Release, Blow::Cut, some(3), options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_deaf_in_a_claim() {
    at_points(Flow::Claim, Blow::Lose, some(3), options()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_goes_deaf_in_a_release() {
    at_points(Flow::Release, Blow::Lose, some(5), options()).await;
}
