//! The specifications of services and endpoints, with names that tools accept.

use std::collections::BTreeMap;

use berth_contract::decode::Unknown;
use berth_contract::level;
use berth_contract::service::ServiceName;
use thiserror::Error;

use crate::cause::Cause;

/// The metadata fields that an instance's id begins with.
const ID_FACTS: [&str; 3] = ["node", "plugin", "worker"];
/// Most characters of each field in the id; the metadata has the whole value.
const ID_FACT_CHARS_MAX: usize = 40;

/// A service as `nats micro info` shows it.
#[derive(Debug, Clone, Default)]
pub struct ServiceSpec {
    /// The name, `[A-Za-z0-9_-]+`.
    pub name: String,
    /// The version, `major.minor.patch`.
    pub version: String,
    /// What it does, in a line.
    pub description: String,
    /// Facts for people: host, build.
    pub metadata: BTreeMap<String, String>,
}

/// An endpoint as `nats micro info` shows it.
#[derive(Debug, Clone, Default)]
pub struct EndpointSpec {
    /// The name, `[A-Za-z0-9_-]+`; short, because operators type it (`nats micro req`).
    pub name: String,
    /// The subject that it answers, without the actor at its end; may contain `*`.
    pub subject: String,
    /// What it does, in a line.
    pub description: String,
    /// Facts for people: the shape of the request and of the reply.
    pub metadata: BTreeMap<String, String>,
    /// The queue group: one member of the group gets each request. `q` if none is named.
    pub queue_group: Option<String>,
    /// Most requests that work at once; at least 1. As many more may wait
    /// ([`caller::wait_aside`](crate::rpc::caller::wait_aside)).
    pub max_in_flight: u32,
    /// Most requests of one sender in progress at once; none: no such bound. Berth's own services
    /// have none.
    pub max_per_sender: Option<u32>,
    /// Whether a request is handled even past its deadline or without one. For requests that must
    /// also be handled from a host whose clock is wrong, and that do no harm when late.
    pub any_clock: bool,
    /// How a request's field that this version does not know is handled.
    pub unknown: Unknown,
}

impl ServiceSpec {
    /// One of Berth's services; `facts` describe this process alone.
    pub fn describe(service: ServiceName, version: &str, facts: &[(&str, &str)]) -> Self {
        let facts = facts.iter().map(|(fact, value)| ((*fact).to_owned(), (*value).to_owned()));
        Self {
            name: service.name.to_owned(),
            version: version.to_owned(),
            description: service.description.to_owned(),
            metadata: service
                .metadata()
                .into_iter()
                .chain(level::facts_of(service))
                .chain(facts)
                .collect(),
        }
    }
}

/// Why a service or endpoint cannot be started.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A name, version or subject that tools would not accept.
    #[error("service {service}: {what} {given:?} is not valid; {rule}")]
    Name {
        /// The service.
        service: String,
        /// Which name, version or subject is not valid.
        what: &'static str,
        /// The value.
        given: String,
        /// What a valid value looks like.
        rule: &'static str,
    },
    /// The bus does not accept the subscription now.
    #[error("service {service} cannot listen at {subject} now")]
    Unavailable {
        /// The service.
        service: String,
        /// The subject.
        subject: String,
        /// Why.
        #[source]
        source: Cause,
    },
}

/// The id of a service's instance in `nats micro ls`: the fields of [`ID_FACTS`] that its metadata
/// has, and a random part. It is a token of a subject (`$SRV.INFO.<name>.<id>`), so characters that
/// a name does not allow become `_`.
pub(super) fn instance_id(metadata: &BTreeMap<String, String>, random: u32) -> String {
    let plain = |fact: &String| -> String {
        let letters = fact.chars().take(ID_FACT_CHARS_MAX);
        letters.map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
    };
    let facts = ID_FACTS.iter().filter_map(|fact| metadata.get(*fact).map(plain));
    facts.chain([format!("{random:08x}")]).collect::<Vec<_>>().join("-")
}

/// Refuses a name that NATS tools do not accept.
pub(super) fn check_name(service: &str, what: &'static str, name: &str) -> Result<(), ServeError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(invalid(service, what, name, "use letters, digits, - and _"))
}

pub(super) fn invalid(
    service: &str,
    what: &'static str,
    value: &str,
    rule: &'static str,
) -> ServeError {
    ServeError::Name { service: service.to_owned(), what, given: value.to_owned(), rule }
}

pub(super) fn is_subject(subject: &str) -> bool {
    let tokens: Vec<&str> = subject.split('.').collect();
    let last = tokens.len() - 1;
    tokens.iter().enumerate().all(|(at, token)| {
        !token.is_empty()
            && !token.contains(|c: char| c.is_whitespace() || c.is_control())
            && (*token != ">" || at == last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_known_by_its_node_and_plugin() {
        let id = |facts: &[(&str, &str)]| {
            let facts = facts.iter().map(|(fact, of)| ((*fact).to_owned(), (*of).to_owned()));
            instance_id(&facts.collect(), 0x1f)
        };
        assert_eq!(id(&[("plugin", "dev.berth"), ("node", "n2")]), "n2-dev_berth-0000001f");
        assert_eq!(id(&[("worker", "claim/vm/13031")]), "claim_vm_13031-0000001f");
        assert_eq!(id(&[]), "0000001f");
        let odd = id(&[("node", &format!("a b.*>\u{e9}{}", "x".repeat(300)))]);
        assert!(is_subject(&format!("$SRV.INFO.s.{odd}")) && odd.len() < 64, "{odd}");
        assert!(odd.starts_with("a_b____x"), "{odd}");
    }

    #[test]
    fn names_and_subjects_that_tools_accept_are_accepted() {
        for name in ["claim", "plugin-registry", "a_1"] {
            assert!(check_name("s", "name", name).is_ok(), "{name}");
        }
        for name in ["", "a.b", "a b", "é", "a\r\n"] {
            assert!(check_name("s", "name", name).is_err(), "{name:?}");
        }
        for subject in ["a", "berth.v1.claim.take.*", "a.>", "a.b=2Ec"] {
            assert!(is_subject(subject), "{subject}");
        }
        for subject in ["", "a.", "a..b", "a b", "a.>.b", "a\r\nb"] {
            assert!(!is_subject(subject), "{subject:?}");
        }
    }
}
