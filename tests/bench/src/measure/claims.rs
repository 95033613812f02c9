//! Claims per second, each on a volume of its own, beside a raw write and a bare service.
//!
//! Only the servers, the claim service and the registry run. The watcher does not, since nothing is
//! released.

use berth_domain::Namespace;
use bytes::Bytes;

use super::turns::{self, Lane};
use super::{BARE, CLAIM, CLAIM_ATTACHED, Effort, RAW};
use crate::Fatal;
use crate::bare::{BUCKET, SUBJECT};
use crate::load::Supply;
use crate::row::{Part, Row};
use crate::site::Site;
use crate::stand_in::{ATTACHING, PLAIN};

pub async fn measure(site: &Site, value: &[u8], effort: &Effort) -> Result<Vec<Row>, Fatal> {
    let mut rows = Vec::new();
    for at_once in effort.levels() {
        rows.extend(level(site, at_once, value, effort).await?);
    }
    Ok(rows)
}

async fn level(
    site: &Site,
    at_once: u32,
    value: &[u8],
    effort: &Effort,
) -> Result<Vec<Row>, Fatal> {
    let bucket = site.bus.bucket(&BUCKET, site.copies()).await?;
    let volumes = site.volumes().await?;
    let value = Bytes::copy_from_slice(value);
    let many = turns::enough(&bucket, &value, at_once, effort).await?;
    let (raw, bare) = (format!("raw{at_once}"), format!("bare{at_once}"));
    let raw = turns::prepare_bare(&bucket, &value, &raw, many).await?;
    let bare = turns::prepare_bare(&bucket, &value, &bare, many).await?;
    let namespace = Namespace::default();
    let (plain, attached) = (format!("plain{at_once}"), format!("attached{at_once}"));
    let plain = turns::register_pairs(site, &namespace, PLAIN, &plain, many).await?;
    let attached =
        turns::register_pairs(site, &namespace, ATTACHING, &attached, many / 2 + 1).await?;
    let lanes = [
        Lane::new(RAW, turns::raw(&bucket, &value, raw), &bucket),
        Lane::new(BARE, turns::bare(site, SUBJECT, bare), &bucket),
        Lane::new(CLAIM, turns::claim(site, Supply::new(plain)), &volumes),
        Lane::new(CLAIM_ATTACHED, turns::claim(site, Supply::new(attached)), &volumes),
    ];
    let turned = turns::take(site, Part::Claims, &lanes, at_once, effort).await?;
    let [raw, bare, claims @ ..] = &turned[..] else {
        return Err("the bare service was not measured".into());
    };
    let bare_row = bare.row.clone().limit(RAW, raw.sample.per_second);
    let claims = claims.iter().map(|claim| claim.row.clone().beside_bare(&bare.sample));
    Ok([raw.row.clone(), bare_row].into_iter().chain(claims).collect())
}
