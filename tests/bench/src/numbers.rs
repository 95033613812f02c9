//! Figures as a reader sees them: few digits, and a space between thousands.

use crate::row::Row;

/// The median and the p99, in milliseconds.
pub fn times(row: &Row) -> String {
    let times = row.p50_us.zip(row.p99_us);
    times.map(|(p50, p99)| format!("{}/{}", ms(p50), ms(p99))).unwrap_or_default()
}

/// How many servers, as a title.
pub fn servers(count: u32) -> &'static str {
    if count == 1 { "one server" } else { "three servers" }
}

/// Bytes, from a mebibyte on as MiB.
pub fn memory(bytes: f64) -> String {
    let mib = bytes / f64::from(1 << 20);
    if mib < 1.0 { format!("{} bytes", grouped(bytes)) } else { format!("{} MiB", grouped(mib)) }
}

/// A count per operation, or a share of a limit.
pub fn hundredths(number: f64) -> String {
    format!("{number:.2}")
}

/// Microseconds as milliseconds, with two or three significant digits.
pub fn ms(us: f64) -> String {
    let ms = us / 1e3;
    match ms {
        _ if ms < 10.0 => format!("{ms:.2}"),
        _ if ms < 100.0 => format!("{ms:.1}"),
        _ => grouped(ms),
    }
}

/// The same with its unit.
pub fn ms_unit(us: f64) -> String {
    format!("{} ms", ms(us))
}

/// A whole number with a space between thousands; one decimal digit below 100.
pub fn grouped(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.1}");
    }
    spaced(&format!("{number:.0}"))
}

/// A count with a space between thousands.
pub fn whole(number: u64) -> String {
    spaced(&number.to_string())
}

fn spaced(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!(
            [7.25, 431.4, 1_950.0, 1_234_567.0].map(grouped),
            ["7.2", "431", "1 950", "1 234 567"]
        );
        assert_eq!([460.0, 12_345.0, 1_500_000.0].map(ms), ["0.46", "12.3", "1 500"]);
        assert_eq!([653.0, 2_097_152.0].map(memory), ["653 bytes", "2.0 MiB"]);
    }
}
