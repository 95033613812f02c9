//! The ends of certificates and credentials: connections fail from then on.

use berth_domain::Timestamp;
use berth_service::access_check::EXPIRY_WARNED;

use super::certificate::Certificate;
use super::facts::{AccessFacts, SystemFacts};
use super::finding::{DoctorFinding, Examined, Verdict};
use crate::span;

pub fn examine(facts: &SystemFacts) -> Examined {
    judge_access(&facts.access, facts.now)
}

/// Judges what is known without a connection.
pub(super) fn judge_access(access: &AccessFacts, now: Timestamp) -> Examined {
    let mut findings = Vec::new();
    let mut ends = Vec::new();
    if let Some(identity) = &access.identity {
        let name = identity.name.as_deref().unwrap_or(&identity.key);
        let place = format!("credentials of {name}");
        ends.extend(identity.expires.map(|end| (end, place.clone())));
        let next = format!("berth access rotate '{name}' --expires 90d");
        findings.extend(identity.expires.and_then(|end| judge_end(&place, end, now, &next)));
    }
    for Certificate { place, expires } in &access.certificates {
        match expires {
            Ok(end) => {
                ends.push((*end, place.clone()));
                let is_replaced = is_authority(place) && has_successor(access, now);
                let next = if is_replaced { RETIRE } else { find_next(place) };
                let mut judged = judge_end(place, *end, now, next);
                if let Some(finding) = judged.as_mut().filter(|_| is_replaced) {
                    finding.severity = Verdict::Warning;
                }
                findings.extend(judged);
            }
            Err(problem) => {
                let sentence = format!("not known: when the certificate of {place} ends");
                let warning = DoctorFinding::warning(place, sentence).shown_by(problem.clone());
                findings.push(warning.next("nats server check connection"));
            }
        }
    }
    let summary = match ends.iter().min() {
        None => "nothing that ends is known".to_owned(),
        Some((end, place)) => {
            format!("{} known, the first ends on {}: {place}", ends.len(), write_date(*end))
        }
    };
    Examined::new(summary, findings)
}

fn judge_end(place: &str, end: Timestamp, now: Timestamp, next: &str) -> Option<DoctorFinding> {
    let (severity, what) = if end <= now {
        (Verdict::Fault, format!("{place} expired {} ago", span::short(now.since(end))))
    } else if end < now.after(EXPIRY_WARNED) {
        (Verdict::Warning, format!("{place} expires in {}", span::short(end.since(now))))
    } else {
        return None;
    };
    Some(DoctorFinding::new(severity, place, what).shown_by(format!("it ends at {end}")).next(next))
}

fn is_authority(place: &str) -> bool {
    place.starts_with("authority ")
}

/// Whether an authority is trusted that is valid for longer than the warning period.
fn has_successor(access: &AccessFacts, now: Timestamp) -> bool {
    access.certificates.iter().any(|certificate| {
        let is_late =
            certificate.expires.as_ref().is_ok_and(|end| *end >= now.after(EXPIRY_WARNED));
        is_authority(&certificate.place) && is_late
    })
}

/// The command that ends the trust in authorities that have a successor.
const RETIRE: &str = "berth access certify --retire   # once no server needs it: docs/access.md";

/// The command that replaces a certificate, on the machine with the directory of identities.
fn find_next(place: &str) -> &'static str {
    if is_authority(place) {
        "berth access certify --authority   # the first of three steps: docs/access.md"
    } else {
        "berth access certify   # then copy server.pem and server.key: docs/access.md"
    }
}

fn write_date(at: Timestamp) -> String {
    at.to_string().split('T').next().unwrap_or_default().to_owned()
}
