//! Makes spans, and decides which of them are recorded.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use berth_contract::trace::{SpanId, TraceContext};
use berth_domain::Timestamp;

use crate::sampler::Sampler;
use crate::sink::Sink;
use crate::span::{Kind, Record, Span};

/// Makes spans. Clones share the exporter.
#[derive(Debug, Clone, Default)]
pub struct Tracer {
    /// None if nothing is exported.
    sink: Option<Arc<Sink>>,
    sampler: Sampler,
}

impl Tracer {
    /// A tracer that records nothing.
    pub(crate) const OFF: Self = Self { sink: None, sampler: Sampler::PARENT_OR_ALL };

    pub(crate) fn new(sink: Option<Arc<Sink>>, sampler: Sampler) -> Self {
        Self { sink, sampler }
    }

    /// See [`Span::root`].
    pub fn root(&self, name: impl fmt::Display, kind: Kind) -> Span {
        self.child_of(TraceContext::begin(&mut rand::rng()), name, kind)
    }

    /// See [`Span::child_of`].
    pub fn child_of(&self, parent: TraceContext, name: impl fmt::Display, kind: Kind) -> Span {
        let Some(sink) = &self.sink else {
            // The next span that is recorded becomes a child of this parent.
            return Span::new(parent, None);
        };
        let parent = self.decide(parent);
        if !parent.sampled() {
            return Span::new(parent, None);
        }
        let context = parent.child(&mut rand::rng());
        let record = Record::new(Arc::clone(sink), context, &name, kind).below(parent.span());
        Span::new(context, Some(record))
    }

    /// See [`Span::reserve`].
    pub fn reserve(&self, parent: TraceContext) -> TraceContext {
        self.decide(parent).child(&mut rand::rng())
    }

    /// See [`Span::resume`].
    pub fn resume(
        &self,
        context: TraceContext,
        parent: Option<SpanId>,
        name: impl fmt::Display,
        kind: Kind,
        began: Timestamp,
    ) -> Span {
        let is_recorded = context.sampled() && context.span().is_some();
        let record = self.sink.as_ref().filter(|_| is_recorded).map(|sink| {
            let mut record = Record::new(Arc::clone(sink), context, &name, kind).below(parent);
            record.data.start_time =
                SystemTime::UNIX_EPOCH + Duration::from_millis(began.unix_ms());
            record
        });
        Span::new(context, record)
    }

    /// The parent, marked as to be recorded or not.
    fn decide(&self, parent: TraceContext) -> TraceContext {
        // A trace without a span has no decision yet, unless its caller marked it as not sampled.
        let decided = (parent.span().is_some() || !parent.sampled()).then(|| parent.sampled());
        parent.with_sampled(self.sampler.decide(decided, parent.trace()))
    }

    pub(crate) fn sink(&self) -> Option<&Arc<Sink>> {
        self.sink.as_ref()
    }
}
