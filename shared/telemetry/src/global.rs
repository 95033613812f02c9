//! The one tracer of a process, and the spans that it makes.
//!
//! A span is made in the middle of everything, as a log line is, and like the logger its tracer is
//! not handed through every function on the way there. Tests that want their own make spans by a
//! [`Tracer`] value.

use std::fmt;
use std::sync::OnceLock;

use berth_contract::trace::{SpanId, TraceContext};
use berth_domain::Timestamp;

use crate::span::{Kind, Span};
use crate::tracer::Tracer;

static TRACER: OnceLock<Tracer> = OnceLock::new();
static OFF: Tracer = Tracer::OFF;

/// The process's tracer: one that records nothing, until one is set.
fn tracer() -> &'static Tracer {
    TRACER.get().unwrap_or(&OFF)
}

/// Sets the process's tracer; false when it was set before.
pub(crate) fn set(tracer: Tracer) -> bool {
    TRACER.set(tracer).is_ok()
}

impl Span {
    /// The first span of a new trace. Its name is one of few, and holds no id.
    pub fn root(name: impl fmt::Display, kind: Kind) -> Self {
        tracer().root(name, kind)
    }

    /// The next span of the parent's trace; its first one, where the trace has none yet.
    pub fn child_of(parent: TraceContext, name: impl fmt::Display, kind: Kind) -> Self {
        tracer().child_of(parent, name, kind)
    }

    /// The identity of a span that is written down before it begins and emitted by whoever ends it,
    /// with [`resume`](Self::resume).
    pub fn reserve(parent: TraceContext) -> TraceContext {
        tracer().reserve(parent)
    }

    /// A span whose identity ([`reserve`](Self::reserve)), parent and beginning were written down,
    /// perhaps by a process that is gone. It is emitted when this value ends; whoever only looks
    /// at the record does not call this.
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
