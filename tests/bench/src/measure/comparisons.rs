//! Requests among many volumes, through several comparisons of the claim service's mirror with its
//! bucket. A request that is refused or gets no answer ends the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use berth_bus::Bus;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::ports::Port;
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::Effort;
use crate::Fatal;
use crate::ask;
use crate::load::{self, Operation, Round};
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::PLAIN;

/// Callers at once.
const AT_ONCE: u32 = 16;
/// The first comparison comes after 225 s at the earliest.
const QUIET: Round = Round { warm_up: Duration::from_secs(5), measured: Duration::from_secs(120) };
/// A comparison begins 375 s after the last at the latest, and takes up to 150 s.
const COMPARED_WITHIN: Duration = Duration::from_secs(375 + 150);
/// The counter of the claim service's comparisons of volumes.
const COUNTER: &str = "berth_mirror_comparisons_total{bucket=\"berth-volumes\"";

pub async fn measure(effort: &Effort) -> Result<Row, Fatal> {
    let many = effort.volumes;
    let mut site = Site::start(3).await?;
    let port = Port::reserve();
    let fields = format!("[telemetry]\nmetrics_listen = \"{}\"\n", port.address());
    site.start_claims_with(&fields).await?;
    site.start_releases().await?;
    site.start_stand_in().await?;
    let bus = site.bus.clone();
    ask::fill(many, move |at| {
        let bus = bus.clone();
        async move { register(&bus, &format!("volume-{at:06}")).await }
    })
    .await?;
    // The time until its first comparison begins again.
    site.daemon("claim")?.kill9();
    site.daemon("claim")?.restart();
    site.answers(&verb::ClaimStatus::subject(&Namespace::default())).await;

    let stop = Arc::new(AtomicBool::new(false));
    let requests = requests(&site.bus, &stop);
    let nothing = "no request was answered";
    let quiet = load::run(AT_ONCE as usize, QUIET, &requests).await?.sample.ok_or(nothing)?;
    if count_comparisons(&port).await? > 0 {
        return Err("a mirror was compared while nothing else should happen".into());
    }
    let longest = COMPARED_WITHIN * u32::try_from(effort.comparisons)?;
    let round = Round { warm_up: Duration::ZERO, measured: longest };
    let watch = async {
        while count_comparisons(&port).await? < effort.comparisons {
            sleep(Duration::from_secs(1)).await;
        }
        stop.store(true, Ordering::Relaxed);
        Ok::<_, Fatal>(())
    };
    let (done, watched) = tokio::join!(load::run(AT_ONCE as usize, round, &requests), watch);
    watched?;
    let through = done?.sample.ok_or(nothing)?;

    let name = format!(
        "register, list, claim nothing and deregister among {many} volumes, through {} comparisons",
        effort.comparisons
    );
    let row = Row::new(Part::Comparisons, name, AT_ONCE, site.servers).sample(&through);
    Ok(row.beside("in quiet", &quiet, 1.0))
}

async fn register(bus: &Bus, id: &str) -> Result<(), Fatal> {
    ask::register_volume(bus, &Namespace::default(), id, PLAIN, "single-node-writer").await
}

/// Registers a volume, reads a page of all, is refused a claim, and deregisters the volume, until
/// `stop` is set.
fn requests(bus: &Bus, stop: &Arc<AtomicBool>) -> Operation {
    let (bus, stop, next) = (bus.clone(), Arc::clone(stop), Arc::new(AtomicUsize::new(0)));
    Arc::new(move |_| {
        let (bus, stop, next) = (bus.clone(), Arc::clone(&stop), Arc::clone(&next));
        async move {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let namespace = Namespace::default();
            let id = format!("passing-{}", next.fetch_add(1, Ordering::Relaxed));
            register(&bus, &id).await?;
            let page = json!({"limit": 10, "prefix": "volume-0500"});
            ask::about::<verb::VolumeList>(&bus, &namespace, &page).await?;
            let refused = ask::take(&bus, &namespace, "nobody", &id).await;
            match refused {
                Err(error) if error.to_string().contains("BERTH0301") => {}
                other => return Err(format!("an alloc that is not there: {other:?}").into()),
            }
            let document = json!({"id": id});
            ask::about::<verb::VolumeDeregister>(&bus, &namespace, &document).await?;
            Ok(true)
        }
        .boxed()
    })
}

/// How often the claim service has compared its volumes with the bucket and found them the same.
async fn count_comparisons(port: &Port) -> Result<usize, Fatal> {
    let mut stream = TcpStream::connect(port.address()).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let mut same = 0;
    for line in text.lines().filter(|line| line.starts_with(COUNTER)) {
        let count = line.rsplit(' ').next().unwrap_or_default().parse()?;
        match line {
            _ if line.contains("result=\"same\"") => same = count,
            _ if line.contains("result=\"differs\"") => return Err("the mirror differs".into()),
            _ => {}
        }
    }
    Ok(same)
}
