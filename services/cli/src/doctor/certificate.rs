//! Until when the certificates are valid: those that servers show in the TLS handshake, and the
//! authorities of the `ca_file`.
//!
//! **Promises** that it ends within [`HANDSHAKE_MAX`] for all servers together, and that a server
//! without TLS is left out.
//!
//! **Never** sends anything to a server that it reads a certificate of: the certificate is not
//! verified here, so that an expired one can be read, too.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_bus::Config;
use berth_domain::Timestamp;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// How long connection and handshake with a server may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(2);
/// The most servers whose certificates are read.
const SERVERS_MAX: usize = 16;
/// The port of an address that names none.
const USUAL_PORT: u16 = 4222;

/// A certificate that connections depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Where it is: `server a.example:4222`, `authority 1 of /etc/berth/ca.pem`.
    pub place: String,
    /// When it ends, or why that is not known.
    pub expires: Result<Timestamp, String>,
}

/// The certificates of the configured servers and of those that a connection has `learned`, and
/// the authorities.
pub async fn read_certificates(config: &Config, learned: &[String]) -> Vec<Certificate> {
    let mut certificates = config.tls.ca_file.as_deref().map(read_authorities).unwrap_or_default();
    let configured = config.addresses();
    let configured: BTreeSet<_> =
        configured.iter().filter_map(|address| parse_address(address)).collect();
    let learned: BTreeSet<_> =
        learned.iter().filter_map(|address| parse_address(address)).collect();
    let servers = configured.union(&learned).take(SERVERS_MAX).map(async |(host, port)| {
        let shown = timeout(HANDSHAKE_MAX, fetch_certificate(host, *port)).await;
        let shown = shown.unwrap_or_else(|_| Err(format!("no answer within {HANDSHAKE_MAX:?}")));
        let expires = match shown {
            Ok(None) => return None,
            // An address that a server announced may be unreachable from here.
            Err(_) if !configured.contains(&(host.clone(), *port)) => return None,
            Ok(Some(der)) => read_end(&der).ok_or_else(|| "it cannot be read".to_owned()),
            Err(problem) => Err(problem),
        };
        Some(Certificate { place: format!("server {host}:{port}"), expires })
    });
    certificates.extend(join_all(servers).await.into_iter().flatten());
    certificates
}

fn read_authorities(file: &Path) -> Vec<Certificate> {
    let place = |number: usize| format!("authority {number} of {}", file.display());
    let certificates = match CertificateDer::pem_file_iter(file) {
        Ok(certificates) => certificates,
        Err(error) => {
            return vec![Certificate { place: place(1), expires: Err(error.to_string()) }];
        }
    };
    let expires = certificates.map(|der| {
        let der = der.map_err(|error| error.to_string())?;
        read_end(&der).ok_or_else(|| "it cannot be read".to_owned())
    });
    let numbered = expires.enumerate();
    numbered.map(|(at, expires)| Certificate { place: place(at + 1), expires }).collect()
}

/// The host and the port of an address; none of a websocket's, which begins otherwise.
fn parse_address(address: &str) -> Option<(String, u16)> {
    let address_part = match address.trim().split_once("://") {
        Some(("nats" | "tls", address_part)) => address_part,
        Some(_) => return None,
        None => address.trim(),
    };
    let address_part = address_part.trim_end_matches('/');
    let (host, port) = match address_part.rsplit_once(':') {
        // Colons in brackets, or several without brackets, belong to the address.
        Some((host, port))
            if !port.ends_with(']') && (!host.contains(':') || host.ends_with(']')) =>
        {
            (host, port.parse().ok()?)
        }
        _ => (address_part, USUAL_PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[derive(Deserialize)]
struct ServerTls {
    #[serde(default)]
    tls_required: bool,
    #[serde(default)]
    tls_available: bool,
}

/// Longest first line of a server that is read.
const INFO_BYTES_MAX: u64 = 64 * 1024;

/// The certificate that the server shows; `None` where it has no TLS.
async fn fetch_certificate(host: &str, port: u16) -> Result<Option<Vec<u8>>, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = BufReader::new(TcpStream::connect((host, port)).await.map_err(text)?);
    // The server speaks first, and in clear: one line, after which TLS begins.
    let mut line = String::new();
    (&mut stream).take(INFO_BYTES_MAX).read_line(&mut line).await.map_err(text)?;
    let info = line.strip_prefix("INFO ").and_then(|info| serde_json::from_str(info).ok());
    let Some(ServerTls { tls_required, tls_available }) = info else {
        return Err("it is no nats-server".to_owned());
    };
    if !(tls_required || tls_available) {
        return Ok(None);
    }
    let provider = Arc::new(ring::default_provider());
    let reader = Arc::new(CertificateReader { seen: Mutex::new(None), provider: provider.clone() });
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.dangerous();
    let config = config.with_custom_certificate_verifier(reader.clone()).with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream.into_inner()).await;
    // A server that asks for a certificate ends the handshake after it has shown its own.
    let certificate = reader.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (certificate, shaken) {
        (Some(certificate), _) => Ok(Some(certificate)),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(_)) => Err("it shows no certificate".to_owned()),
    }
}

