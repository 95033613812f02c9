//! The operations of a NATS client and its server, one whole operation at a time; pure.
//!
//! Owns: where an operation ends, and which operations publish, to what subject, and which deliver.
//! Promises: an operation that it cannot read passes unchanged, line by line. Never: changes a
//! byte.

/// One operation at the head of what a client or a server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its length in bytes, with its payload.
    pub(super) len: usize,
    /// What it publishes, if it does.
    pub(super) publish: Option<Publish>,
    /// The reply subject of the message that it delivers, if there is one.
    pub(super) answer_to: Option<String>,
}

/// A message on its way to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Publish {
    pub(super) subject: String,
    /// The subject for an answer. `None` for a message without an answer.
    pub(super) reply: Option<String>,
}

/// The first operation of `bytes`; none while it is incomplete.
pub(super) fn first(bytes: &[u8]) -> Option<Frame> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")?;
    let text = String::from_utf8_lossy(&bytes[..line]);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let plain = Frame { len: line + 2, publish: None, answer_to: None };
    let (subject, reply, size) = match words.as_slice() {
        ["PUB", subject, size] | ["HPUB", subject, _, size] => (Some(subject), None, size),
        ["PUB", subject, reply, size] | ["HPUB", subject, reply, _, size] => {
            (Some(subject), Some(reply), size)
        }
        ["MSG", _, _, size] | ["HMSG", _, _, _, size] => (None, None, size),
        ["MSG", _, _, reply, size] | ["HMSG", _, _, reply, _, size] => (None, Some(reply), size),
        _ => return Some(plain),
    };
    let Ok(size) = size.parse::<usize>() else { return Some(plain) };
    let len = line + 2 + size + 2;
    let reply = reply.map(|reply| (*reply).to_owned());
    let frame = match subject {
        Some(subject) => {
            let publish = Some(Publish { subject: (*subject).to_owned(), reply });
            Frame { len, publish, answer_to: None }
        }
        None => Frame { len, publish: None, answer_to: reply },
    };
    (bytes.len() >= len).then_some(frame)
}

/// Whether a NATS pattern covers a subject.
pub(super) fn covers(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(subject: &str, reply: Option<&str>) -> Publish {
        Publish { subject: subject.to_owned(), reply: reply.map(str::to_owned) }
    }

    #[test]
    fn operations_are_told_apart_whatever_their_payload_holds() {
        let bytes = b"PING\r\nPUB a.b _INBOX.1 8\r\nPUB\r\nx\r\n\r\n\
            HPUB $KV.b.k 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        while let Some(frame) = first(rest) {
            frames.push((frame.len, frame.publish));
            rest = &rest[frame.len..];
        }
        let expected = [
            (6, None),
            (30, Some(publish("a.b", Some("_INBOX.1")))),
            (36, Some(publish("$KV.b.k", None))),
        ];
        assert_eq!(frames, expected);
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_delivered_says_where_an_answer_goes() {
        let bytes = b"INFO {}\r\nMSG a.b 1 5\r\nMSG 1\r\nMSG a.b 1 $JS.ACK.S.c.1 2\r\nhi\r\n\
            HMSG a.b 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n\
            HMSG a.b 1 back 12 14\r\nNATS/1.0\r\n\r\nhi\r\n+OK\r\n";
        let (mut rest, mut answers_to) = (&bytes[..], Vec::new());
        while let Some(frame) = first(rest) {
            assert_eq!(frame.publish, None);
            answers_to.push(frame.answer_to);
            rest = &rest[frame.len..];
        }
        let to = |reply: &str| Some(reply.to_owned());
        assert_eq!(answers_to, [None, None, to("$JS.ACK.S.c.1"), None, to("back"), None]);
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_not_whole_waits() {
        let bytes = b"HPUB s r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        for end in 0..bytes.len() {
            assert_eq!(first(&bytes[..end]), None, "{end} bytes");
        }
        assert_eq!(first(bytes).map(|frame| frame.len), Some(bytes.len()));
    }

    #[test]
    fn patterns_cover_as_the_servers_do() {
        for (pattern, subject, expected) in [
            ("$KV.v.>", "$KV.v.default.a.spec", true),
            ("$KV.v.>", "$KV.v", false),
            ("a.*.c", "a.b.c", true),
            ("a.*", "a.b.c", false),
            ("a.b.c", "a.b", false),
        ] {
            assert_eq!(covers(pattern, subject), expected, "{pattern} {subject}");
        }
    }
}
