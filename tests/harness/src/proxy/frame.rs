//! What a NATS client says, one whole operation at a time; pure.
//!
//! Owns: where one operation ends and the next begins, and which of them publish, to what subject.
//! Promises: what it cannot read passes as it is, line by line. Never: changes a byte.

/// One operation at the head of what a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// How many bytes it has, its payload included.
    pub(super) len: usize,
    /// What it publishes, if it does.
    pub(super) publish: Option<Publish>,
}

/// A message on its way to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Publish {
    pub(super) subject: String,
    /// Where an answer is to go. Without one nobody waits for it.
    pub(super) reply: Option<String>,
}

/// The first operation of `bytes`; none while it is not whole.
pub(super) fn first(bytes: &[u8]) -> Option<Frame> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")?;
    let text = String::from_utf8_lossy(&bytes[..line]);
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (subject, reply, size) = match words.as_slice() {
        ["PUB", subject, size] | ["HPUB", subject, _, size] => (subject, None, size),
        ["PUB", subject, reply, size] | ["HPUB", subject, reply, _, size] => {
            (subject, Some((*reply).to_owned()), size)
        }
        _ => return Some(Frame { len: line + 2, publish: None }),
    };
    let Ok(size) = size.parse::<usize>() else {
        return Some(Frame { len: line + 2, publish: None });
    };
    let len = line + 2 + size + 2;
    let publish = Some(Publish { subject: (*subject).to_owned(), reply });
    (bytes.len() >= len).then_some(Frame { len, publish })
}

/// Whether a subject is one of those that a pattern of NATS covers.
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
        let all = b"PING\r\nPUB a.b _INBOX.1 8\r\nPUB\r\nx\r\n\r\n\
            HPUB $KV.b.k 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        let (mut rest, mut seen) = (&all[..], Vec::new());
        while let Some(frame) = first(rest) {
            seen.push((frame.len, frame.publish));
            rest = &rest[frame.len..];
        }
        let expected = [
            (6, None),
            (30, Some(publish("a.b", Some("_INBOX.1")))),
            (36, Some(publish("$KV.b.k", None))),
        ];
        assert_eq!(seen, expected);
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_not_whole_waits() {
        let all = b"HPUB s r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        for end in 0..all.len() {
            assert_eq!(first(&all[..end]), None, "{end} bytes");
        }
        assert_eq!(first(all).map(|frame| frame.len), Some(all.len()));
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
