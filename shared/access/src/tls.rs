//! The TLS authority of a fleet, and the certificates of its servers.
//!
//! **Owns** how they are made: ECDSA with P-256. **Promises** that a certificate is valid for its
//! names and addresses, as server and as client: servers show each other the same certificate.
//!
//! **Never** issues certificates for clients, which have tokens. A certificate of this authority is
//! the right to be a server of the fleet.

use std::time::Duration;

use berth_domain::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::error::AccessError;
use crate::host::Host;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long an authority is valid.
pub const AUTHORITY_SPAN: Duration = Duration::from_secs(3650 * 24 * 3600);
/// How long the certificate of a server is valid.
pub const CERTIFICATE_SPAN: Duration = Duration::from_secs(730 * 24 * 3600);

/// A certificate and its key, in PEM.
pub struct CertifiedPem {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
    /// When the certificate ends.
    pub expires: Timestamp,
}

/// An authority that can issue certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

fn failed(error: rcgen::Error) -> AccessError {
    AccessError::Certificate(error.to_string())
}

/// The parameters that both the authority's certificate and its later use need.
fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Sets the validity: it begins a day early, because clocks differ.
fn set_validity(
    params: &mut CertificateParams,
    at: Timestamp,
    span: Duration,
) -> Result<Timestamp, AccessError> {
    let date = |at: Timestamp| {
        let ms = i64::try_from(at.unix_ms()).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_millisecond(ms).ok()?.to_zoned(TimeZone::UTC);
        let day = at.start_of_day().ok()?.timestamp().as_millisecond();
        let (month, of_month) = (u8::try_from(at.month()).ok()?, u8::try_from(at.day()).ok()?);
        let start = Timestamp::from_unix_ms(u64::try_from(day).ok()?);
        Some((date_time_ymd(i32::from(at.year()), month, of_month), start))
    };
    let out_of_range = || AccessError::Certificate("the clock shows no usable date".to_owned());
    params.not_before = date(at.before(DAY)).ok_or_else(out_of_range)?.0;
    let (not_after, expires) = date(at.after(span)).ok_or_else(out_of_range)?;
    params.not_after = not_after;
    Ok(expires)
}

impl Authority {
    /// Makes an authority of this name.
    pub fn make(name: &str, at: Timestamp) -> Result<(Self, CertifiedPem), AccessError> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = authority_params(name);
        let expires = set_validity(&mut params, at, AUTHORITY_SPAN)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        let pem = CertifiedPem { certificate, key: key.serialize_pem(), expires };
        Ok((Self { issuer: Issuer::new(params, key) }, pem))
    }

    /// Makes an authority from its name and its key in PEM.
    pub fn load(name: &str, key: &str) -> Result<Self, AccessError> {
        let key = KeyPair::from_pem(key).map_err(failed)?;
        Ok(Self { issuer: Issuer::new(authority_params(name), key) })
    }

    /// Issues a certificate for a server that is reached by these hosts.
    pub fn certify(&self, hosts: &[Host], at: Timestamp) -> Result<CertifiedPem, AccessError> {
        let key = KeyPair::generate().map_err(failed)?;
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, hosts.first().map_or("nats-server", Host::as_str));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let expires = set_validity(&mut params, at, CERTIFICATE_SPAN)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        Ok(CertifiedPem { certificate, key: key.serialize_pem(), expires })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_unix_ms(1_764_119_000_000);

    #[test]
    fn validity_is_counted_in_days() {
        let (authority, pem) = Authority::make("Berth 1", AT).unwrap();
        assert_eq!(pem.expires.to_string(), "2035-11-24T00:00:00.000Z");
        let hosts = [Host::parse("n1.example").unwrap(), Host::parse("10.0.0.1").unwrap()];
        let server = authority.certify(&hosts, AT).unwrap();
        assert_eq!(server.expires.to_string(), "2027-11-26T00:00:00.000Z");
        assert_ne!(server.key, pem.key);
        assert!(server.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(Authority::load("Berth 1", "no key").is_err());
    }
}
