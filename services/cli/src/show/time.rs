//! Times of day in the reader's time zone, and durations.

use std::time::Duration;

use berth_domain::Timestamp;
use jiff::tz::TimeZone;

use crate::span;

/// The time zone in which times are shown.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of this machine and the variable `TZ`; UTC without either.
    pub fn local() -> Self {
        Self(TimeZone::system())
    }

    /// UTC.
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// `2026-11-21`
    pub fn date(&self, at: Timestamp) -> String {
        self.format("%Y-%m-%d", at)
    }

    /// `20:00:53.425`
    pub fn time(&self, at: Timestamp) -> String {
        self.format("%H:%M:%S%.3f", at)
    }

    /// `2026-11-21 20:00:53.425`
    pub fn date_and_time(&self, at: Timestamp) -> String {
        format!("{} {}", self.date(at), self.time(at))
    }

    fn format(&self, form: &str, at: Timestamp) -> String {
        let ms = i64::try_from(at.unix_ms()).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(ms) {
            Ok(at) => at.to_zoned(self.0.clone()).strftime(form).to_string(),
            // Outside the range of jiff: only a broken clock gives such a time.
            Err(_) => at.to_string(),
        }
    }
}

/// `0.4 ms`, `21.5 ms`, `310 ms`, `2.0 s`, `61 s`, then as [`span::short`].
pub fn took(took: Duration) -> String {
    let us = took.as_micros();
    let tenths = |unit: u128| format!("{}.{}", us / unit, us % unit * 10 / unit);
    match us {
        // A duration that is known to the millisecond only is not shown more exactly.
        0..100_000 if us.is_multiple_of(1000) => format!("{} ms", us / 1000),
        0..100_000 => format!("{} ms", tenths(1000)),
        100_000..1_000_000 => format!("{} ms", us / 1000),
        1_000_000..10_000_000 => format!("{} s", tenths(1_000_000)),
        10_000_000..120_000_000 => format!("{} s", us / 1_000_000),
        _ => span::short(took),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_zone_with_its_summer() {
        let zone = Zone(TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap());
        let winter = Timestamp::from_unix_ms(1_795_300_000_123);
        assert_eq!(zone.date_and_time(winter), "2026-11-21 23:26:40.123");
        assert_eq!(Zone::utc().date_and_time(winter), "2026-11-21 22:26:40.123");
        let summer = Timestamp::from_unix_ms(1_783_000_000_000);
        assert_eq!((zone.date(summer), zone.time(summer)), {
            ("2026-07-02".to_owned(), "15:46:40.000".to_owned())
        });
        let broken = Timestamp::from_unix_ms(u64::MAX);
        assert_eq!(Zone::utc().time(broken), "9999-12-30T22:00:00.999Z");
    }

    #[test]
    fn a_duration_is_printed_as_exactly_as_it_was_measured() {
        for (us, text) in [
            (0, "0 ms"),
            (412, "0.4 ms"),
            (21_500, "21.5 ms"),
            (24_000, "24 ms"),
            (310_900, "310 ms"),
            (2_049_000, "2.0 s"),
            (61_000_000, "61 s"),
            (600_000_000, "10m"),
        ] {
            assert_eq!(took(Duration::from_micros(us)), text);
        }
    }
}
