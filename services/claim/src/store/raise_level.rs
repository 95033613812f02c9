//! Raises the level of records, shows it, and lets an operator hold it.
//!
//! **Owns** the looks at the replicas of all services that read records, and the record `=level`.
//!
//! **Promises**
//!
//! - The level rises by itself, after several looks in a row found no replica that could not read
//!   the records of the new level. In a bucket without any record one look is enough.
//! - A replica that may not ask the others, or that does not see itself, raises nothing.
//!
//! **Never** lowers the level. A replica that was paused or cut off during all looks, and so was
//! not seen, refuses by itself what it cannot read; another one answers.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::key;
use berth_contract::level::{self, Level, LevelHolder, OlderReplica};
use berth_contract::message::level::{HoldLevel, LevelStatus};
use berth_contract::problem::Problem;
use berth_contract::record::NEWEST_SCHEMA;
use berth_contract::service::{CLAIM, READERS};
use berth_domain::retry::Schedule;
use berth_service::process::chain;
use berth_service::projection::Volumes;
use berth_service::record_table::{StoreError, retry_lost_races};
use berth_service::{clock, deadline};
use futures_util::future::join_all;
use serde::Deserialize;

use crate::caller::Caller;
use crate::store::level::Obstacle;
use crate::store::state::State;

/// Interval between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Intervals after looks that showed nothing: an identity without the right will not get it soon.
const LOOK_AGAIN: Schedule = Schedule { first: LOOK_EVERY, max: Duration::from_secs(60) };
/// Looks in a row without an older replica before the level rises. A restart takes less time.
const LOOKS: u32 = 3;
/// How long the replicas of one service may take to answer.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// The level, for operators that use `nats micro`, and for `berth doctor`.
pub fn facts(state: &State) -> Vec<(&'static str, String)> {
    state.volumes.mirror.read(|volumes| {
        let level = volumes.level();
        let in_force = level.in_force(volumes.newest_schema());
        let hold = level.held.as_ref();
        let hold = hold.map(|hold| (level::HELD_BY, format!("{}, since {}", hold.by, hold.since)));
        [(level::IN_FORCE, in_force.to_string())].into_iter().chain(hold).collect()
    })
}

/// In a bucket without any record the level is the newest from the start, so that no request waits.
pub async fn begin(state: &State) {
    if matches!(state.volumes.bucket.head(">").await, Ok(0)) {
        let obstacle = look_at_replicas(state, false).await;
        settle(state, obstacle, true).await;
    }
}

/// Raises the level when that is due. Several replicas may do so at once: the write is guarded.
pub async fn keep(state: State) {
    let (mut clear, mut blind) = (0, 0);
    loop {
        let (level, schema) =
            state.volumes.mirror.read(|all| (all.level().clone(), all.newest_schema()));
        // It would not rise, whatever a look finds.
        if level.raised(schema, true).is_none() {
            clear = 0;
            state.level.record(Obstacle::Looking);
        } else {
            let obstacle = look_at_replicas(&state, true).await;
            clear = if obstacle == Obstacle::Looking { clear + 1 } else { 0 };
            settle(&state, obstacle, clear >= LOOKS).await;
        }
        blind = if matches!(state.level.obstacle(), Obstacle::Unknown(_)) { blind + 1 } else { 0 };
        let pause = match blind {
            0 => clock::jittered(LOOK_EVERY),
            blind => LOOK_AGAIN.wait(blind, clock::jitter()),
        };
        tokio::time::sleep(pause).await;
    }
}

/// Writes the level that follows from a look, and stores what keeps it from rising.
async fn settle(state: &State, obstacle: Obstacle, is_last: bool) {
    let all_read = obstacle == Obstacle::Looking && is_last;
    let written = raise(state, all_read).await;
    state.level.record(match written {
        Err(StoreError::LostRace) | Ok(()) => obstacle,
        Err(error) => Obstacle::Unknown(chain(&error)),
    });
}

async fn raise(state: &State, all_read: bool) -> Result<(), StoreError> {
    let schema = state.volumes.mirror.read(Volumes::newest_schema);
    let (revision, stored) = state.volumes.read::<Level>(key::LEVEL).await?;
    let Some(level) = stored.unwrap_or_default().raised(schema, all_read) else { return Ok(()) };
    state.volumes.put(key::LEVEL, &level, revision, clock::begin_trace()).await?;
    tracing::info!(level = level.level, "the level of records has risen");
    Ok(())
}

/// `level.hold`: an operator holds the level, or releases it.
pub async fn hold(
    state: &State,
    request: HoldLevel,
    caller: &Caller,
) -> Result<LevelStatus, Problem> {
    let by = caller.by().unwrap_or_else(|| "an unnamed caller".to_owned());
    let schema = state.volumes.mirror.read(Volumes::newest_schema);
    let level = retry_lost_races(|| async {
        deadline::check(caller.deadline)?;
        let (revision, stored) = state.volumes.read::<Level>(key::LEVEL).await?;
        let before = stored.clone().unwrap_or_default();
        let level = if request.hold {
            before.hold(LevelHolder { by: by.clone(), since: clock::now() })
        } else {
            Level { held: None, ..before }
        };
        if stored.as_ref() != Some(&level) {
            state.volumes.put(key::LEVEL, &level, revision, caller.trace).await?;
        }
        Ok(level)
    });
    let level = level.await?;
    let in_force = level.in_force(schema);
    let (held_by, held_since) = level.held.map(|hold| (hold.by, hold.since)).unzip();
    Ok(LevelStatus { level: in_force, newest: NEWEST_SCHEMA, held_by, held_since })
}

/// A replica's answer to `$SRV.PING`.
#[derive(Debug, Deserialize)]
struct Pong {
    id: String,
    version: String,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// Asks all replicas of the services that read records. With `sees_itself`, this replica must be
/// among them.
async fn look_at_replicas(state: &State, sees_itself: bool) -> Obstacle {
    let surveys = READERS.map(async |service| {
        let subject = format!("$SRV.PING.{}", service.name);
        (service, state.bus.survey::<Pong>(&subject, LOOK_WITHIN).await)
    });
    let mut older = Vec::new();
    for (service, answer) in join_all(surveys).await {
        let replicas = match answer {
            Ok(replicas) => replicas,
            Err(error) => return Obstacle::Unknown(chain(&error)),
        };
        let own = Some(state.worker.as_str());
        let is_own = |pong: &Pong| pong.metadata.get("worker").map(String::as_str) == own;
        if service == CLAIM && sees_itself && !replicas.iter().any(is_own) {
            return Obstacle::Unknown("this replica does not see itself on the bus".to_owned());
        }
        older.extend(replicas.iter().filter_map(|pong| {
            let Pong { id, version, metadata } = pong;
            OlderReplica::find(service.name, id, version, metadata, NEWEST_SCHEMA)
        }));
    }
    if older.is_empty() { Obstacle::Looking } else { Obstacle::Older(older) }
}
