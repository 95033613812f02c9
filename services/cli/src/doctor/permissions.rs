//! What the caller's own identity may do, and which checks it cannot make for that reason; and
//! which rights the identities of services and agents lack.

use std::collections::{BTreeMap, BTreeSet};

use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::access::AccessReport;
use berth_contract::permissions::{MissingRight, Permissions, derive_permissions};
use berth_contract::problem::Problem;
use berth_contract::role::{Grants, Role};
use berth_contract::verb::{self, Capability, Verb as _};
use berth_domain::Namespace;

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined};
use berth_explain::missing_rights;

/// The most rights, and the most processes, that one finding names.
const RIGHTS_MAX: usize = 12;
const PLACES_MAX: usize = 8;

/// What each check reads: verbs, or prefixes of subjects.
pub(super) const NEEDS: [(&str, &[&str]); 11] = [
    ("streams", &["$JS.API.STREAM.INFO."]),
    ("clocks", &["$SRV.STATS.", "node.status"]),
    ("services", &["$SRV.STATS."]),
    ("level", &["$SRV.STATS."]),
    ("nodes", &["node.status", "agent.status"]),
    ("plugins", &["node.status", "plugin.status"]),
    ("claims", &["claim.status"]),
    ("owners", &["alloc.list"]),
    ("storage", &["volume.list", "volume.status", "snapshot.list"]),
    ("operations", &["node.status", "agent.status"]),
    ("records", &["node.status", "plugin.status", "claim.status", "volume.list", "alloc.list"]),
];

pub fn examine(facts: &SystemFacts) -> Examined {
    let Examined { summary, mut findings } = examine_caller(facts);
    findings.extend(find_lacking(facts));
    Examined::new(summary, findings)
}

/// Replaces the missing answers of sources that the caller may not read by a refusal: nothing is
/// known of such a source.
pub(super) fn tell_denied(mut facts: SystemFacts) -> SystemFacts {
    let denied: BTreeSet<&str> =
        find_unmade(&lacks_of_operator(&facts)).into_values().flatten().collect();
    let tell = |need: &str, problem: &mut Problem| {
        if denied.contains(need) {
            let step = need.trim_end_matches('.');
            let message = format!("these credentials may not read {step}");
            *problem = Problem::new(Code::NotAllowed, message).at_step(step);
        }
    };
    let streams = facts.streams.values_mut().filter_map(|answer| answer.as_mut().err());
    streams.for_each(|problem| tell("$JS.API.STREAM.INFO.", problem));
    let replicas = facts.replicas.values_mut().filter_map(|answer| answer.as_mut().err());
    let services = facts.why.services.values_mut().filter_map(|answer| answer.as_mut().err());
    replicas.chain(services).for_each(|problem| tell("$SRV.STATS.", problem));
    let agents = facts.why.agents.values_mut().filter_map(|answer| answer.as_mut().err());
    agents.for_each(|problem| tell("agent.status", problem));
    facts
}

/// The rights that the caller lacks to read everything; empty if its rights are not known.
fn lacks_of_operator(facts: &SystemFacts) -> Vec<MissingRight> {
    let identity = facts.access.identity.as_ref();
    let held = identity.and_then(|reported| Some((reported, reported.permissions.as_ref()?)));
    let Some((identity, permissions)) = held else { return Vec::new() };
    let operator = Grants { operator: true, ..Grants::default() };
    find_missing(permissions, identity.name.as_deref().unwrap_or(&identity.key), operator)
}

/// Each identity that lacks rights, once, with the processes that have it.
fn find_lacking(facts: &SystemFacts) -> Vec<DoctorFinding> {
    let mut lacking: BTreeMap<&str, Lacking<'_>> = BTreeMap::new();
    for (service, replica) in facts.all_replicas() {
        let Some(access) = &replica.access else { continue };
        let place = replica.node().map_or_else(
            || format!("{service} {}", replica.name()),
            |node| format!("{service} of node {node}"),
        );
        let (places, kept) = Default::default();
        let process_rights =
            lacking.entry(&access.identity).or_insert(Lacking { access, places, kept });
        process_rights.places.insert(place);
        // The services of one process report the same events, so the largest count is right.
        process_rights.kept = process_rights.kept.max(replica.events.kept);
    }
    lacking.into_values().map(Lacking::describe).collect()
}

/// An identity that lacks rights.
struct Lacking<'a> {
    access: &'a AccessReport,
    places: BTreeSet<String>,
    /// Events of one of its processes that are kept until the right is granted.
    kept: u64,
}

impl Lacking<'_> {
    fn describe(self) -> DoctorFinding {
        let Self { access, places, kept } = self;
        let (identity, missing) = (&access.identity, access.missing_rights());
        let places: Vec<String> = places.into_iter().take(PLACES_MAX).collect();
        let count = missing.len();
        let sentence = format!("identity {identity} lacks {count} rights that its version needs");
        let mut fault = DoctorFinding::fault(places.join(", "), sentence);
        if kept > 0 {
            fault = fault.shown_by(format!("{kept} refused events wait for the right"));
        }
        for right in missing.iter().take(RIGHTS_MAX) {
            fault = fault.shown_by(right.to_string());
        }
        if count > RIGHTS_MAX {
            fault = fault.shown_by(format!("and {} more", count - RIGHTS_MAX));
        }
        fault.next(missing_rights::next(access))
    }
}

