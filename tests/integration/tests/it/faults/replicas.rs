//! Two of each service: one is killed at a point of a flow and stays dead, or stands still there,
//! and the other carries on. The one that stood still then goes on where it was, with old news.

use berth_integration::Options;

use super::blow::Blow;
use super::flow::Flow;
use super::points::at_points;
use super::{options, some};

fn two() -> Options {
    Options { replicas: 2, ..options() }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_is_killed_in_a_claim() {
    at_points(Flow::Claim, Blow::KillLong, some(3), two()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_is_killed_in_a_release() {
    at_points(Flow::Release, Blow::KillLong, some(3), two()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_is_paused_in_a_claim_and_wakes_up_later() {
    at_points(Flow::Claim, Blow::Pause, some(3), two()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_is_paused_in_a_release_and_wakes_up_later() {
    at_points(Flow::Release, Blow::Pause, some(3), two()).await;
}
