//! A plan is a function of its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;

const LONG: Duration = Duration::from_secs(1_800);

fn of(seed: u64, length: Duration) -> Vec<Event> {
    plan(seed, Shape::of(seed), length)
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    assert_eq!(of(5, LONG), of(5, LONG));
    assert_ne!(of(5, LONG), of(6, LONG));
}

#[test]
fn a_longer_run_begins_as_a_shorter_one() {
    let (short, long) = (of(5, Duration::from_secs(60)), of(5, LONG));
    assert!(short.len() > 100, "{} events in a minute", short.len());
    assert_eq!(short[..], long[..short.len()]);
}

#[test]
fn four_seeds_in_a_row_are_every_shape() {
    let shapes: BTreeSet<_> =
        (40..44).map(|seed| (Shape::of(seed).servers, Shape::of(seed).replicas)).collect();
    assert_eq!(shapes, BTreeSet::from([(1, 1), (1, 2), (3, 1), (3, 2)]));
}

#[test]
fn half_of_the_runs_have_lenient_drivers() {
    let lenient = (0..1_000).filter(|seed| Shape::of(*seed).lenient).count();
    assert!((450..550).contains(&lenient), "{lenient} of 1000");
    // Whatever else a seed asks for.
    let servers: BTreeSet<_> =
        (0..40).map(|seed| (Shape::of(seed).servers, Shape::of(seed).lenient)).collect();
    assert_eq!(servers.len(), 4, "{servers:?}");
}

#[test]
fn a_quarter_of_the_runs_have_their_buckets_restored_by_either_tool() {
    let restores = || (0..1_000).filter_map(|seed| restore(seed, Shape::of(seed)));
    let by_berth = restores().filter(|restore| restore.tool == Tool::Berth).count();
    let total = restores().count();
    assert!((200..300).contains(&total) && (80..170).contains(&by_berth), "{by_berth} of {total}");
    assert!(restores().all(|restore| restore.held.len() >= 4));
    assert_eq!(restore(7, Shape::of(7)), restore(7, Shape::of(7)));
}

/// The summary of a run proves something only if each kind of operation and fault comes up.
#[test]
fn every_kind_of_operation_and_fault_comes_up_at_every_target() {
    let mut kinds = BTreeSet::new();
    let mut targets = BTreeSet::new();
    // This seed has three servers, and therefore links between them.
    for event in of(2, LONG) {
        match event.kind {
            EventKind::Operation(operation) => _ = kinds.insert(operation.kind()),
            EventKind::Strike(strike) => {
                kinds.insert(strike.fault.kind());
                targets.insert(strike.target);
            }
        }
    }
    assert_eq!(targets, Target::all(Shape::of(2)).into_iter().collect());
    assert_eq!(kinds.len(), 12 + 10 + 7 + 7 + 11, "{kinds:?}");
}

#[test]
fn no_target_suffers_two_faults_at_once() {
    let mut until: BTreeMap<Target, Duration> = BTreeMap::new();
    for event in of(9, LONG) {
        let EventKind::Strike(strike) = event.kind else { continue };
        let before = until.insert(strike.target, event.at + strike.lasts);
        assert!(before.is_none_or(|before| before < event.at), "{strike} at {:?}", event.at);
    }
}

#[test]
fn who_only_may_read_only_reads() {
    for event in of(4, LONG) {
        let EventKind::Operation(Operation { action: Action::Workload(workload), .. }) = event.kind
        else {
            continue;
        };
        assert!(workload.read_only || kind_of(workload.volume).writers > 0, "{workload:?}");
    }
}
