//! Keys and filters of a bucket: what may be written, and what a filter covers.

/// Whether `key` may be written: `[-/_=a-zA-Z0-9]` in tokens between single dots.
///
/// A key such as `a..b` passes the client library's own check and then fails as an outage.
pub(crate) fn is_key(key: &str) -> bool {
    let token = |token: &str| {
        !token.is_empty()
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-/_=".contains(&byte))
    };
    key.split('.').all(token)
}

/// Whether `filter` is a key or a pattern: `*` matches one token, a last `>` all that
/// follow.
pub(crate) fn is_filter(filter: &str) -> bool {
    let tokens: Vec<&str> = filter.split('.').collect();
    let last = tokens.len() - 1;
    tokens
        .iter()
        .enumerate()
        .all(|(at, token)| *token == "*" || (*token == ">" && at == last) || is_key(token))
}

/// Whether `filter` covers `key`.
pub(crate) fn covers(filter: &str, key: &str) -> bool {
    let mut keys = key.split('.');
    for token in filter.split('.') {
        match (token, keys.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (token, Some(key)) if token == key => {}
            _ => return false,
        }
    }
    keys.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hold_tokens_and_nothing_else() {
        for key in ["a", "default.v1.spec", "a=2Eb/c_d-e.f"] {
            assert!(is_key(key) && is_filter(key), "{key}");
        }
        for key in ["", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "a:b", "é", "a\r\nb"] {
            assert!(!is_key(key), "{key:?}");
        }
        for filter in [">", "*", "a.*.c", "a.>", "*.>"] {
            assert!(is_filter(filter), "{filter}");
        }
        for filter in ["", "a.>.b", "a*", "a..>", "a. "] {
            assert!(!is_filter(filter), "{filter:?}");
        }
    }

    #[test]
    fn a_filter_covers_the_keys_that_match_it() {
        for (filter, key) in
            [("a.b", "a.b"), (">", "a.b"), ("a.>", "a.b"), ("a.>", "a.b.c"), ("*.b", "a.b")]
        {
            assert!(covers(filter, key), "{filter} {key}");
        }
        for (filter, key) in
            [("a.b", "a"), ("a.b", "a.b.c"), ("a.>", "a"), ("*", "a.b"), ("a.>", "ab.c")]
        {
            assert!(!covers(filter, key), "{filter} {key}");
        }
    }
}
