//! What the spans of a request say, on both sides.

use berth_contract::verb;
use berth_telemetry::{Span, attribute};

/// The span with the subject of its message, which ends in the sender.
pub(super) fn with_subject(mut span: Span, subject: &str) -> Span {
    if !span.is_recorded() {
        return span;
    }
    span.set(attribute::MESSAGING_SYSTEM, "nats");
    span.set(attribute::MESSAGING_DESTINATION, subject);
    if let Some(form) = verb::form_of(subject) {
        span.set(attribute::MESSAGING_DESTINATION_TEMPLATE, &format!("{form}.<actor>"));
    }
    span
}

/// Records why there is no result. An answer that only says to wait is no error.
pub(super) fn record_refusal(span: &mut Span, reason: &str, is_wait: bool) {
    if is_wait {
        span.set(attribute::OUTCOME, reason);
    } else {
        span.set(attribute::ERROR_TYPE, reason);
        span.fail(reason);
    }
}
