//! Keeps the level of records: the highest schema that may be written.
//!
//! **Owns** the looks at the replicas of all services that read records, and the record `=level`.
//!
//! **Promises**
//!
//! - A write of a schema that is above the level in force is refused before anything is stored, and
//!   the refusal names the replica that keeps the level from rising, or who holds it.
//! - The level rises by itself, once several looks in a row found no replica that could not read
//!   what may be written then. In a bucket without any record one look is enough.
//! - A replica that may not look, or that does not see itself, raises nothing.
//!
//! **Never** lowers the level. A replica that was paused or cut off during all looks, and so was
//! not seen, refuses by itself what it cannot read; another one answers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::level::{self, Hold, Level, OlderReplica};
use berth_contract::message::level::{HoldLevel, LevelStatus};
use berth_contract::problem::Problem;
use berth_contract::record::NEWEST_SCHEMA;
use berth_contract::service::{CLAIM, READERS};
use berth_contract::verb::{self, Verb as _};
use berth_service::process::chain;
use berth_service::projection::Volumes;
use berth_service::record_table::{StoreError, retry_lost_races};
use berth_service::{clock, deadline};
use futures_util::future::join_all;
use serde::Deserialize;

use crate::alloc;
use crate::state::State;

/// How long after a look the next one is made.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Looks in a row without an older replica, before the level rises. A restart takes less time.
const LOOKS: u32 = 3;
/// How long the replicas of one service may take to answer.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// How many replicas a refusal names.
const NAMED_MAX: usize = 3;

/// What the last look found.
#[derive(Debug, Default)]
pub struct LevelWatch(Mutex<Obstacle>);

/// Why the level does not rise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Obstacle {
    /// It was not looked often enough.
    #[default]
    Looking,
    /// These replicas could not read what may be written then.
    Older(Vec<OlderReplica>),
    /// It is not known which replicas there are, or the level could not be written.
    Unknown(String),
}

impl LevelWatch {
    /// What keeps the level from rising, unless it is held.
    pub fn obstacle(&self) -> Obstacle {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, found: Obstacle) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != found {
            match &found {
                Obstacle::Looking => {}
                found => tracing::warn!("the level of records does not rise: {found}"),
            }
            *known = found;
        }
    }

    /// Refuses the write of a record with this schema while the level in force is lower.
    pub fn check(&self, volumes: &Volumes, schema: u32) -> Result<(), Problem> {
        let level = volumes.level();
        if schema <= level.in_force(volumes.newest_schema()) {
            return Ok(());
        }
        Err(refuse(level, &self.obstacle(), schema))
    }
}