fn examine_caller(facts: &SystemFacts) -> Examined {
    let identity = facts.access.identity.as_ref();
    let Some((identity, permissions)) =
        identity.and_then(|one| Some((one, one.permissions.as_ref()?)))
    else {
        let summary = "not known: only a .creds file says what it allows";
        return Examined::new(summary, Vec::new());
    };
    let name = identity.name.as_deref().unwrap_or(&identity.key);
    let capabilities = list_capabilities(permissions, name);
    let capabilities = if capabilities.is_empty() {
        "has no capability".to_owned()
    } else {
        capabilities.join(", ")
    };
    let summary = format!("{name}: {capabilities}");
    // An operator may read everything, so an operator's rights are the measure.
    let unmade = find_unmade(&lacks_of_operator(facts));
    if unmade.is_empty() {
        return Examined::new(summary, Vec::new());
    }
    let checks: Vec<&str> = unmade.keys().copied().collect();
    let sentence = format!("{name} may not read all that these checks need: {}", checks.join(", "));
    let mut warning = DoctorFinding::warning("the caller's credentials", sentence);
    for (check, needs) in unmade {
        warning = warning.shown_by(format!("{check}: {}", needs.join(", ")));
    }
    let warning = warning
        .next("berth doctor --creds FILE   # of an operator: `berth access user NAME --operator`");
    Examined::new(summary, vec![warning])
}

/// The checks that cannot be made as a whole, with what each lacks.
fn find_unmade(missing: &[MissingRight]) -> BTreeMap<&'static str, Vec<&'static str>> {
    let is_missing = |need: &str| {
        missing.iter().any(|right| right.step == Some(need) || right.subject.starts_with(need))
    };
    let unmade = NEEDS.into_iter().filter_map(|(check, needs)| {
        let lacks: Vec<&str> = needs.iter().copied().filter(|need| is_missing(need)).collect();
        (!lacks.is_empty()).then_some((check, lacks))
    });
    unmade.collect()
}

/// The grants that the identity lacks.
fn find_missing(permissions: &Permissions, identity: &str, grants: Grants) -> Vec<MissingRight> {
    // The actor is the name without the identity's kind: `user/anna`.
    let name = identity.split_once('/').map_or(identity, |(_, name)| name).to_owned();
    permissions.find_missing(&derive_permissions(&Role::User { name, grants }))
}

/// Each capability that the identity has as a whole, such as `read in team-a`.
fn list_capabilities(permissions: &Permissions, identity: &str) -> Vec<String> {
    let has = |grants| find_missing(permissions, identity, grants).is_empty();
    // Every capability in a namespace includes this verb, so its subjects name the namespaces.
    let named = permissions.publish_allow.iter();
    let named = named.filter_map(|subject| verb::VolumeList::read(Actor::split(subject).0));
    let named: BTreeSet<Namespace> = named.collect();
    let mut capabilities = Vec::new();
    for capability in Capability::ALL {
        if !capability.is_of_namespace() {
            let grants = Grants {
                plugin_read: capability == Capability::PluginRead,
                node_read: capability == Capability::NodeRead,
                operator: capability == Capability::Operator,
                ..Grants::default()
            };
            capabilities.extend(has(grants).then(|| capability.to_string()));
            continue;
        }
        let holds = |capability: Capability, namespace: &Namespace| {
            let namespaces = [(namespace.clone(), [capability].into())].into();
            has(Grants { namespaces, ..Grants::default() })
        };
        // `read` contains `list`.
        let is_held_in = |namespace: &Namespace| {
            let is_said = capability == Capability::List && holds(Capability::Read, namespace);
            holds(capability, namespace) && !is_said
        };
        if is_held_in(&Namespace::wildcard()) {
            capabilities.push(format!("{capability} in all namespaces"));
            continue;
        }
        let some: Vec<&str> =
            named.iter().filter(|namespace| is_held_in(namespace)).map(Namespace::as_str).collect();
        if !some.is_empty() {
            capabilities.push(format!("{capability} in {}", some.join(" and ")));
        }
    }
    capabilities
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{replica, well};
    use super::super::{Verdict, examine};

    #[test]
    fn identities_that_lack_rights_are_named_with_their_processes_and_the_next_command() {
        let lacks = |identity: &str, count: usize| {
            let right =
                |at| json!({"publish": format!("berth.v1.volume.checkpoint.n{at}.service.gc")});
            let missing: Vec<_> = (0..count).map(right).collect();
            json!({"identity": identity, "missing": missing, "remedy": "berth access x --replace"})
        };
        let mut facts = well();
        let events = json!({"kept": 7, "lost": 0});
        let claims = [replica(json!({"access": lacks("claim", 20), "events": events}))];
        let agent = |of: &str| {
            let node = json!({"node": "n2"});
            replica(json!({"id": of, "metadata": node, "access": lacks("node/n2", 1)}))
        };
        let (agents, controllers) = (vec![agent("a")], vec![agent("b")]);
        facts.replicas.insert("berth-claim", Ok(claims.to_vec()));
        facts.replicas.insert("berth-node-agent", Ok(agents));
        facts.replicas.insert("berth-controller", Ok(controllers));
        let report = examine(&facts);
        let check = report.checks.iter().find(|one| one.check == "permissions").unwrap();
        let [claim, node] = &check.findings[..] else { panic!("{check:?}") };
        assert_eq!((check.verdict, claim.place.as_str()), (Verdict::Fault, "berth-claim x/host/1"));
        assert_eq!(claim.what, "identity claim lacks 20 rights that its version needs");
        assert_eq!(claim.evidence[0], "7 refused events wait for the right");
        assert!(claim.evidence[1].contains("(volume.checkpoint)"), "{claim:?}");
        assert_eq!(claim.evidence.last().unwrap(), "and 8 more");
        assert!(claim.next[0].starts_with("berth access x --replace   # "), "{claim:?}");
        let places = "berth-controller of node n2, berth-node-agent of node n2";
        assert_eq!(node.place, places);
    }
}
