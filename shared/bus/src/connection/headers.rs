//! Names of the server's headers, and the only function that sets a header.
//!
//! **Promises** that no value splits a header. The client library panics on a line break, and texts
//! of plugins and users contain line breaks.

use async_nats::HeaderMap;

pub(crate) const BATCH_ID: &str = "Nats-Batch-Id";
pub(crate) const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
pub(crate) const BATCH_COMMIT: &str = "Nats-Batch-Commit";
pub(crate) const EXPECTED_LAST: &str = "Nats-Expected-Last-Sequence";
pub(crate) const EXPECTED_REVISION: &str = "Nats-Expected-Last-Subject-Sequence";
pub(crate) const EXPECTED_FILTER: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
pub(crate) const KV_OPERATION: &str = "KV-Operation";
pub(crate) const ROLLUP: &str = "Nats-Rollup";
pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
pub(crate) const TTL: &str = "Nats-TTL";
pub(crate) const MARKER_REASON: &str = "Nats-Marker-Reason";
pub(crate) const SERVICE_ERROR: &str = "Nats-Service-Error";
pub(crate) const SERVICE_ERROR_CODE: &str = "Nats-Service-Error-Code";
pub(crate) const LAST_CONSUMER: &str = "Nats-Last-Consumer";
pub(crate) const LAST_STREAM: &str = "Nats-Last-Stream";
pub(crate) const STALLED: &str = "Nats-Consumer-Stalled";
pub(crate) const UP_TO: &str = "Nats-UpTo-Sequence";
pub(crate) const SUBJECT: &str = "Nats-Subject";
pub(crate) const SEQUENCE: &str = "Nats-Sequence";
pub(crate) const TIME: &str = "Nats-Time-Stamp";

/// The longest header value we send, in bytes.
const VALUE_MAX: usize = 512;

/// Sets a header to `value` in one line.
pub(crate) fn set(headers: &mut HeaderMap, name: &str, value: impl ToString) {
    let value = value.to_string();
    // Most values are numbers and ids, which need no change.
    if value.len() <= VALUE_MAX && value.bytes().all(|byte| byte.is_ascii_graphic()) {
        headers.insert(name, value.as_str());
    } else {
        headers.insert(name, one_line(&value).as_str());
    }
}

/// A header's value.
pub(crate) fn get<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(async_nats::HeaderValue::as_str)
}

/// A header's value as a number.
pub(crate) fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    get(headers, name)?.trim().parse().ok()
}

/// The text in one line of bounded length: what would break a line becomes a space.
pub(crate) fn one_line(text: &str) -> String {
    let mut line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    if line.len() > VALUE_MAX {
        let end = (0..=VALUE_MAX).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        line.truncate(end);
    }
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_breaks_a_line_or_grows_without_bound() {
        assert_eq!(one_line("mount: \r\n failed\u{b}\u{7f}\n"), "mount:    failed");
        let long = one_line(&"é".repeat(VALUE_MAX));
        assert!(long.len() <= VALUE_MAX && long.chars().all(|c| c == 'é'));
        let mut headers = HeaderMap::new();
        set(&mut headers, "X", "a\r\nInjected: b");
        assert_eq!(get(&headers, "X"), Some("a  Injected: b"));
    }
}
