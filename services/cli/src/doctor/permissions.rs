//! What the caller's own identity may do, and which checks it cannot make for that reason.

use std::collections::{BTreeMap, BTreeSet};

use berth_contract::actor::Actor;
use berth_contract::permissions::{MissingRight, Permissions, derive_permissions};
use berth_contract::role::{Grants, Role};
use berth_contract::verb::{self, Capability, Verb as _};
use berth_domain::Namespace;

use super::{Ailment, Examined, SystemFacts};

/// What each check reads: verbs, or the beginnings of subjects.
pub(super) const NEEDS: [(&str, &[&str]); 9] = [
    ("streams", &["$JS.API.STREAM.INFO."]),
    ("clocks", &["$SRV.STATS.", "node.status"]),
    ("services", &["$SRV.STATS."]),
    ("nodes", &["node.status", "agent.status"]),
    ("plugins", &["node.status", "plugin.status"]),
    ("claims", &["claim.status"]),
    ("storage", &["volume.list", "volume.status", "snapshot.list"]),
    ("operations", &["node.status", "agent.status"]),
    ("records", &["node.status", "plugin.status", "claim.status", "volume.list", "alloc.list"]),
];

pub fn examine(facts: &SystemFacts) -> Examined {
    let identity = facts.access.identity.as_ref();
    let Some((identity, permissions)) =
        identity.and_then(|one| Some((one, one.permissions.as_ref()?)))
    else {
        let summary = "not known: only a .creds file says what it allows";
        return Examined::new(summary, Vec::new());
    };
    let name = identity.name.as_deref().unwrap_or(&identity.key);
    let held = list_capabilities(permissions, name);
    let held = if held.is_empty() { "has no capability".to_owned() } else { held.join(", ") };
    let summary = format!("{name}: {held}");
    // An operator may read everything.
    let operator = Grants { operator: true, ..Grants::default() };
    let unmade = find_unmade(&find_missing(permissions, name, operator));
    if unmade.is_empty() {
        return Examined::new(summary, Vec::new());
    }
    let checks: Vec<&str> = unmade.keys().copied().collect();
    let what = format!("{name} may not read all that these checks need: {}", checks.join(", "));
    let mut warning = Ailment::warning("the caller's credentials", what);
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

/// What the identity lacks of these grants.
fn find_missing(permissions: &Permissions, identity: &str, grants: Grants) -> Vec<MissingRight> {
    // The actor is the name without the identity's kind: `user/anna`.
    let name = identity.split_once('/').map_or(identity, |(_, name)| name).to_owned();
    permissions.find_missing(&derive_permissions(&Role::User { name, grants }))
}

/// Each capability that the identity has as a whole, such as `read in team-a`.
fn list_capabilities(permissions: &Permissions, identity: &str) -> Vec<String> {
    let has = |grants| find_missing(permissions, identity, grants).is_empty();
    // Every capability in a namespace includes this verb.
    let named = permissions.publish_allow.iter();
    let named = named.filter_map(|subject| verb::VolumeStatus::read(Actor::split(subject).0));
    let named: BTreeSet<Namespace> = named.collect();
    let mut held = Vec::new();
    for capability in Capability::ALL {
        if !capability.is_of_namespace() {
            let grants = Grants {
                plugin_read: capability == Capability::PluginRead,
                node_read: capability == Capability::NodeRead,
                operator: capability == Capability::Operator,
                ..Grants::default()
            };
            held.extend(has(grants).then(|| capability.to_string()));
            continue;
        }
        let is_held_in = |namespace: &Namespace| {
            let namespaces = [(namespace.clone(), [capability].into())].into();
            has(Grants { namespaces, ..Grants::default() })
        };
        if is_held_in(&Namespace::wildcard()) {
            held.push(format!("{capability} in all namespaces"));
            continue;
        }
        let some: Vec<&str> =
            named.iter().filter(|one| is_held_in(one)).map(Namespace::as_str).collect();
        if !some.is_empty() {
            held.push(format!("{capability} in {}", some.join(" and ")));
        }
    }
    held
}
