//! Spans of time, as people write and read them.

use std::time::Duration;

use berth_domain::Timestamp;
pub use berth_explain::span::{ago, short, until};

/// Reads `500ms`, `30s`, `5m`, `2h`; a bare number is seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("{text:?} is no time span; write 500ms, 30s, 5m or 2h");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let ms = number.checked_mul(ms).ok_or_else(wrong)?;
    // A year is treated as for ever; longer spans could overflow sums of times.
    (ms <= 366 * 24 * 3_600_000).then(|| Duration::from_millis(ms)).ok_or_else(wrong)
}

/// The longest validity, in days.
const DAYS_MAX: u64 = 3650;

/// Reads how long something is to be valid: `90d`, or any span that [`parse`] reads, but not zero.
pub fn parse_validity(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no validity; write 90d, 12h or 30m, up to {DAYS_MAX}d");
    let span = match text.strip_suffix('d') {
        Some(days) if days.bytes().all(|byte| byte.is_ascii_digit()) => {
            let days =
                days.parse::<u64>().ok().filter(|days| *days <= DAYS_MAX).ok_or_else(wrong)?;
            Duration::from_secs(days * 86_400)
        }
        _ => parse(text).map_err(|_| wrong())?,
    };
    if span.is_zero() { Err(wrong()) } else { Ok(span) }
}

/// Reads a time: `2026-11-21T08:00:00Z`.
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    let wrong = |_| format!("{text:?} is no time; write 2026-11-21T08:00:00Z");
    Timestamp::try_from(text.to_owned()).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("7", 7000), ("5m", 300_000)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1.5s", "5 m", "1d", "99999999999999999999", "999999999h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_validity_may_be_in_days_and_is_not_zero() {
        for (text, s) in [("90d", 7_776_000), ("12h", 43_200), ("1m", 60), ("3650d", 315_360_000)] {
            assert_eq!(parse_validity(text), Ok(Duration::from_secs(s)), "{text}");
        }
        for text in ["", "d", "0d", "0", "-1d", "+1d", "3651d", "1w", "99999999999999999999d"] {
            assert!(parse_validity(text).is_err(), "{text}");
        }
    }
}
