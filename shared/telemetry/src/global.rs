//! The tracer of a process, and the spans that it makes.
//!
//! Spans are made everywhere, like log lines. So the tracer is global, like the logger, and is not
//! passed through every function. Tests with a tracer of their own make spans by a [`Tracer`]
//! value.

use std::fmt;
use std::sync::OnceLock;

use berth_contract::trace::{SpanId, TraceContext};
use berth_domain::Timestamp;

use crate::span::{Kind, Span};
use crate::tracer::Tracer;

static TRACER: OnceLock<Tracer> = OnceLock::new();
static OFF: Tracer = Tracer::OFF;

/// The process's tracer; it records nothing until one is set.
fn tracer() -> &'static Tracer {
    TRACER.get().unwrap_or(&OFF)
}

/// Sets the process's tracer; false if it was set before.
pub(crate) fn set(tracer: Tracer) -> bool {
    TRACER.set(tracer).is_ok()
}

impl Span {
    /// The first span of a new trace. The name comes from a small fixed set, because an id in it
    /// would make a series of its own in every backend.
    pub fn root(name: impl fmt::Display, kind: Kind) -> Self {
        tracer().root(name, kind)
    }

    /// The next span of the parent's trace, or its first span if the trace has none yet.
    pub fn child_of(parent: TraceContext, name: impl fmt::Display, kind: Kind) -> Self {
        tracer().child_of(parent, name, kind)
    }

    /// The identity of a span that is recorded before the span begins. The process that ends the
    /// span emits it with [`resume`](Self::resume).
    pub fn reserve(parent: TraceContext) -> TraceContext {
        tracer().reserve(parent)
    }

    /// A span whose identity ([`reserve`](Self::reserve)), parent and beginning were recorded,
    /// perhaps by a process that has ended. The span is emitted when this value is dropped, so a
    /// mere reader of the record must not call this.
    pub fn resume(
        context: TraceContext,
        parent: Option<SpanId>,
        name: impl fmt::Display,
        kind: Kind,
        began: Timestamp,
    ) -> Self {
        tracer().resume(context, parent, name, kind, began)
    }
}
