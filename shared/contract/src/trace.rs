//! W3C trace context, the thread through a distributed workflow (H3).
//!
//! **Owns** the `traceparent` header's form. Every message carries one, every record that changes
//! by a request keeps the trace id of its last change, and every error names it.
//!
//! **Promises** that a header we cannot read starts a new trace rather than fail a claim.

use std::fmt;

use rand::Rng;

/// One step of one trace: what the `traceparent` header holds, version 00.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl TraceContext {
    /// A trace that begins here.
    pub fn begin(random: &mut impl Rng) -> Self {
        // Zero is the one value the standard forbids.
        Self { trace: random.next_u128_nonzero(), span: random.next_u64().max(1), sampled: true }
    }

    /// The next step of the same trace.
    #[must_use]
    pub fn child(self, random: &mut impl Rng) -> Self {
        Self { span: random.next_u64().max(1), ..self }
    }

    /// Reads a `traceparent`; none when it is not one.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // A later version may append fields; version 00 may not, and ff is forbidden.
        let tail_ok = version != "00" || parts.next().is_none();
        let hex = |text: &str, len: usize| {
            text.len() == len
                && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        if !tail_ok || version == "ff" || !hex(version, 2) || !hex(trace, 32) || !hex(span, 16) {
            return None;
        }
        let (trace, span) =
            (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        let flags = hex(flags, 2).then(|| u8::from_str_radix(flags, 16).ok()).flatten()?;
        (trace != 0 && span != 0).then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }

    /// The trace's id, 32 hex digits: what records and errors carry.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }
}

trait NonZero: Rng {
    fn next_u128_nonzero(&mut self) -> u128 {
        ((u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())).max(1)
    }
}

impl<R: Rng> NonZero for R {}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = TraceContext::parse(text).unwrap();
        assert_eq!(context.to_string(), text);
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
    }

    #[test]
    fn what_is_no_header_is_none() {
        for text in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_child_stays_in_its_trace() {
        let mut random = rand::rng();
        let parent = TraceContext::begin(&mut random);
        let child = parent.child(&mut random);
        assert_eq!(child.trace_id(), parent.trace_id());
        assert_ne!(child.to_string(), parent.to_string());
    }
}
