//! W3C trace context, the thread through a distributed workflow (H3).
//!
//! **Owns** the `traceparent` header's form. Every message carries one, every record that changes
//! by a request keeps the trace id of its last change, and every error names it.
//!
//! **Promises** that a header we cannot read starts a new trace rather than fail a claim.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use rand::Rng;
use serde::{Deserialize, Serialize};

/// One step of one trace: what the `traceparent` header holds, version 00. Records keep it in the
/// same form.
///
/// A trace that [begins](Self::begin) where nothing is recorded (a person with the NATS CLI, a
/// process without an exporter) has no span yet. Its header must name one all the same, so it
/// names the low half of the trace's id, and the process that records its first span sees
/// [no parent](Self::span).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceContext {
    trace: u128,
    span: u64,
    sampled: bool,
}

/// The id of one span, never zero; written as 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpanId(NonZeroU64);

/// Why a text is no trace context or span id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is neither a traceparent (version 00) nor a span id of 16 hex digits")]
pub struct TraceFault;

impl TraceContext {
    /// A trace that begins here, in which no span is recorded yet.
    pub fn begin(random: &mut impl Rng) -> Self {
        // Zero is the one value the standard forbids.
        let low = random.next_u64().max(1);
        let trace = (u128::from(random.next_u64()) << 64) | u128::from(low);
        Self { trace, span: low, sampled: true }
    }

    /// A trace that begins here, of which nothing is recorded: of work that is repeated for ever
    /// and mostly changes nothing. Its spans would fill the trace store.
    pub fn begin_unrecorded(random: &mut impl Rng) -> Self {
        Self::begin(random).with_sampled(false)
    }

    /// The next step of the same trace: the identity of a span that will be recorded.
    #[must_use]
    pub fn child(self, random: &mut impl Rng) -> Self {
        // Not the one that says "no span yet".
        let span = Some(random.next_u64()).filter(|span| *span != 0 && *span != self.low());
        Self { span: span.unwrap_or_else(|| self.low().wrapping_add(1).max(1)), ..self }
    }

    /// A step whose parts are known, such as one that was recorded.
    pub fn from_parts(trace: u128, span: SpanId, sampled: bool) -> Option<Self> {
        (trace != 0).then_some(Self { trace, span: span.0.get(), sampled })
    }

    /// A trace that is known by its id alone: what is recorded in it next has no parent.
    pub fn resume(trace_id: &str) -> Option<Self> {
        let trace = u128::from_str_radix(trace_id, 16).ok().filter(|trace| *trace != 0)?;
        let context = Self { trace, span: 0, sampled: true };
        Some(Self { span: context.low().max(1), ..context })
    }

    /// The trace's id as a number.
    pub const fn trace(self) -> u128 {
        self.trace
    }

    /// The span that this step is, and so the parent of the next; none while the trace has none.
    pub fn span(self) -> Option<SpanId> {
        NonZeroU64::new(self.span).filter(|span| span.get() != self.low()).map(SpanId)
    }

    /// Whether the spans of this trace are recorded (the flag `sampled`).
    pub const fn sampled(self) -> bool {
        self.sampled
    }

    /// The same step of a trace that is to be recorded or not.
    #[must_use]
    pub const fn with_sampled(self, sampled: bool) -> Self {
        Self { sampled, ..self }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    const fn low(self) -> u64 {
        self.trace as u64
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

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl From<TraceContext> for String {
    fn from(context: TraceContext) -> Self {
        context.to_string()
    }
}

impl TryFrom<String> for TraceContext {
    type Error = TraceFault;
    fn try_from(text: String) -> Result<Self, TraceFault> {
        Self::parse(&text).ok_or(TraceFault)
    }
}

impl SpanId {
    /// A span's id from its number; none for zero.
    pub const fn new(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The id as a number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for SpanId {
    type Err = TraceFault;
    fn from_str(text: &str) -> Result<Self, TraceFault> {
        let hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        id.and_then(Self::new).ok_or(TraceFault)
    }
}

impl From<SpanId> for String {
    fn from(id: SpanId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for SpanId {
    type Error = TraceFault;
    fn try_from(text: String) -> Result<Self, TraceFault> {
        text.parse()
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

    #[test]
    fn a_trace_that_begins_has_no_span_until_somebody_records_one() {
        let mut random = rand::rng();
        let begun = TraceContext::begin(&mut random);
        let read = TraceContext::parse(&begun.to_string()).unwrap();
        assert_eq!((read, read.span()), (begun, None));
        let first = begun.child(&mut random);
        assert!(first.span().is_some());
        let again = TraceContext::from_parts(first.trace(), first.span().unwrap(), true);
        assert_eq!(again, Some(first));
    }

    #[test]
    fn records_keep_steps_and_spans_as_text() {
        let context = TraceContext::begin(&mut rand::rng()).child(&mut rand::rng());
        let pair = (context, context.span());
        let text = serde_json::to_string(&pair).unwrap();
        assert_eq!(serde_json::from_str::<(TraceContext, Option<SpanId>)>(&text).unwrap(), pair);
        for wrong in ["\"\"", "\"0000000000000000\"", "\"+af7651916cd43dd\"", "7"] {
            assert!(serde_json::from_str::<SpanId>(wrong).is_err(), "{wrong}");
        }
    }
}
