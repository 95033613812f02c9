//! Ids in subjects and keys.
//!
//! **Owns** the one encoding: a byte that may not stand in a subject token, or would split it, is
//! written `=XX` (two upper-case hex digits); all others stand for themselves. `n1` stays `n1`,
//! `ebs.csi.aws.com` becomes `ebs=2Ecsi=2Eaws=2Ecom`, `a b` becomes `a=20b`.
//!
//! **Promises** one spelling per id: [`decode`] takes back exactly what [`encode`] wrote and
//! refuses any other spelling, so that one thing never has two keys.
//!
//! **Never** makes a token that holds a dot, a space, a wildcard or anything outside
//! `[-/_=a-zA-Z0-9]`, the characters that a KV key may hold.

use std::fmt::Write as _;

use thiserror::Error;

/// Why a token is not one of ours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no encoded id")]
pub struct TokenFault(pub String);

fn stands_for_itself(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/')
}

/// The id as one token of a subject or key.
pub fn encode(id: impl AsRef<str>) -> String {
    let id = id.as_ref();
    let mut token = String::with_capacity(id.len());
    for &byte in id.as_bytes() {
        if stands_for_itself(byte) {
            token.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(token, "={byte:02X}");
        }
    }
    token
}

/// The id that [`encode`] made this token of.
pub fn decode(token: &str) -> Result<String, TokenFault> {
    let fault = || TokenFault(token.to_owned());
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'=' {
            bytes.push(byte);
            continue;
        }
        let hex = rest.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()).ok_or_else(fault)?;
        bytes.push(u8::from_str_radix(hex, 16).map_err(|_| fault())?);
        rest = &rest[2..];
    }
    let id = String::from_utf8(bytes).map_err(|_| fault())?;
    // One comparison refuses every other spelling: lower-case hex, needless escapes, bare dots.
    if id.is_empty() || encode(&id) != token { Err(fault()) } else { Ok(id) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_ids_stay_readable() {
        for (id, token) in [
            ("n1", "n1"),
            ("data-0_a/b", "data-0_a/b"),
            ("ebs.csi.aws.com", "ebs=2Ecsi=2Eaws=2Ecom"),
            ("data[0]", "data=5B0=5D"),
            ("a b", "a=20b"),
            ("*", "=2A"),
            (">", "=3E"),
            ("=", "=3D"),
            ("é", "=C3=A9"),
        ] {
            assert_eq!(encode(id), token);
            assert_eq!(decode(token).unwrap(), id);
        }
    }

    #[test]
    fn every_other_spelling_is_refused() {
        for token in ["", "=", "=2", "=2e", "=41", "a.b", "a b", "=FF", "=C3", "é", "=+1", "a=G0"]
        {
            assert!(decode(token).is_err(), "{token:?}");
        }
    }

    proptest! {
        #[test]
        fn any_id_survives_the_way_and_back(id in "\\PC{1,85}") {
            let token = encode(&id);
            prop_assert!(token.bytes().all(|b| stands_for_itself(b) || b == b'='));
            prop_assert_eq!(decode(&token).unwrap(), id);
        }

        #[test]
        fn any_bytes_of_any_length_survive(bytes in prop::collection::vec(any::<char>(), 1..=256)) {
            let id: String = bytes.into_iter().collect();
            prop_assert_eq!(decode(&encode(&id)).unwrap(), id);
        }

        #[test]
        fn no_two_tokens_mean_one_id(token in "[-/_=a-zA-Z0-9]{1,40}") {
            if let Ok(id) = decode(&token) {
                prop_assert_eq!(encode(id), token);
            }
        }
    }
}
