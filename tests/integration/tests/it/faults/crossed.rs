//! Each fault in each flow. The bus is killed there, or the way of one process to it breaks or goes
//! deaf. Or, of two replicas of each service, one is killed there and stays dead, or is stopped,
//! and the other carries on. The stopped one then goes on where it was, with an outdated cache.
//!
//! The rows are the faults, with the system that each befalls; the columns are the flows. A claim
//! and a release, on which the data hang, are struck at one point in so many; the others where they
//! turn, before a write or call and after one. The faults that take longest to recover from befall
//! those others in `make test-all` only.

use berth_integration::Options;

use super::blow::Blow;
use super::flow::Flow;
use super::points::at_points;
use super::{options, some, turns};

/// Requests beside a claim and a release.
const ASKED: [Flow; 3] = [Flow::Register, Flow::Detach, Flow::Join];
/// What the collector sees to, the last part of it at least.
const COLLECTED: [Flow; 4] = [Flow::Close, Flow::Collect, Flow::Forget, Flow::Leave];

fn one_server() -> Options {
    options()
}

fn three_servers() -> Options {
    Options { servers: 3, ..options() }
}

fn two_of_each() -> Options {
    Options { replicas: 2, ..options() }
}

macro_rules! crossed {
    ($(
        $fault:ident: $blow:ident, $system:ident, one in $step:literal $(, long $long:literal)?;
    )*) => {$(
        mod $fault {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn in_a_claim() {
                at_points(&[Flow::Claim], Blow::$blow, some($step), $system()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn in_a_release() {
                at_points(&[Flow::Release], Blow::$blow, some($step), $system()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            $(#[ignore = $long])?
            async fn where_what_is_asked_for_turns() {
                at_points(&ASKED, Blow::$blow, turns(), $system()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            $(#[ignore = $long])?
            async fn where_collection_turns() {
                at_points(&COLLECTED, Blow::$blow, turns(), $system()).await;
            }
        }
    )*};
}

crossed! {
    the_only_server_is_killed: KillBus, one_server, one in 3;
    the_leader_of_three_is_killed: KillBus, three_servers, one in 5, long "make test-all";
    a_connection_breaks: Cut, one_server, one in 3;
    a_connection_goes_deaf: Lose, one_server, one in 3, long "make test-all";
    one_of_two_is_killed: KillLong, two_of_each, one in 3;
    one_of_two_is_paused_and_wakes_up_later: Pause, two_of_each, one in 3, long "make test-all";
}
