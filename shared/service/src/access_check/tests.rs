//! Identities of one role, compared with what a role needs.

use berth_domain::NodeId;

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);
const NOW: Timestamp = Timestamp::from_unix_ms(1_795_262_400_000);

fn node(id: &str, controllers: &[&str]) -> Role {
    let controllers = controllers.iter().map(|id| PluginId::new(*id).unwrap()).collect();
    Role::Node { node: NodeId::new(id).unwrap(), controllers }
}

/// Compares an identity of one role with what another role needs.
fn check(made_for: &Role, name: &str, expires: Option<Timestamp>, needs: &Role) -> AccessCheck {
    let mut identity =
        Identity { key: "U".to_owned(), name: Some(name.to_owned()), expires, permissions: None };
    let permissions = derive_permissions(made_for).with_inbox(&identity.inbox_prefix());
    identity.permissions = Some(permissions.clone());
    compare(needs, &identity, &permissions)
}

#[test]
fn an_identity_of_its_role_lacks_nothing() {
    for role in [Role::Claim, Role::Gc, node("n1", &["a.csi"])] {
        let check = check(&role, "x", None, &role);
        assert_eq!((&check.missing[..], &check.not_hosted[..]), (&[][..], &[][..]), "{role:?}");
        let (report, has_all) = check.report(NOW);
        assert!(has_all && report.contains("ok: it has every right"), "{report}");
    }
}

#[test]
fn everything_that_is_missing_is_told_at_once_with_the_remedy() {
    let check = check(&Role::Gc, "claim/a.example", None, &Role::Claim);
    let (report, has_all) = check.report(NOW);
    assert!(!has_all, "{report}");
    for part in [
        "missing: publish: records $KV.berth-volumes.>",
        "(claim.take)",
        "next: berth access service claim --replace --name a.example",
    ] {
        assert!(report.contains(part), "{report} lacks {part}");
    }
    assert_eq!(report.matches("missing: ").count(), check.missing.len());
    // The identity `gc` is of another service: the remedy names the role that is needed.
    let remedy = write_remedy(&Role::Claim, "gc", &[]);
    assert_eq!(remedy, "berth access service claim --replace");
}

#[test]
fn a_controller_that_may_not_be_hosted_is_a_warning() {
    let made_for = node("n1", &["old.csi"]);
    let check = check(&made_for, "node/n1", None, &node("n1", &["new.csi", "old.csi"]));
    assert_eq!(check.missing, []);
    assert_eq!(check.not_hosted, [PluginId::new("new.csi").unwrap()]);
    let (report, has_all) = check.report(NOW);
    assert!(has_all && report.contains("the controller of new.csi"), "{report}");
    let remedy = "berth access node n1 --controllers new.csi,old.csi --replace";
    assert_eq!(check.remedy, remedy);
    assert!(report.contains(remedy), "{report}");
}

#[test]
fn an_end_within_two_weeks_is_a_warning() {
    let role = Role::Gc;
    for (expires, part, has_all) in [
        (None, "does not expire", true),
        (Some(NOW.after(15 * DAY)), "expires 2026-", true),
        (Some(NOW.after(13 * DAY)), "berth access rotate gc", true),
        (Some(NOW.before(DAY)), "it has expired", false),
    ] {
        let check = check(&role, "gc", expires, &role);
        let (report, is_whole) = check.report(NOW);
        assert!(report.contains(part) && is_whole == has_all, "{report}");
        let is_near = expires.is_some_and(|end| end < NOW.after(14 * DAY));
        assert_eq!(report.contains("rotate"), is_near, "{report}");
    }
}

#[test]
fn credentials_without_a_token_are_not_checked() {
    let password = Credentials::Password { user: "u".to_owned(), password: "p".to_owned() };
    for credentials in [Credentials::None, password, Credentials::Token("t".to_owned())] {
        assert_eq!(check_access(&Role::Gc, &credentials).unwrap(), None);
    }
}

#[test]
fn dockers_plugin_needs_the_namespaces_that_its_identity_serves() {
    let docker = |names: &[&str]| {
        let namespaces = names.iter().map(|name| Namespace::new(*name).unwrap()).collect();
        Role::Docker { node: NodeId::new("n1").unwrap(), namespaces }
    };
    // The namespaces of the program do not matter: it does not know what the identity is for.
    let needs = docker(&["default"]);
    for names in [&["default"][..], &["team-a", "team-b"]] {
        let check = check(&docker(names), "docker/n1", None, &needs);
        assert_eq!(check.missing, []);
        let (report, has_all) = check.report(NOW);
        assert!(has_all && !report.contains("warning"), "{report}");
    }
    // Identities of the last release have every namespace: they work, and should be made again.
    let old_identity = check(&docker(&["*"]), "docker/n1", None, &needs);
    let (report, has_all) = old_identity.report(NOW);
    assert!(has_all && report.contains("warning: may serve every namespace"), "{report}");
    let remedy = "next: berth access docker n1 --namespaces default --replace";
    assert!(report.contains(remedy), "{report}");
    // An identity that lacks a verb in one of its namespaces.
    let mut identity =
        Identity { key: "U".to_owned(), name: None, expires: None, permissions: None };
    let mut less = derive_permissions(&docker(&["a", "b"])).with_inbox(&identity.inbox_prefix());
    less.publish_allow.retain(|subject| !subject.starts_with("berth.v1.volume.create.b."));
    identity.permissions = Some(less.clone());
    let check = compare(&needs, &identity, &less);
    assert_eq!(check.missing.len(), 1, "{:?}", check.missing);
    assert_eq!(check.remedy, "berth access docker n1 --namespaces a,b --replace");
}
