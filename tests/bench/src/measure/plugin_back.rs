//! A plugin is killed as its workload stops: how soon after its return the volume is free.
//!
//! The release waits for the plugin, and the claim says so. The plugin's return must wake the
//! release: the next retry would come up to a minute later.

use std::time::Duration;

use berth_contract::verb::{self};
use berth_domain::Namespace;
use berth_harness::wait;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::mounts::{DRIVER, VOLUME, mounted};
use crate::Fatal;
use crate::ask;
use crate::freed::Freed;
use crate::row::{AIM, Part, Row};
use crate::site::{PATIENCE, Site};
use crate::stats::Sample;

/// How long the plugin is down once the first call has failed.
const AWAY: Duration = Duration::from_secs(3);
/// The time within which a volume shall be free after the plugin is back.
const FREED_WITHIN: Duration = Duration::from_secs(2);

/// Expects a site with an agent, a driver and [`VOLUME`].
pub async fn measure(site: &Site, freed: &Freed, many: usize) -> Result<Row, Fatal> {
    let namespace = Namespace::default();
    let mut times = Vec::new();
    for round in 0..many {
        let alloc = format!("alloc-back-{round:04}");
        ask::register_alloc(&site.bus, &namespace, &alloc, VOLUME).await?;
        let deletion = freed.expect(&namespace, VOLUME, &alloc)?;
        mounted(&site.bus, &alloc, VOLUME).await?;
        site.daemon(DRIVER)?.kill9();
        ask::stop_alloc(&site.bus, &namespace, &alloc).await?;
        let query = json!({"alloc": alloc, "volume": VOLUME});
        wait::until("the release has failed once", PATIENCE, async || {
            let reply = ask::about::<verb::ClaimStatus>(&site.bus, &namespace, &query).await;
            let answer = reply.map_err(|error| error.to_string())?;
            match &answer["claims"][0]["error"] {
                error if error.is_string() => Ok(()),
                _ => Err(answer.to_string()),
            }
        })
        .await;
        sleep(AWAY).await;
        let returned = Instant::now();
        site.daemon(DRIVER)?.restart();
        deletion.gone().await?;
        times.push(returned.elapsed());
    }
    let sample = Sample::of_sequence(times).ok_or("no plugin was killed")?;
    let name = format!("plugin back, after {} s, to free", AWAY.as_secs());
    let row = Row::new(Part::Mounts, name, 1, 1).sample(&sample);
    Ok(row.limit(AIM, 1.0 / FREED_WITHIN.as_secs_f64()))
}
