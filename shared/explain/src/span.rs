//! Durations in words.

use std::time::Duration;

use berth_domain::Timestamp;

/// `0.4s`, `12s`, `5m`, `3h`, `9d`: the largest unit, rounded down.
pub fn short(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..10 => format!("{}.{}s", s, span.subsec_millis() / 100),
        10..120 => format!("{s}s"),
        120..7200 => format!("{}m", s / 60),
        7200..172_800 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// How long ago.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    short(now.since(at))
}

/// The time until then: `now` when it has passed.
pub fn until(at: Timestamp, now: Timestamp) -> String {
    let remaining = at.since(now);
    if remaining.is_zero() { "now".to_owned() } else { format!("in {}", short(remaining)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_short() {
        for (ms, text) in [
            (0, "0.0s"),
            (450, "0.4s"),
            (61_000, "61s"),
            (600_000, "10m"),
            (7_200_000, "2h"),
            (900_000_000, "10d"),
        ] {
            assert_eq!(short(Duration::from_millis(ms)), text);
        }
    }
}
