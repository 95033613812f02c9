//! A span: one step of one trace, with its duration.
//!
//! **Owns** its attributes until it ends, at the latest when it is dropped; then the exporter gets
//! it as a whole. It is a plain value: no task or thread refers to it.
//!
//! **Promises** at most 32 attributes and 8 links of bounded length, and no work at all if nothing
//! is recorded.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use berth_contract::trace::{SpanId, TraceContext};
use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::sink::Sink;
use crate::value::{Value, bounded};

const ATTRIBUTES_MAX: usize = 32;
const LINKS_MAX: usize = 8;

/// The side of a call that a span is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Neither: work within this process.
    Internal,
    /// A call that was made.
    Client,
    /// A call that was answered.
    Server,
}

/// One step of one trace. Ends when it is dropped.
#[derive(Debug)]
#[must_use = "a span lasts until it is dropped"]
pub struct Span {
    context: TraceContext,
    /// None if nothing is recorded. Boxed, because most spans are held by futures.
    record: Option<Box<Record>>,
}

#[derive(Debug)]
pub(crate) struct Record {
    sink: Arc<Sink>,
    pub(crate) data: SpanData,
}

impl Span {
    pub(crate) fn new(context: TraceContext, record: Option<Record>) -> Self {
        Self { context, record: record.map(Box::new) }
    }

    /// The context for the next step: this span if it is recorded, else its parent.
    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// Whether the span is recorded. Ask before computing an attribute that costs work.
    pub fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// Sets an attribute. `key` is one of [`attribute`](crate::attribute).
    pub fn set<'a>(&mut self, key: &'static str, value: impl Into<Value<'a>>) {
        let Some(record) = &mut self.record else { return };
        let value = value.into().record();
        let attributes = &mut record.data.attributes;
        if let Some(attribute) =
            attributes.iter_mut().find(|attribute| attribute.key.as_str() == key)
        {
            attribute.value = value;
        } else if attributes.len() < ATTRIBUTES_MAX {
            attributes.push(KeyValue::new(Key::from_static_str(key), value));
        } else {
            record.data.dropped_attributes_count += 1;
        }
    }

    /// The span with this attribute added.
    pub fn with<'a>(mut self, key: &'static str, value: impl Into<Value<'a>>) -> Self {
        self.set(key, value);
        self
    }

    /// Links it to a step of another trace.
    pub fn link(&mut self, other: TraceContext) {
        let (Some(record), Some(span)) = (&mut self.record, other.span()) else { return };
        let links = &mut record.data.links;
        if links.links.len() < LINKS_MAX {
            links.links.push(Link::with_context(span_context(other, span, true)));
        } else {
            links.dropped_count += 1;
        }
    }

    /// Marks the span as failed. The text is for readers and must contain no secret: a code is
    /// best.
    pub fn fail(&mut self, text: &str) {
        if let Some(record) = &mut self.record {
            record.data.status = Status::error(bounded(text).to_owned());
        }
    }

    /// Ends the span now.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            record.end();
        }
    }
}

impl Record {
    pub(crate) fn new(
        sink: Arc<Sink>,
        context: TraceContext,
        name: &dyn fmt::Display,
        kind: Kind,
    ) -> Self {
        let now = SystemTime::now();
        let data = SpanData {
            span_context: SpanContext::NONE,
            parent_span_id: opentelemetry::trace::SpanId::INVALID,
            parent_span_is_remote: kind == Kind::Server,
            span_kind: match kind {
                Kind::Internal => SpanKind::Internal,
                Kind::Client => SpanKind::Client,
                Kind::Server => SpanKind::Server,
            },
            name: bounded(&name.to_string()).to_owned().into(),
            start_time: now,
            end_time: now,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: scope(),
        };
        let mut record = Self { sink, data };
        if let Some(span) = context.span() {
            record.data.span_context = span_context(context, span, false);
        }
        record
    }

    pub(crate) fn below(mut self, parent: Option<SpanId>) -> Self {
        if let Some(parent) = parent {
            self.data.parent_span_id = parent.get().into();
        }
        self
    }

    fn end(mut self: Box<Self>) {
        // If the clock was set back meanwhile, the span still does not end before it began.
        self.data.end_time = SystemTime::now().max(self.data.start_time);
        self.sink.take(self.data);
    }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("berth").with_version(env!("CARGO_PKG_VERSION")).build()
}

fn span_context(context: TraceContext, span: SpanId, remote: bool) -> SpanContext {
    let flags = if context.sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (context.trace().into(), span.get().into());
    SpanContext::new(trace, span, flags, remote, TraceState::NONE)
}
