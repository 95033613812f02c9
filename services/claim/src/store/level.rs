//! Which writes the level of records allows.
//!
//! **Owns** what keeps the level from rising, and the refusal of a write above it.
//!
//! **Promises** that the refusal names the older replica, or who holds the level.

use std::sync::{Mutex, PoisonError};

use berth_contract::code::Code;
use berth_contract::level::{Level, OlderReplica};
use berth_contract::problem::Problem;
use berth_service::projection::Volumes;

/// Replicas that a refusal names, at most.
const NAMED_MAX: usize = 3;

/// What the last check of the replicas found.
#[derive(Debug, Default)]
pub struct LevelWatch(Mutex<Obstacle>);

/// Why the level does not rise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Obstacle {
    /// There were too few checks yet.
    #[default]
    Looking,
    /// These replicas could not read the records of the next level.
    Older(Vec<OlderReplica>),
    /// It is unknown which replicas there are, or the level could not be written.
    Unknown(String),
}

impl LevelWatch {
    /// What keeps the level from rising, apart from a hold.
    pub fn obstacle(&self) -> Obstacle {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores what a check found.
    pub fn record(&self, found: Obstacle) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != found {
            match &found {
                Obstacle::Looking => {}
                found => tracing::warn!("the level of records does not rise: {found}"),
            }
            *last = found;
        }
    }

    /// Refuses to write a record with this schema while the level in force is lower.
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

#[cfg(test)]
mod tests {
    use berth_contract::level::LevelHolder;
    use berth_contract::record::NEWEST_SCHEMA;
    use berth_contract::service::CLAIM;
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
        let obstacle = Obstacle::Older(names.map(older).to_vec());
        let refused = refuse(&Level::default(), &obstacle, NEWEST_SCHEMA);
        assert!(refused.code == Code::LevelTooLow && refused.retryable, "{refused:?}");
        for part in ["schema 2", "level is 1", "claim/a/1, version 0.0.9", "claim/c/3", "1 more"] {
            assert!(refused.message.contains(part), "{part}: {refused:?}");
        }
        assert!(!refused.message.contains("claim/d/4"), "{refused:?}");
        assert!(refused.next.contains("upgrade the replica"), "{refused:?}");
    }

    #[test]
    fn a_hold_is_told_with_its_holder_and_is_not_waited_for() {
        let by_ops = LevelHolder { by: "user.ops".to_owned(), since: Timestamp::from_unix_ms(1) };
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
