//! The value of an attribute.
//!
//! **Owns** the bound of a text in a span. Nothing is copied or formatted unless it is recorded.

use std::fmt;

use opentelemetry::StringValue;

/// Longest text in a span, in bytes. An id has at most 256.
const TEXT_BYTES_MAX: usize = 512;

/// An attribute's value, borrowed until it is recorded.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    /// A text.
    Text(&'a str),
    /// A value in its printed form.
    Shown(&'a dyn fmt::Display),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl<'a> Value<'a> {
    /// The printed form of `value`, which is formatted only if it is recorded.
    pub fn shown(value: &'a impl fmt::Display) -> Self {
        Self::Shown(value)
    }

    pub(crate) fn record(self) -> opentelemetry::Value {
        match self {
            Self::Text(text) => StringValue::from(bounded(text).to_owned()).into(),
            Self::Shown(value) => StringValue::from(bounded(&value.to_string()).to_owned()).into(),
            Self::Number(number) => number.into(),
            Self::Flag(flag) => flag.into(),
        }
    }
}

/// The text, cut between characters if it is too long.
pub(crate) fn bounded(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

impl<'a, T: AsRef<str> + ?Sized> From<&'a T> for Value<'a> {
    fn from(text: &'a T) -> Self {
        Self::Text(text.as_ref())
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value<'_> {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Shown(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(bounded("short"), "short");
        let cut = bounded(&"é".repeat(TEXT_BYTES_MAX)).to_owned();
        assert!(cut.len() <= TEXT_BYTES_MAX && cut.chars().all(|letter| letter == 'é'));
    }
}
