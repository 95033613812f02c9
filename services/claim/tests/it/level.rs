//! The level of records, with replicas of other services that are older.

use berth_bus::{Bus, Service, ServiceSpec};
use berth_contract::message::level::{HoldLevel, LevelStatus};
use berth_contract::service::VOLUMEWATCHER;
use berth_contract::verb;
use berth_harness::wait;
use serde::Deserialize;

use crate::site::{PATIENCE, Site, call};

/// What the service says of itself.
#[derive(Debug, Deserialize)]
struct Pong {
    metadata: Facts,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Facts {
    level: String,
    level_held_by: Option<String>,
}

async fn facts(site: &Site) -> Facts {
    let answers = site.bus.survey::<Pong>("$SRV.PING.berth-claim", PATIENCE).await.unwrap();
    answers.into_iter().next().unwrap().metadata
}

async fn hold(site: &Site, hold: bool) -> LevelStatus {
    let request = HoldLevel { hold };
    site.bus.ask_service::<verb::LevelHold>(&(), &request, &call()).await.unwrap()
}

/// A watcher of a version that did not know levels.
async fn older_watcher(bus: Bus) -> Service {
    let name = VOLUMEWATCHER.name.to_owned();
    let spec = ServiceSpec { name, version: "0.0.9".to_owned(), ..ServiceSpec::default() };
    let service = bus.service(spec).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    service
}

#[tokio::test]
async fn a_new_system_begins_at_the_newest_level() {
    let site = Site::start().await;
    assert_eq!(facts(&site).await, Facts { level: "2".to_owned(), level_held_by: None });
}

#[tokio::test]
async fn the_level_rises_by_itself_once_the_older_replica_has_left_unless_it_is_held() {
    let (site, older) = Site::start_beside(older_watcher).await;
    let first = Facts { level: "1".to_owned(), level_held_by: None };
    assert_eq!(facts(&site).await, first);
    let hold_status = hold(&site, true).await;
    assert_eq!((hold_status.level, hold_status.newest), (1, 2));
    assert!(hold_status.held_by.is_some(), "{hold_status:?}");
    assert_eq!(hold(&site, true).await, hold_status, "the first hold counts");
    let level_facts = facts(&site).await;
    assert!(level_facts.level_held_by.is_some_and(|by| by.contains("since")));
    assert_eq!(hold(&site, false).await.held_by, None);
    drop(older);
    wait::until("the level rises", PATIENCE, async || {
        let now = facts(&site).await;
        if now.level == "2" { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
}
