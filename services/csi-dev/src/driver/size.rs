//! The size of volumes.
//!
//! Owns: choosing a size within a CO's range. Promises: a refusal names the possible bounds. Never:
//! checks the free space.

use berth_csi::Code;
use berth_csi::v1::CapacityRange;

use crate::backend::VolumeMeta;
use crate::backend::content::BLOCK_BYTES;
use crate::backing::{Backing, FsType};
use crate::driver::refusal::Refusal;

/// Default size, in bytes.
const USUAL_BYTES: i64 = 1 << 30;
/// Largest size, in bytes. Images are sparse, so it costs nothing.
pub(crate) const LARGEST_BYTES: i64 = 1 << 44;

/// The smallest size of this kind of volume.
pub(crate) fn smallest(backing: Backing, fs: Option<FsType>) -> i64 {
    match backing {
        Backing::Directory => 1,
        Backing::Image => fs.map_or(BLOCK_BYTES, FsType::smallest_bytes),
    }
}

/// The size of a new volume, of at least `least` bytes.
pub(crate) fn choose(
    range: Option<&CapacityRange>,
    backing: Backing,
    least: i64,
) -> Result<i64, Refusal> {
    let (required, limit) = bounds(range)?;
    let step = step(backing);
    let usual = USUAL_BYTES.min(limit) / step * step;
    let wanted = if required == 0 { usual.max(least) } else { required.max(least) };
    fit(round_up(wanted, step), limit, least)
}

/// The size after an expansion. Never smaller than before.
pub(crate) fn choose_grown(
    meta: &VolumeMeta,
    range: Option<&CapacityRange>,
) -> Result<i64, Refusal> {
    let (required, limit) = bounds(range)?;
    let wanted = if required > meta.capacity_bytes {
        round_up(required, step(meta.backing))
    } else {
        meta.capacity_bytes
    };
    fit(wanted, limit, meta.capacity_bytes)
}

/// Whether this size satisfies the range.
pub(crate) fn is_within(bytes: i64, range: Option<&CapacityRange>) -> bool {
    bounds(range).is_ok_and(|(required, limit)| (required..=limit).contains(&bytes))
}

/// The required size and the limit, in bytes.
fn bounds(range: Option<&CapacityRange>) -> Result<(i64, i64), Refusal> {
    let Some(&CapacityRange { required_bytes: required, limit_bytes: limit }) = range else {
        return Ok((0, i64::MAX));
    };
    let limited = if limit == 0 { i64::MAX } else { limit };
    if required < 0 || limit < 0 || required > limited {
        let message = format!(
            "capacity_range: from {required} to {limit} bytes is no range; neither is negative, \
             and required_bytes is not above limit_bytes"
        );
        return Err(Refusal::new(Code::InvalidArgument, message));
    }
    Ok((required, limited))
}

fn fit(bytes: i64, limit: i64, least: i64) -> Result<i64, Refusal> {
    if bytes <= limit.min(LARGEST_BYTES) {
        return Ok(bytes);
    }
    let message = format!(
        "capacity_range: {bytes} bytes are needed, and {} are the most; ask for {least} to \
         {LARGEST_BYTES} bytes",
        limit.min(LARGEST_BYTES)
    );
    Err(Refusal::new(Code::OutOfRange, message))
}

fn step(backing: Backing) -> i64 {
    match backing {
        Backing::Directory => 1,
        Backing::Image => BLOCK_BYTES,
    }
}

fn round_up(bytes: i64, step: i64) -> i64 {
    bytes.saturating_add(step - 1) / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::unnecessary_wraps, reason = "what the functions take")]
    fn sizes_stay_within_the_range_or_are_refused() {
        fn range(required_bytes: i64, limit_bytes: i64) -> Option<CapacityRange> {
            Some(CapacityRange { required_bytes, limit_bytes })
        }
        let (directory, image) = (Backing::Directory, Backing::Image);
        for (range, backing, least, expected) in [
            (None, directory, 1, Ok(USUAL_BYTES)),
            (None, image, 2 << 30, Ok(2 << 30)),
            (range(5, 0), directory, 1, Ok(5)),
            (range(5, 0), image, 1, Ok(BLOCK_BYTES)),
            (range(5, 6), image, 1, Err(Code::OutOfRange)),
            (range(0, 5000), image, 1, Ok(BLOCK_BYTES)),
            (range(10, 20), directory, 30, Err(Code::OutOfRange)),
            (range(i64::MAX, 0), image, 1, Err(Code::OutOfRange)),
            (range(-1, 0), directory, 1, Err(Code::InvalidArgument)),
            (range(9, 8), directory, 1, Err(Code::InvalidArgument)),
        ] {
            let size = choose(range.as_ref(), backing, least).map_err(|refusal| refusal.code);
            assert_eq!(size, expected, "{range:?} {backing:?} {least}");
        }
        let meta = VolumeMeta { capacity_bytes: 100, ..VolumeMeta::default() };
        for (range, expected) in [
            (None, Ok(100)),
            (range(50, 0), Ok(100)),
            (range(200, 0), Ok(200)),
            (range(50, 60), Err(Code::OutOfRange)),
        ] {
            let size = choose_grown(&meta, range.as_ref()).map_err(|refusal| refusal.code);
            assert_eq!(size, expected, "{range:?}");
        }
    }
}
