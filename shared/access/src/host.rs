//! Hosts, by name or address.
//!
//! **Promises** that a host is a DNS name or an IP address, which is valid in a certificate, a URL,
//! a configuration and a path.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The longest DNS name, in bytes.
const NAME_BYTES_MAX: usize = 253;
/// The longest part of a DNS name between dots, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// A DNS name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Host(String);

impl Host {
    /// Takes the text if it is a host.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_label = |label: &str| {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label.bytes().all(is_word)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.to_string()));
        }
        // Text of digits and dots only is a mistyped address.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if text.len() > NAME_BYTES_MAX || is_number || !text.split('.').all(is_label) {
            return Err(format!("{text:?} is no host; write a name or an address, without a port"));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The host as written in a certificate.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host as written before a port: an IPv6 address is in brackets.
    pub fn in_url(&self) -> String {
        if self.0.contains(':') { format!("[{}]", self.0) } else { self.0.clone() }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Host {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_hosts_and_nothing_else() {
        for (text, in_url) in [
            ("n1", "n1"),
            ("A.Example", "a.example"),
            ("10.0.0.1", "10.0.0.1"),
            ("fd00::1", "[fd00::1]"),
            ("my_host-2.internal", "my_host-2.internal"),
        ] {
            assert_eq!(Host::parse(text).map(|host| host.in_url()), Ok(in_url.to_owned()));
        }
        let long = format!("{}.a", "x".repeat(64));
        for text in
            ["", "a b", "a:4222", "nats://a", "-a", "a..b", "a.", "../a", "10.0.0", "\"", &long]
        {
            assert!(Host::parse(text).is_err(), "{text}");
        }
    }
}
