//! Received spans, and queries of many of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

/// One span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its trace, 32 hex digits.
    pub trace: String,
    /// Its id, 16 hex digits.
    pub id: String,
    /// Its parent's id; none for the first of a trace.
    pub parent: Option<String>,
    /// Its name.
    pub name: String,
    /// `INTERNAL`, `SERVER`, `CLIENT`.
    pub kind: String,
    /// When it began, in nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// The attributes of the process that sent it.
    pub resource: BTreeMap<String, String>,
    /// Traces and spans it is linked to.
    pub links: Vec<(String, String)>,
    /// Its error message, if its status is an error.
    pub error: Option<String>,
}

impl Span {
    /// An attribute's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    /// The service it comes from.
    pub fn service(&self) -> &str {
        self.resource.get("service.name").map_or("", String::as_str)
    }
}

/// Many spans.
#[derive(Clone, Debug, Default)]
pub struct Spans(pub Vec<Span>);

impl Spans {
    /// The traces they belong to.
    pub fn traces(&self) -> BTreeSet<String> {
        self.0.iter().map(|span| span.trace.clone()).collect()
    }

    /// The spans of one trace.
    #[must_use]
    pub fn of(&self, trace: &str) -> Self {
        Self(self.0.iter().filter(|span| span.trace == trace).cloned().collect())
    }

    /// The spans with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|span| span.name == name).cloned().collect())
    }

    /// The spans without a parent.
    pub fn roots(&self) -> Vec<&Span> {
        self.0.iter().filter(|span| span.parent.is_none()).collect()
    }

    /// The spans whose parent was not received.
    pub fn orphans(&self) -> Vec<&Span> {
        let received: BTreeSet<_> = self.0.iter().map(|span| (&span.trace, &span.id)).collect();
        let is_orphan = |span: &&Span| {
            span.parent.as_ref().is_some_and(|parent| !received.contains(&(&span.trace, parent)))
        };
        self.0.iter().filter(is_orphan).collect()
    }

    /// The children of `parent`, in the order they began.
    pub fn children(&self, parent: &Span) -> Vec<&Span> {
        let is_child =
            |span: &&Span| span.trace == parent.trace && span.parent.as_ref() == Some(&parent.id);
        let mut children: Vec<_> = self.0.iter().filter(is_child).collect();
        children.sort_by_key(|span| span.start_ns);
        children
    }

    /// The names as a tree, one span per line. Orphans come last, marked with `?`.
    pub fn tree(&self) -> String {
        let mut text = String::new();
        let mut roots = self.roots();
        roots.sort_by_key(|span| span.start_ns);
        for root in roots {
            self.draw(root, 0, &mut text);
        }
        for orphan in self.orphans() {
            text.push_str("? ");
            self.draw(orphan, 0, &mut text);
        }
        text
    }

    fn draw(&self, span: &Span, depth: usize, text: &mut String) {
        let error = span.error.as_deref().map(|error| format!(" ! {error}")).unwrap_or_default();
        let _ = writeln!(text, "{}{}{error}", "  ".repeat(depth), span.name);
        // A span that is its own ancestor would draw for ever.
        if depth < 64 {
            for child in self.children(span) {
                self.draw(child, depth + 1, text);
            }
        }
    }
}

pub(super) fn read(request: &ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for from_process in &request.resource_spans {
        let resource = from_process.resource.as_ref().map(|resource| texts(&resource.attributes));
        for span in from_process.scope_spans.iter().flat_map(|scope| &scope.spans) {
            let status = span.status.clone().unwrap_or_default();
            let error = (status.code() == StatusCode::Error).then_some(status.message);
            let kind = span.kind().as_str_name();
            spans.push(Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: Some(hex(&span.parent_span_id)).filter(|id| !id.is_empty()),
                name: span.name.clone(),
                kind: kind.trim_start_matches("SPAN_KIND_").to_owned(),
                start_ns: span.start_time_unix_nano,
                end_ns: span.end_time_unix_nano,
                attributes: texts(&span.attributes),
                resource: resource.clone().unwrap_or_default(),
                links: span
                    .links
                    .iter()
                    .map(|link| (hex(&link.trace_id), hex(&link.span_id)))
                    .collect(),
                error,
            });
        }
    }
    spans
}

/// Attributes with their values as text.
pub(super) fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    attributes.iter().map(|entry| (entry.key.clone(), text(entry.value.as_ref()))).collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
