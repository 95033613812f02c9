//! Claims on one volume that many may write: the three-thousandth must not cost more than the
//! hundredth.

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
const MARKS: [usize; 3] = [100, 1_000, 3_000];
const WINDOW: usize = 100;

pub async fn measure(effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut site = Site::start(1).await?;
    site.start_claims().await?;
    site.start_stand_in().await?;
    let mut rounds: [Vec<Sample>; 3] = Default::default();
    for round in 0..effort.shared_rounds {
        let times = fill_one(&site, round).await?;
        for (mark, samples) in MARKS.into_iter().zip(&mut rounds) {
            let window = times[mark - WINDOW..mark].to_vec();
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

/// How long each claim took, one after another.
async fn fill_one(site: &Site, round: usize) -> Result<Vec<std::time::Duration>, Fatal> {
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
    let mut times = Vec::with_capacity(MARKS[MARKS.len() - 1]);
    for at in 0..MARKS[MARKS.len() - 1] {
        let asked = Instant::now();
        let taken = ask::take(&site.bus, &namespace, &alloc(at), &volume).await;
        if let Err(error) = taken {
            // Healthy at the registry is not yet healthy at the claim service.
            if at > 0 {
                return Err(error);
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            ask::take(&site.bus, &namespace, &alloc(at), &volume).await?;
        }
        times.push(asked.elapsed());
    }
    Ok(times)
}
