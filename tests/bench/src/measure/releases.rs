//! A claim and its release, until the volume is free again, with everything running.
//!
//! The watcher drives the release, and the stand-in node answers its calls at once. What remains
//! are the recorded steps: each is one durable write. The claim service, the watcher and the
//! benchmark follow the stream, and a followed stream takes fewer writes a second. So one row shows
//! the bare service with as many followers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use berth_bus::{Bus, Fold, Mirror, MirrorOptions};
use berth_contract::verb::{self};
use berth_domain::Namespace;
use bytes::Bytes;
use futures_util::FutureExt as _;
use serde_json::json;

use super::turns::{self, Lane, Pair};
use super::{BARE, BARE_FOLLOWED, Effort, LEVELS};
use crate::Fatal;
use crate::ask;
use crate::bare::{self, BUCKET, FOLLOWED, SUBJECT, SUBJECT_FOLLOWED};
use crate::freed::Freed;
use crate::identity;
use crate::load::Operation;
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::{ATTACHING, PLAIN};

const RELEASE: &str = "claim + release";
const RELEASE_ATTACHED: &str = "claim + release, no-op controller";
/// Volumes of each caller, used in turn, so that no record is written twice at a time.
const VOLUMES_EACH: usize = 4;

pub async fn measure(site: &mut Site, value: &[u8], effort: &Effort) -> Result<Vec<Row>, Fatal> {
    site.start_releases().await?;
    let namespace = Namespace::new("releases")?;
    let volumes = site.volumes().await?;
    let freed = Freed::watch(&volumes, &namespace).await?;
    let bucket = site.bus.bucket(&BUCKET, site.copies()).await?;
    let followed = site.bus.bucket(&FOLLOWED, site.copies()).await?;
    let _followers = [follower(site).await?, follower(site).await?, follower(site).await?];
    let value = Bytes::copy_from_slice(value);
    let callers = usize::try_from(LEVELS[LEVELS.len() - 1])?;
    let many = callers * VOLUMES_EACH;
    let plain = turns::register_pairs(site, &namespace, PLAIN, "plain", many).await?;
    let attached = turns::register_pairs(site, &namespace, ATTACHING, "attached", many).await?;
    let (plain, attached) = (Arc::new(plain), Arc::new(attached));
    let mut rows = Vec::new();
    for at_once in effort.levels() {
        let many = turns::enough(&bucket, &value, at_once, effort).await?;
        let prefix = format!("beside{at_once}");
        let bare = turns::prepare_bare(&bucket, &value, &prefix, many).await?;
        let followed_supply = turns::prepare_bare(&followed, &value, &prefix, many).await?;
        let lanes = [
            Lane::new(BARE, turns::bare(site, SUBJECT, bare), &bucket),
            Lane::new(
                BARE_FOLLOWED,
                turns::bare(site, SUBJECT_FOLLOWED, followed_supply),
                &followed,
            ),
            Lane::new(RELEASE, cycle(site, &namespace, &freed, &plain), &volumes),
            Lane::new(RELEASE_ATTACHED, cycle(site, &namespace, &freed, &attached), &volumes),
        ];
        let turned = turns::take(site, Part::Releases, &lanes, at_once, effort).await?;
        let [bare, followed, releases @ ..] = &turned[..] else {
            return Err("the bare service was not measured".into());
        };
        rows.push(followed.row.clone().limit(BARE, bare.sample.per_second));
        rows.extend(releases.iter().map(|release| release.row.clone().beside_bare(&bare.sample)));
    }
    Ok(rows)
}

/// Ignores what it receives.
struct Ignore;

impl Fold for Ignore {
    fn put(&mut self, _key: &str, _revision: u64, _value: &[u8]) {}

    fn delete(&mut self, _key: &str, _revision: u64) {}
}

/// A follower of the writes, over its own connection, as a service has.
async fn follower(site: &Site) -> Result<Mirror<Ignore>, Fatal> {
    let config = identity::config(&site.access(), site.url(), "follower")?;
    let bus = Bus::connect(bare::plain(config)).await?;
    let bucket = bus.bucket(&FOLLOWED, site.copies()).await?;
    Ok(Mirror::start(&bucket, ">", Ignore, MirrorOptions::default()).await?)
}

/// Takes a volume, gives it up, and waits until it is free.
fn cycle(site: &Site, namespace: &Namespace, freed: &Freed, pairs: &Arc<Vec<Pair>>) -> Operation {
    let turns = pairs.chunks(VOLUMES_EACH).map(|_| AtomicUsize::new(0));
    let turns = Arc::new(turns.collect::<Vec<_>>());
    let (bus, namespace, freed, pairs) =
        (site.bus.clone(), namespace.clone(), freed.clone(), Arc::clone(pairs));
    Arc::new(move |caller| {
        let turn = turns[caller].fetch_add(1, Ordering::Relaxed);
        let index = caller * VOLUMES_EACH + turn % VOLUMES_EACH;
        let (bus, namespace, freed, pairs) =
            (bus.clone(), namespace.clone(), freed.clone(), Arc::clone(&pairs));
        async move {
            let Pair { volume, alloc } = &pairs[index];
            ask::take(&bus, &namespace, alloc, volume).await?;
            release(&bus, &namespace, &freed, &pairs[index]).await?;
            Ok(true)
        }
        .boxed()
    })
}

/// Gives a volume up, and waits until it is free.
pub async fn release(
    bus: &Bus,
    namespace: &Namespace,
    freed: &Freed,
    Pair { volume, alloc }: &Pair,
) -> Result<(), Fatal> {
    let deletion = freed.expect(namespace, volume, alloc)?;
    let release = json!({"alloc": alloc, "volume": volume});
    ask::about::<verb::ClaimRelease>(bus, namespace, &release).await?;
    deletion.gone().await
}
