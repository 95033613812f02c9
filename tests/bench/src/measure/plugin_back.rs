//! A plugin that is killed as its consumer stops: how soon after its return the volume is free.
//!
//! The release cannot go on while it is away, and what is waited for is said on the claim. Nothing
//! but its return wakes it: the next try alone would come up to a minute later.

use std::time::Duration;

use berth_contract::verb::{self};
use berth_domain::{Namespace, NodeId};
use berth_harness::wait;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::mounts::{DRIVER, VOLUME, mounted};
use crate::Fatal;
use crate::ask::{self, NODE};
use crate::freed::Freed;
use crate::row::{AIM, Part, Row};
use crate::site::{PATIENCE, Site};
use crate::stats::Sample;

/// How long it is away once the first call has failed.
const AWAY: Duration = Duration::from_secs(3);
/// A volume is free so soon after the plugin is back.
const FREED_WITHIN: Duration = Duration::from_secs(2);

/// Where an agent, a driver and [`VOLUME`] stand already.
pub async fn measure(site: &Site, freed: &Freed, many: usize) -> Result<Row, Fatal> {
    let (namespace, node) = (Namespace::default(), NodeId::new(NODE)?);
    let mut times = Vec::new();
    for at in 0..many {
        let alloc = format!("alloc-back-{at:04}");
        ask::register_alloc(&site.bus, &namespace, &alloc, VOLUME).await?;
        let gone = freed.expect(&namespace, VOLUME, &alloc)?;
        let mount = json!({"namespace": namespace.as_str(), "alloc": alloc, "volume": VOLUME});
        mounted(&site.bus, &node, &mount).await?;
        site.daemon(DRIVER)?.kill9();
        let stop = json!({"id": alloc, "state": "complete"});
        ask::about::<verb::AllocStop>(&site.bus, &namespace, &stop).await?;
        let query = json!({"alloc": alloc, "volume": VOLUME});
        wait::until("the release has failed once", PATIENCE, async || {
            let asked = ask::about::<verb::ClaimStatus>(&site.bus, &namespace, &query).await;
            let answer = asked.map_err(|error| error.to_string())?;
            match &answer["claims"][0]["error"] {
                error if error.is_string() => Ok(()),
                _ => Err(answer.to_string()),
            }
        })
        .await;
        sleep(AWAY).await;
        let back = Instant::now();
        site.daemon(DRIVER)?.restart();
        gone.gone().await?;
        times.push(back.elapsed());
    }
    let sample = Sample::of_sequence(times).ok_or("no plugin was killed")?;
    let name = format!("plugin back, after {} s, to free", AWAY.as_secs());
    let row = Row::new(Part::Mounts, name, 1, 1).sample(&sample);
    Ok(row.limit(AIM, 1.0 / FREED_WITHIN.as_secs_f64()))
}
