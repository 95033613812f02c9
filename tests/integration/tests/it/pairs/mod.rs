//! Each request that changes something, in each state that another feature can leave.
//!
//! Other tests test each feature alone; these combine them. The rows of the table are the verbs
//! that people and programs send and that change something ([`verbs`], from the contract's table of
//! verbs); its columns are [`states`]. A new verb is a new row: it is played, or the first test
//! below says what to add. Berth's own processes send the other requests in the course of each
//! cell.
//!
//! A cell has its own volume, which a live alloc has mounted and has written to. The cell enters
//! the state, sends the request, has another alloc request the volume elsewhere, undoes the state
//! as an operator would, and ends. Its drivers are lenient: they carry out a wrong call, so that it
//! does its harm. A cell passes if
//! - the request is answered, by an error of its row at worst;
//! - the alloc's data is there while the volume is mounted;
//! - the volume stays mounted, unless the request or the state ends the alloc;
//! - the volume is granted nowhere else while it is mounted;
//! - everything comes to rest, and the judge finds nothing in the drivers' logs.
//!
//! One test plays each state, and one plays two states at once. Each test samples a few verbs by
//! `BERTH_PAIRS_SEED`, which is printed, and by default differs each day. `BERTH_FAULTS=all` plays
//! all verbs of a state, and all pairs of states; `BERTH_PAIRS_VERB` plays one verb.

#![expect(clippy::print_stdout, reason = "the steps before a failure help to explain it")]

mod cell;
mod cell_setup;
mod states;
mod verbs;

use std::time::{SystemTime, UNIX_EPOCH};

use berth_contract::verb::{self, Row};
use berth_harness::root::or_skip;

use self::cell::play;
use self::states::State;

/// How many verbs of a state are played, if not all.
const SAMPLED: usize = 2;
const SECONDS_OF_DAY: u64 = 24 * 60 * 60;

/// The verbs that people and programs send, and that change something.
fn rows() -> impl Iterator<Item = &'static Row> {
    verb::ALL.iter().filter(|row| !row.only_reads() && row.is_for_clients())
}

#[test]
fn each_verb_that_changes_something_is_played() {
    let unplayed: Vec<&str> =
        rows().map(|row| row.step).filter(|step| !verbs::is_played(step)).collect();
    assert!(
        unplayed.is_empty(),
        "these verbs change something, and no cell plays them: {unplayed:?}. Say in \
         tests/it/pairs/verbs.rs what is sent, and whether it ends the alloc"
    );
}

async fn play_state(state: State) {
    if !or_skip("real mounts") {
        return;
    }
    let sampled = if plays_all() { usize::MAX } else { SAMPLED };
    play_in(&[state], sampled, &mut Dice::new(state as u64)).await;
}

/// Plays verbs in these states, as many as are sampled.
async fn play_in(states: &[State], sampled: usize, dice: &mut Dice) {
    let chosen = choose(states, sampled, dice);
    println!("{states:?}: {:?}", chosen.iter().map(|row| row.step).collect::<Vec<_>>());
    let failed = play(states, &chosen).await;
    let (count, faults) = (failed.len(), failed.join("\n\n"));
    assert!(failed.is_empty(), "{count} of {} cells failed:\n{faults}", chosen.len());
}

fn plays_all() -> bool {
    std::env::var("BERTH_FAULTS").is_ok_and(|faults| faults == "all")
}

/// The verbs to play in these states.
fn choose(states: &[State], sampled: usize, dice: &mut Dice) -> Vec<&'static Row> {
    let makes_sense = |row: &&Row| states.iter().all(|state| state.makes_sense_of(row.step));
    let mut candidates: Vec<&Row> = rows().filter(makes_sense).collect();
    if let Ok(verb) = std::env::var("BERTH_PAIRS_VERB") {
        candidates.retain(|row| row.step == verb);
        return candidates;
    }
    if sampled >= candidates.len() {
        return candidates;
    }
    (0..sampled).map(|_| candidates.swap_remove(dice.below(candidates.len()))).collect()
}

/// Random numbers of `BERTH_PAIRS_SEED`, or of the day, so that each day samples other verbs.
struct Dice(u64);

impl Dice {
    fn new(salt: u64) -> Self {
        let chosen = std::env::var("BERTH_PAIRS_SEED").ok().and_then(|seed| seed.parse().ok());
        let day = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(0, |now| now.as_secs() / SECONDS_OF_DAY)
        };
        let seed: u64 = chosen.unwrap_or_else(day);
        println!("BERTH_PAIRS_SEED={seed}");
        Self(seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below the bound, by `SplitMix64`.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % bound as u64).unwrap_or(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_beside_an_unaccounted_mount() {
    play_state(State::UnaccountedMount).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_volume_whose_spec_is_lost() {
    play_state(State::LostSpec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_after_an_older_backup_was_restored() {
    play_state(State::RestoredBucket).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_an_operation_at_the_storage() {
    play_state(State::HalfMadeOperation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_while_a_guard_has_just_died() {
    play_state(State::DeadGuard).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_while_the_agent_has_another_name() {
    play_state(State::RenamedNode).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_while_the_node_is_gone() {
    play_state(State::GoneNode).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_where_the_quota_is_used_up() {
    play_state(State::FullQuota).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_while_another_alloc_waits() {
    play_state(State::OpenWait).await;
}

/// Two states at once, in the order in which they come about: one of them each day, or all.
///
/// Left out: a node that is gone, with a mount whose claim was lost before. Nothing on record has
/// the storage detach the volume from it (docs/failover.md).
#[tokio::test(flavor = "multi_thread")]
async fn changes_in_two_states_at_once() {
    use State::{
        DeadGuard, FullQuota, GoneNode, HalfMadeOperation, LostSpec, OpenWait, RestoredBucket,
        UnaccountedMount,
    };
    const PAIRS: [[State; 2]; 11] = [
        [RestoredBucket, DeadGuard],
        [RestoredBucket, LostSpec],
        [HalfMadeOperation, RestoredBucket],
        [OpenWait, RestoredBucket],
        [RestoredBucket, GoneNode],
        [UnaccountedMount, LostSpec],
        [UnaccountedMount, DeadGuard],
        [UnaccountedMount, GoneNode],
        [HalfMadeOperation, GoneNode],
        [LostSpec, GoneNode],
        [FullQuota, LostSpec],
    ];
    if !or_skip("real mounts") {
        return;
    }
    let mut dice = Dice::new(PAIRS.len() as u64 + 64);
    let index = dice.below(PAIRS.len());
    let chosen = if plays_all() { &PAIRS[..] } else { &PAIRS[index..=index] };
    for pair in chosen {
        play_in(pair, SAMPLED, &mut dice).await;
    }
}
