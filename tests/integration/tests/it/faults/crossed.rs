//! Each fault in each flow. The bus is killed, or one process's connection to it breaks or passes
//! nothing. Or one of two replicas of each service is killed for good or stopped, and the other
//! continues. The stopped replica then resumes with an outdated cache.
//!
//! Rows are the faults with their systems; columns are the flows. A claim and a release, on which
//! the data depend, are hit at every n-th point. The other flows are hit at their turning
//! points, before and after a write or call. The faults with the longest recovery hit those other
//! flows in `make test-all` only.

use berth_integration::Options;

use super::blow::Blow;
use super::flow::Flow;
use super::points::at_points;
use super::storage_flow::StorageFlow;
use super::{one_in, options, turning_points};

/// Flows that a request starts, besides a claim and a release.
const REQUESTED: [Flow; 3] = [Flow::Register, Flow::Detach, Flow::Join];
/// Flows that the collector ends.
const COLLECTED: [Flow; 4] = [Flow::Close, Flow::Collect, Flow::Forget, Flow::Leave];

/// Changes of the storage.
const STORED: [Flow; 6] = [
    Flow::Storage(StorageFlow::Create),
    Flow::Storage(StorageFlow::Copy),
    Flow::Storage(StorageFlow::Delete),
    Flow::Storage(StorageFlow::Expand),
    Flow::Storage(StorageFlow::Snapshot),
    Flow::Storage(StorageFlow::Group),
];

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
                at_points(&[Flow::Claim], Blow::$blow, one_in($step), $system()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn in_a_release() {
                at_points(&[Flow::Release], Blow::$blow, one_in($step), $system()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            $(#[ignore = $long])?
            async fn where_what_is_asked_for_turns() {
                at_points(&REQUESTED, Blow::$blow, turning_points(), $system()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            $(#[ignore = $long])?
            async fn where_the_storage_turns() {
                at_points(&STORED, Blow::$blow, turning_points(), $system()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            $(#[ignore = $long])?
            async fn where_collection_turns() {
                at_points(&COLLECTED, Blow::$blow, turning_points(), $system()).await;
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
