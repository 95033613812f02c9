//! Sizes as people write them: `10GiB`, `500 MB`, `1073741824`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::VOLUME_BYTES_MAX;

/// A size in bytes, from 1 to the largest that CSI can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "SizeText", into = "u64")]
pub struct Size(u64);

/// A number of bytes, or a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum SizeText {
    Bytes(u64),
    Signed(i64),
    Text(String),
}

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SizeFault {
    /// Not a number with a unit.
    #[error("{0:?} is no size; write a whole number and a unit: 10GiB, 500MB, or bytes")]
    Form(String),
    /// Zero.
    #[error("is 0; a volume has at least 1 byte")]
    Zero,
    /// Less than zero.
    #[error("{0} is less than 0; a volume has at least 1 byte")]
    Negative(String),
    /// More than CSI can say.
    #[error("{0} is more than {VOLUME_BYTES_MAX} bytes, the most that CSI can say")]
    TooLarge(String),
}

const KIB: u64 = 1024;
/// Units by their names, the largest first. A letter alone is a binary unit, as `qemu-img` and
/// `lvcreate` have it.
const UNITS: [(&str, u64); 25] = [
    ("EiB", KIB * KIB * KIB * KIB * KIB * KIB),
    ("PiB", KIB * KIB * KIB * KIB * KIB),
    ("TiB", KIB * KIB * KIB * KIB),
    ("GiB", KIB * KIB * KIB),
    ("MiB", KIB * KIB),
    ("KiB", KIB),
    ("Ei", KIB * KIB * KIB * KIB * KIB * KIB),
    ("Pi", KIB * KIB * KIB * KIB * KIB),
    ("Ti", KIB * KIB * KIB * KIB),
    ("Gi", KIB * KIB * KIB),
    ("Mi", KIB * KIB),
    ("Ki", KIB),
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("E", KIB * KIB * KIB * KIB * KIB * KIB),
    ("P", KIB * KIB * KIB * KIB * KIB),
    ("T", KIB * KIB * KIB * KIB),
    ("G", KIB * KIB * KIB),
    ("M", KIB * KIB),
    ("K", KIB),
    ("B", 1),
];

/// Those in which sizes are shown.
const BINARY_UNITS: usize = 6;

/// The largest count of a unit that is shown as it is; a larger one is shown in the next unit.
const COUNT_MAX: u64 = 9999;

/// `10GiB`, `1536MiB`, `9.3GiB`, `17B`: a size that has no short exact form is rounded down.
pub fn describe_bytes(bytes: u64) -> String {
    let exact =
        UNITS[..BINARY_UNITS].iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor));
    if let Some((unit, factor)) = exact
        && bytes / factor <= COUNT_MAX
    {
        return format!("{}{unit}", bytes / factor);
    }
    match UNITS[..BINARY_UNITS].iter().find(|(_, factor)| bytes >= *factor) {
        Some((unit, factor)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*factor);
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes}B"),
    }
}

impl Size {
    /// The size of this many bytes.
    pub fn new(bytes: u64) -> Result<Self, SizeFault> {
        match bytes {
            0 => Err(SizeFault::Zero),
            bytes if bytes > VOLUME_BYTES_MAX => Err(SizeFault::TooLarge(bytes.to_string())),
            bytes => Ok(Self(bytes)),
        }
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = SizeFault;
    fn from_str(text: &str) -> Result<Self, SizeFault> {
        let text = text.trim();
        let fault = || SizeFault::Form(text.to_owned());
        if text.starts_with('-') {
            return Err(SizeFault::Negative(text.to_owned()));
        }
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim();
        let factor = if unit.is_empty() {
            1
        } else {
            let known = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
            known.ok_or_else(fault)?.1
        };
        if number.is_empty() {
            return Err(fault());
        }
        // More digits than fit a number are too large, too.
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
        Self::new(bytes.ok_or_else(|| SizeFault::TooLarge(text.to_owned()))?)
    }
}

impl TryFrom<SizeText> for Size {
    type Error = SizeFault;
    fn try_from(text: SizeText) -> Result<Self, SizeFault> {
        match text {
            SizeText::Bytes(bytes) => Self::new(bytes),
            SizeText::Signed(bytes) => Err(SizeFault::Negative(bytes.to_string())),
            SizeText::Text(text) => text.parse(),
        }
    }
}

impl From<Size> for u64 {
    fn from(size: Size) -> Self {
        size.0
    }
}

/// In the largest binary unit that divides it: `10GiB`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS[..BINARY_UNITS].iter().find(|(_, factor)| self.0.is_multiple_of(*factor));
        match exact {
            Some((unit, factor)) => f.pad(&format!("{}{unit}", self.0 / factor)),
            None => f.pad(&format!("{}B", self.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("1", 1),
            ("10GiB", 10 << 30),
            ("10 gib", 10 << 30),
            ("10G", 10 << 30),
            ("10Gi", 10 << 30),
            ("500MB", 500_000_000),
            ("1b", 1),
            (" 2 K ", 2048),
            ("7EiB", 7 << 60),
            ("3P", 3 << 50),
            ("9223372036854775807", VOLUME_BYTES_MAX),
        ] {
            assert_eq!(text.parse::<Size>().unwrap().bytes(), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_why() {
        for text in ["", "GiB", "1.5GiB", "10 monkeys", "0x10", "+1"] {
            assert!(matches!(text.parse::<Size>(), Err(SizeFault::Form(_))), "{text}");
        }
        assert_eq!("0".parse::<Size>(), Err(SizeFault::Zero));
        assert_eq!("0GiB".parse::<Size>(), Err(SizeFault::Zero));
        assert!(matches!("-1GiB".parse::<Size>(), Err(SizeFault::Negative(_))));
        for text in [
            "9223372036854775808",
            "99999999999999999999",
            "8192PiB",
            "8EiB",
            "18446744073709551615",
        ] {
            assert!(matches!(text.parse::<Size>(), Err(SizeFault::TooLarge(_))), "{text}");
        }
        for json in ["0", "-5", "1.5", "\"0\"", "null", "9223372036854775808"] {
            assert!(serde_json::from_str::<Size>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn bytes_read_short() {
        for (bytes, text) in [
            (0, "0B"),
            (17, "17B"),
            (1024, "1KiB"),
            (10 << 30, "10GiB"),
            (1536 << 20, "1536MiB"),
            (10_000_000_000, "9.3GiB"),
            (1_000_000, "976.5KiB"),
            (7 << 60, "7EiB"),
            (u64::MAX, "15.9EiB"),
        ] {
            assert_eq!(describe_bytes(bytes), text);
        }
    }

    #[test]
    fn a_size_is_shown_in_the_largest_unit_that_divides_it() {
        for (bytes, text) in [(10 << 30, "10GiB"), (1536 << 20, "1536MiB"), (1000, "1000B")] {
            assert_eq!(Size::new(bytes).unwrap().to_string(), text);
            assert_eq!(text.parse::<Size>().unwrap().bytes(), bytes);
        }
        assert_eq!(serde_json::to_string(&Size::new(5).unwrap()).unwrap(), "5");
    }
}