/// The refusal of a write with this schema.
fn refuse(level: &Level, obstacle: &Obstacle, schema: u32) -> Problem {
    let needs = format!("this needs records of schema {schema}, and the level is {}", level.level);
    if let Some(hold) = &level.held {
        let message = format!("{needs}: {} holds it since {}", hold.by, hold.since);
        let problem = Problem::new(Code::LevelTooLow, message);
        let next = "ask again once an operator has let it go: `berth level release`";
        return Problem { retryable: false, ..problem }.next(next);
    }
    let problem = Problem::new(Code::LevelTooLow, format!("{needs}: {obstacle}"));
    match obstacle {
        Obstacle::Older(_) => problem,
        Obstacle::Looking => problem.next("ask again in a moment: it rises by itself"),
        Obstacle::Unknown(_) => problem.next(
            "see with `berth-claim --check-access` whether its identity has all rights, and with \
             `nats micro ls` which replicas run",
        ),
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Looking => {
                f.write_str("it is still being seen whether all replicas can read them")
            }
            Self::Older(older) => {
                let named: Vec<String> =
                    older.iter().take(NAMED_MAX).map(ToString::to_string).collect();
                f.write_str(&named.join("; "))?;
                match older.len().saturating_sub(NAMED_MAX) {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more"),
                }
            }
            Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// The level, for people who look with `nats micro`, and for `berth doctor`.
pub fn facts(state: &State) -> Vec<(&'static str, String)> {
    state.volumes.mirror.read(|volumes| {
        let level = volumes.level();
        let in_force = level.in_force(volumes.newest_schema());
        let held = level.held.as_ref();
        let held = held.map(|hold| (level::HELD_BY, format!("{}, since {}", hold.by, hold.since)));
        [(level::IN_FORCE, in_force.to_string())].into_iter().chain(held).collect()
    })
}

/// Where no record was ever written, the level is the newest from the start, so that nobody waits.
pub async fn begin(state: &State) {
    if matches!(state.volumes.bucket.head(">").await, Ok(0)) {
        let found = look(state, false).await;
        settle(state, found, true).await;
    }
}

/// Raises the level when that is due. Several replicas may do so at once: the write is guarded.
pub async fn keep(state: State) {
    let mut clear = 0;
    loop {
        let (level, found) =
            state.volumes.mirror.read(|all| (all.level().clone(), all.newest_schema()));
        // It would not rise, whatever is seen.
        if level.raised(found, true).is_none() {
            clear = 0;
            state.level.record(Obstacle::Looking);
        } else {
            let found = look(&state, true).await;
            clear = if found == Obstacle::Looking { clear + 1 } else { 0 };
            settle(&state, found, clear >= LOOKS).await;
        }
        tokio::time::sleep(clock::jittered(LOOK_EVERY)).await;
    }
}

/// Writes the level that follows from a look, and keeps in mind what stands in its way.
async fn settle(state: &State, found: Obstacle, is_last: bool) {
    let all_read = found == Obstacle::Looking && is_last;
    let written = raise(state, all_read).await;
    state.level.record(match written {
        Err(StoreError::LostRace) | Ok(()) => found,
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

/// `level.hold`: an operator holds the level, or lets it go.
pub async fn hold(
    state: &State,
    request: HoldLevel,
    from: &alloc::Origin,
) -> Result<LevelStatus, Problem> {
    const STEP: &str = verb::LevelHold::STEP;
    let by = from.by().unwrap_or_else(|| "somebody".to_owned());
    let found = state.volumes.mirror.read(Volumes::newest_schema);
    let level = retry_lost_races(STEP, || async {
        deadline::check(from.deadline)?;
        let (revision, stored) = state.volumes.read::<Level>(key::LEVEL).await?;
        let before = stored.clone().unwrap_or_default();
        let level = if request.hold {
            before.hold(Hold { by: by.clone(), since: clock::now() })
        } else {
            Level { held: None, ..before }
        };
        if stored.as_ref() != Some(&level) {
            state.volumes.put(key::LEVEL, &level, revision, from.trace).await?;
        }
        Ok(level)
    });
    let level = level.await?;
    let in_force = level.in_force(found);
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

/// Asks all replicas of the services that read records. `sees_itself` demands that this one is
/// among them.
async fn look(state: &State, sees_itself: bool) -> Obstacle {
    let asked = READERS.map(async |service| {
        let subject = format!("$SRV.PING.{}", service.name);
        (service, state.bus.survey::<Pong>(&subject, LOOK_WITHIN).await)
    });
    let mut older = Vec::new();
    for (service, answer) in join_all(asked).await {
        let replicas = match answer {
            Ok(replicas) => replicas,
            Err(error) => return Obstacle::Unknown(chain(&error)),
        };
        let own = Some(state.worker.as_str());
        let is_own = |one: &Pong| one.metadata.get("worker").map(String::as_str) == own;
        if service == CLAIM && sees_itself && !replicas.iter().any(is_own) {
            return Obstacle::Unknown("this replica does not see itself on the bus".to_owned());
        }
        older.extend(replicas.iter().filter_map(|one| {
            let Pong { id, version, metadata } = one;
            OlderReplica::find(service.name, id, version, metadata, NEWEST_SCHEMA)
        }));
    }
    if older.is_empty() { Obstacle::Looking } else { Obstacle::Older(older) }
}

#[cfg(test)]
mod tests {
    use berth_domain::Timestamp;

    use super::*;

    fn older(name: &str) -> OlderReplica {
        OlderReplica {
            service: CLAIM.name.to_owned(),
            name: name.to_owned(),
            version: "0.0.9".to_owned(),
            reads: 1,
        }
    }

    #[test]
    fn a_write_above_the_level_names_the_replicas_that_are_older() {
        let names = ["claim/a/1", "claim/b/2", "claim/c/3", "claim/d/4"];
        let found = Obstacle::Older(names.map(older).to_vec());
        let refused = refuse(&Level::default(), &found, NEWEST_SCHEMA);
        assert!(refused.code == Code::LevelTooLow && refused.retryable, "{refused:?}");
        for part in ["schema 2", "level is 1", "claim/a/1, version 0.0.9", "claim/c/3", "1 more"] {
            assert!(refused.message.contains(part), "{part}: {refused:?}");
        }
        assert!(!refused.message.contains("claim/d/4"), "{refused:?}");
        assert!(refused.next.contains("upgrade the replica"), "{refused:?}");
    }

    #[test]
    fn a_hold_is_told_with_its_holder_and_is_not_waited_for() {
        let by_ops = Hold { by: "user.ops".to_owned(), since: Timestamp::from_unix_ms(1) };
        let level = Level::default().hold(by_ops);
        let refused = refuse(&level, &Obstacle::Older(vec![older("claim/a/1")]), NEWEST_SCHEMA);
        assert!(refused.message.contains("user.ops holds it"), "{refused:?}");
        assert!(!refused.retryable && refused.next.contains("berth level release"), "{refused:?}");
    }

    #[test]
    fn nothing_is_refused_at_its_level_or_below() {
        let (watch, volumes) = (LevelWatch::default(), Volumes::default());
        assert!(watch.check(&volumes, 1).is_ok());
        assert!(watch.check(&volumes, 2).unwrap_err().next.contains("by itself"));
    }
}
