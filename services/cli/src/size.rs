//! Sizes, as people write and read them.
//!
//! A size on the command line has a unit: a number alone is more often a forgotten unit than a
//! number of bytes.

use berth_domain::size::{Size, describe_bytes};

/// Units, the largest first.
const UNITS: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];
/// Reads `10GiB`, `500MB` or `4096B`.
pub fn parse(text: &str) -> Result<Size, String> {
    let number = text.trim();
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
        // Zero and numbers that are too large are wrong in any unit.
        number.parse::<Size>().map_err(|fault| fault.to_string())?;
        return Err(format!("{number} has no unit; write {number}GiB or {number}MiB, for example"));
    }
    text.parse().map_err(|fault: berth_domain::size::SizeFault| fault.to_string())
}

/// `10GiB`, `1536MiB`, `9.3GiB`, `17B`: a size that has no short exact form is rounded down.
pub fn short(bytes: u64) -> String {
    describe_bytes(bytes)
}

/// The same, with the bytes behind it where it is rounded.
pub fn exact(bytes: u64) -> String {
    let short = short(bytes);
    let is_exact = short.parse::<Size>().is_ok_and(|size| size.bytes() == bytes);
    if is_exact || bytes == 0 { short } else { format!("{short} ({bytes} bytes)") }
}

/// All sizes together. A plugin may say the largest number there is, of each of them.
pub fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// The bytes of a size as [`short`] shows it, for sorting; none for other text.
pub fn shown_bytes(text: &str) -> Option<f64> {
    let (unit, factor) = match UNITS.iter().find(|(unit, _)| text.ends_with(unit)) {
        Some((unit, factor)) => (*unit, *factor),
        None => ("B", 1),
    };
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "the order of shown sizes needs no more")]
    let factor = factor as f64;
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_sizes_of_a_group_have_a_sum() {
        let largest = i64::MAX.unsigned_abs();
        assert_eq!(sum([largest; 3].into_iter()), u64::MAX);
        assert_eq!(sum([1, 2].into_iter()), 3);
    }

    #[test]
    fn a_size_on_the_command_line_has_a_unit() {
        assert_eq!(parse("10GiB").map(Size::bytes), Ok(10 << 30));
        assert_eq!(parse("1B").map(Size::bytes), Ok(1));
        for (text, reason) in [
            ("10", "10 has no unit; write 10GiB"),
            ("0", "is 0"),
            ("0GiB", "is 0"),
            ("-1GiB", "less than 0"),
            ("9223372036854775808", "the most that CSI can say"),
            ("9000PiB", "the most that CSI can say"),
            ("1.5GiB", "is no size"),
            ("", "is no size"),
            ("10 monkeys", "is no size"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(reason), "{text}: {fault}");
        }
    }

    #[test]
    fn a_rounded_size_shows_its_bytes_too() {
        assert_eq!(exact(10 << 30), "10GiB");
        assert_eq!(exact(10_000_000_000), "9.3GiB (10000000000 bytes)");
    }

    #[test]
    fn shown_sizes_are_sorted_by_their_bytes() {
        let bytes = |text| shown_bytes(text);
        assert_eq!(bytes("1KiB"), Some(1024.0));
        assert_eq!(bytes("17B"), Some(17.0));
        assert!(bytes("9.3GiB") < bytes("10GiB"));
        assert_eq!(bytes("web-0"), None);
        assert_eq!(bytes("n1"), None);
    }
}