/// Keeps the server's certificate, and accepts it: nothing is sent on the connection.
#[derive(Debug)]
struct CertificateReader {
    seen: Mutex<Option<Vec<u8>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateReader {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Some(end_entity.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Tags of ASN.1's distinguished encoding (X.690).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of an X.509 certificate (RFC 5280, section 4.1).
fn read_end(der: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = take_element(der, SEQUENCE)?;
    let (mut fields, _) = take_element(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = split_element(fields)?.2;
    }
    // The serial number, the signature's algorithm and the issuer come before the validity.
    for _ in 0..3 {
        fields = split_element(fields)?.2;
    }
    let (validity, _) = take_element(fields, SEQUENCE)?;
    let (_, _, not_after) = split_element(validity)?;
    let (tag, time, _) = split_element(not_after)?;
    let time = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let time = match tag {
        // Two digits of a year: from 50 on they are of the 20th century.
        UTC_TIME if time.get(..2)? >= "50" => format!("19{time}"),
        UTC_TIME => format!("20{time}"),
        GENERALIZED_TIME => time.to_owned(),
        _ => return None,
    };
    let part = |at: usize, length: usize| time.get(at..at + length);
    let date = format!("{}-{}-{}", part(0, 4)?, part(4, 2)?, part(6, 2)?);
    let clock = format!("{}:{}:{}", part(8, 2)?, part(10, 2)?, part(12, 2)?);
    Timestamp::try_from(format!("{date}T{clock}Z")).ok()
}

/// The content of an element with this tag, and what follows it.
fn take_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found_tag, content, rest) = split_element(der)?;
    (found_tag == tag).then_some((content, rest))
}

/// The tag and the content of the first element, and what follows it.
fn split_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        // The lower bits say how many bytes the length has.
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
        (bytes.iter().try_fold(0, add)?, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_give_their_host_and_port() {
        let host = |host: &str, port| Some((host.to_owned(), port));
        for (address, expected) in [
            ("nats://a.example:4333", host("a.example", 4333)),
            ("tls://a.example", host("a.example", 4222)),
            ("10.0.0.1:1/", host("10.0.0.1", 1)),
            ("nats://[::1]:5", host("::1", 5)),
            ("[::1]", host("::1", 4222)),
            ("::1", host("::1", 4222)),
            ("wss://a:443", None),
            ("nats://", None),
            ("a:b", None),
        ] {
            assert_eq!(parse_address(address), expected, "{address}");
        }
    }

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        let mut element = vec![tag];
        if length < 0x80 {
            element.push(u8::try_from(length).unwrap());
        } else {
            element.push(0x82);
            element.extend(length.to_be_bytes());
        }
        element.extend(content);
        element
    }

    /// A certificate with this end, and with an issuer whose length has several bytes.
    fn certificate(tag: u8, end: &str, has_version: bool) -> Vec<u8> {
        let validity = [element(UTC_TIME, b"250101000000Z"), element(tag, end.as_bytes())].concat();
        let version = if has_version { element(VERSION, &[2, 1, 2]) } else { Vec::new() };
        let fields = [
            version,
            element(2, &[1]),
            element(SEQUENCE, &[]),
            element(SEQUENCE, &[7; 300]),
            element(SEQUENCE, &validity),
        ];
        element(SEQUENCE, &element(SEQUENCE, &fields.concat()))
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        for (tag, end, expected) in [
            (UTC_TIME, "261126123456Z", "2026-11-26T12:34:56.000Z"),
            (UTC_TIME, "991231235959Z", "1999-12-31T23:59:59.000Z"),
            (GENERALIZED_TIME, "20501231235959Z", "2050-12-31T23:59:59.000Z"),
        ] {
            for has_version in [true, false] {
                let der = certificate(tag, end, has_version);
                let read_back = read_end(&der).map(|end| end.to_string());
                assert_eq!(read_back.as_deref(), Some(expected));
                // No prefix of a certificate has an end, and none makes the reader panic.
                for cut in 0..der.len() {
                    assert_eq!(read_end(&der[..cut]), None, "{cut}");
                }
            }
        }
        for end in ["261326123456Z", "2611261234Z", "261126123456", "élan61126123456Z"] {
            assert_eq!(read_end(&certificate(UTC_TIME, end, true)), None, "{end}");
        }
    }
}
