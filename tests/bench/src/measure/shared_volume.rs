//! Claims on one volume that many may write: the ten-thousandth must not cost more than the
//! hundredth.

use std::time::Duration;

use berth_domain::Namespace;
use tokio::time::Instant;

use super::Effort;
use crate::Fatal;
use crate::ask;
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::PLAIN;
use crate::stats::Sample;

/// Which claims are looked at: the last of the hundred that end there.
const MARKS: [usize; 4] = [100, 1_000, 3_000, 10_000];
const WINDOW: usize = 100;

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_stand_in().await?;
    let mut rounds: [Vec<Sample>; 4] = Default::default();
    for round in 0..effort.shared_rounds {
        let times = fill_one(&site, round).await?;
        for (window, samples) in times.into_iter().zip(&mut rounds) {
            samples.push(Sample::of_sequence(window).ok_or("no claim was made")?);
        }
    }
    let samples = rounds.map(|rounds| Sample::median(&rounds));
    let first = samples[0].as_ref().ok_or("no claim was made")?.per_second;
    let rows = MARKS.into_iter().zip(&samples).filter_map(|(mark, sample)| {
        let name = format!("{mark}th claim on one shared volume");
        let row = Row::new(Part::Shared, name, 1, 1).sample(sample.as_ref()?);
        Some(if mark == MARKS[0] { row } else { row.limit("the 100th claim", first) })
    });
    Ok(rows.collect())
}

/// How long each claim of each window took, one after another; those between come in a crowd.
async fn fill_one(site: &Site, round: usize) -> Result<Vec<Vec<Duration>>, Fatal> {
    let namespace = Namespace::default();
    let volume = format!("shared-{round}");
    let access = "multi-node-multi-writer";
    ask::register_volume(&site.bus, &namespace, &volume, PLAIN, access).await?;
    let alloc = move |at: usize| format!("alloc-{round}-{at:06}");
    let (bus, all, of) = (site.bus.clone(), namespace.clone(), volume.clone());
    ask::fill(MARKS[MARKS.len() - 1], move |at| {
        let (bus, all, of) = (bus.clone(), all.clone(), of.clone());
        async move { ask::register_alloc(&bus, &all, &alloc(at), &of).await }
    })
    .await?;
    let (mut windows, mut made) = (Vec::with_capacity(MARKS.len()), 0);
    for mark in MARKS {
        let (bus, all, of) = (site.bus.clone(), namespace.clone(), volume.clone());
        ask::fill(mark - WINDOW - made, move |at| {
            let (bus, all, of) = (bus.clone(), all.clone(), of.clone());
            async move { ask::take(&bus, &all, &alloc(made + at), &of).await.map(drop) }
        })
        .await?;
        let mut times = Vec::with_capacity(WINDOW);
        for at in mark - WINDOW..mark {
            let asked = Instant::now();
            let taken = ask::take(&site.bus, &namespace, &alloc(at), &volume).await;
            if let Err(error) = taken {
                // Healthy at the registry is not yet healthy at the claim service.
                if at > 0 {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                ask::take(&site.bus, &namespace, &alloc(at), &volume).await?;
            }
            times.push(asked.elapsed());
        }
        windows.push(times);
        made = mark;
    }
    Ok(windows)
}
