//! Which rights an identity lacks, by its token alone.
//!
//! **Promises** that a right counts as there only if nats-server would allow all of it.

use std::collections::BTreeSet;
use std::fmt;

use berth_domain::{Namespace, NodeId, PluginId};
use serde_json::Value;

use super::Permissions;
use crate::actor::{self, Actor};
use crate::message::access::{AccessReport, RightSubject};
use crate::subject::{ANY_INBOX, controller_queue};
use crate::verb::{ALL, ControllerPublish, Verb as _, VolumeStatus};

/// A right that an identity needs and does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRight {
    /// What is done there: `publish: requests`.
    pub what: &'static str,
    /// The subject, with its queue group where it has one; empty for replies.
    pub subject: String,
    /// The verb, if the subject is one's: `claim.take`.
    pub step: Option<&'static str>,
}

impl From<RightSubject> for MissingRight {
    fn from(right: RightSubject) -> Self {
        match right {
            RightSubject::Publish(subject) => {
                Self { what: name_publish(&subject), step: find_step(&subject), subject }
            }
            RightSubject::Subscribe(subject) => {
                Self { what: name_subscription(&subject), step: find_step(&subject), subject }
            }
        }
    }
}

impl From<MissingRight> for RightSubject {
    fn from(right: MissingRight) -> Self {
        if right.is_to_send() {
            Self::Publish(right.subject)
        } else {
            Self::Subscribe(right.subject)
        }
    }
}

impl AccessReport {
    /// The rights that are missing.
    pub fn missing_rights(&self) -> Vec<MissingRight> {
        self.missing.iter().cloned().map(MissingRight::from).collect()
    }

    /// The missing right to send this verb, or to answer it.
    pub fn find_step(&self, step: &str, to_send: bool) -> Option<MissingRight> {
        let is_it =
            |right: &MissingRight| right.step == Some(step) && right.is_to_send() == to_send;
        self.missing_rights().into_iter().find(is_it)
    }
}

impl MissingRight {
    /// Whether it is a right to publish.
    pub fn is_to_send(&self) -> bool {
        self.what.starts_with("publish")
    }
}

impl fmt::Display for MissingRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        if !self.subject.is_empty() {
            write!(f, " {}", self.subject)?;
        }
        self.step.map_or(Ok(()), |step| write!(f, " ({step})"))
    }
}

impl Permissions {
    /// Reads the claims of a user's token. Without a list, nats-server allows every subject.
    pub fn from_claims(claims: &Value) -> Self {
        let list = |side: &str, list: &str| -> Vec<String> {
            let subjects = claims[side][list].as_array().into_iter().flatten();
            subjects.filter_map(|subject| subject.as_str().map(str::to_owned)).collect()
        };
        let allowed = |side| Some(list(side, "allow")).filter(|some| !some.is_empty());
        let all = || vec![">".to_owned()];
        Self {
            publish_allow: allowed("pub").unwrap_or_else(all),
            publish_deny: list("pub", "deny"),
            subscribe_allow: allowed("sub").unwrap_or_else(all),
            subscribe_deny: list("sub", "deny"),
        }
    }

    /// What these permissions lack of the needed ones, each right once.
    pub fn find_missing(&self, needed: &Self) -> Vec<MissingRight> {
        let mut missing: Vec<MissingRight> = Vec::new();
        let mut add = |right: RightSubject| {
            let right = MissingRight::from(right);
            if !missing.contains(&right) {
                missing.push(right);
            }
        };
        for subject in &needed.publish_allow {
            if !allows(&self.publish_allow, &self.publish_deny, subject) {
                add(RightSubject::Publish(subject.clone()));
            }
        }
        for subject in &needed.subscribe_allow {
            if !allows(&self.subscribe_allow, &self.subscribe_deny, subject) {
                add(RightSubject::Subscribe(subject.clone()));
            }
        }
        missing
    }

    /// Whether the calls of this plugin's controller reach who has these permissions.
    pub fn hears_controller(&self, plugin: &PluginId) -> bool {
        let queue = controller_queue(plugin);
        let subject = format!("{}.{} {queue}", ControllerPublish::subject(plugin), actor::ANY);
        allows(&self.subscribe_allow, &self.subscribe_deny, &subject)
    }

    /// The namespaces that Docker's plugin of this node may serve.
    pub fn docker_namespaces(&self, node: &NodeId) -> BTreeSet<Namespace> {
        let end = format!(".{}", Actor::Docker(node.clone()).tokens());
        let namespace = |allowed: &String| match allowed.strip_suffix(&end)? {
            all if all == VolumeStatus::ROW.subject_for(&[]) => Some(Namespace::wildcard()),
            subject => VolumeStatus::read(subject),
        };
        self.publish_allow.iter().filter_map(namespace).collect()
    }

    /// The plugins that a node may host the controllers of, as far as they are named.
    pub fn controllers(&self) -> Vec<PluginId> {
        let plugin = |allowed: &String| {
            let (subject, _) = allowed.split_once(' ')?;
            ControllerPublish::read(subject.strip_suffix(actor::ANY)?.strip_suffix('.')?)
        };
        self.subscribe_allow.iter().filter_map(plugin).collect()
    }
}

/// What is published to this subject, in words.
pub fn name_publish(subject: &str) -> &'static str {
    match subject {
        ">" => "publish",
        _ if subject.starts_with("berth.v1.event.") => "publish: events",
        _ if subject.starts_with("berth.v1.") => "publish: requests",
        _ if subject.starts_with("$KV.") => "publish: records",
        _ if subject == ANY_INBOX => "publish: replies",
        _ if subject.starts_with("_INBOX") => "publish: nothing, to learn what the server has read",
        _ => "publish: questions to servers and services",
    }
}

/// What is received at this subject, in words.
pub fn name_subscription(subject: &str) -> &'static str {
    match subject {
        ">" => "subscribe",
        _ if subject.starts_with("_INBOX") => "subscribe: replies",
        _ if subject.starts_with("berth.v1.event.") => "subscribe: events",
        _ if subject.starts_with("$SRV") => "subscribe: `nats micro`",
        _ => "subscribe: requests",
    }
}

/// The verb whose requests go to this subject.
fn find_step(subject: &str) -> Option<&'static str> {
    let (subject, _) = split_queue(subject);
    let is_its = |sent: String| covers(&format!("{sent}.{}", actor::ANY), subject);
    ALL.iter().find(|row| is_its(row.subject_for(&[]))).map(|row| row.step)
}

fn split_queue(allowed: &str) -> (&str, Option<&str>) {
    allowed.split_once(' ').map_or((allowed, None), |(subject, queue)| (subject, Some(queue)))
}

/// Whether all of the needed subject is allowed, and none of it denied.
fn allows(allowed: &[String], denied: &[String], needed: &str) -> bool {
    let (needed, queue) = split_queue(needed);
    // A subject without a queue group is allowed in every group.
    let is_of_queue = |group: Option<&str>| group.is_none() || group == queue;
    let mut allowed = allowed.iter().map(|one| split_queue(one));
    let mut denied = denied.iter().map(|one| split_queue(one));
    allowed.any(|(subject, group)| is_of_queue(group) && covers(subject, needed))
        && !denied.any(|(subject, group)| is_of_queue(group) && overlaps(subject, needed))
}

/// Whether every subject of the needed pattern is one of the allowed pattern.
fn covers(allowed: &str, needed: &str) -> bool {
    let mut needed = needed.split('.');
    for token in allowed.split('.') {
        match (token, needed.next()) {
            (">", Some(_)) => return true,
            ("*", Some(one)) if one != ">" => {}
            (token, Some(one)) if token == one => {}
            _ => return false,
        }
    }
    needed.next().is_none()
}

/// Whether some subject is one of both patterns.
pub(super) fn overlaps(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('.'), other.split('.'));
    loop {
        match (one.next(), other.next()) {
            (Some(">"), Some(_)) | (Some(_), Some(">")) | (None, None) => return true,
            (Some(one), Some(other)) if one == other || one == "*" || other == "*" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::permissions::derive_permissions;
    use crate::role::{Role, SERVICES};
    use crate::service::CONTROLLER;

    fn node(id: &str, controllers: &[&str]) -> Role {
        let controllers = controllers.iter().map(|id| PluginId::new(*id).unwrap()).collect();
        Role::Node { node: NodeId::new(id).unwrap(), controllers }
    }

    /// The permissions as a token carries them.
    fn carried(role: &Role) -> Permissions {
        let claims = derive_permissions(role).with_inbox("_INBOX.U").claims();
        Permissions::from_claims(&Value::Object(claims))
    }

    #[test]
    fn a_token_of_this_version_has_every_right_of_its_role() {
        let admin = carried(&Role::Admin { name: "root".to_owned() });
        let roles = SERVICES.into_iter().chain([node("n1", &["a.csi"]), node("n1", &[])]);
        for role in roles {
            let needed = derive_permissions(&role).with_inbox("_INBOX.U");
            assert_eq!(carried(&role), needed, "{role:?}");
            assert_eq!(carried(&role).find_missing(&needed), [], "{role:?}");
            assert_eq!(admin.find_missing(&needed), [], "{role:?}");
            // Each right counts.
            for at in 0..needed.publish_allow.len() {
                let mut less = needed.clone();
                let gone = less.publish_allow.remove(at);
                let is_twice = less.publish_allow.contains(&gone);
                let is_wider = less.publish_allow.iter().any(|one| covers(one, &gone));
                let missing = less.find_missing(&needed);
                assert_eq!(missing.len(), usize::from(!is_twice && !is_wider), "{gone}");
                assert!(missing.iter().all(|right| right.subject == gone), "{missing:?}");
            }
            for at in 0..needed.subscribe_allow.len() {
                let mut less = needed.clone();
                let gone = less.subscribe_allow.remove(at);
                let missing = less.find_missing(&needed);
                assert!(missing.len() == 1 && missing[0].subject == gone, "{gone}: {missing:?}");
            }
        }
    }

    #[test]
    fn the_namespaces_of_dockers_plugin_are_in_its_token() {
        let node = NodeId::new("host.example").unwrap();
        for names in [&["team-a", "a.b"][..], &["*"], &[]] {
            let namespaces: BTreeSet<Namespace> =
                names.iter().map(|name| Namespace::new(*name).unwrap()).collect();
            let role = Role::Docker { node: node.clone(), namespaces: namespaces.clone() };
            assert_eq!(carried(&role).docker_namespaces(&node), namespaces);
            let other = NodeId::new("n1").unwrap();
            assert_eq!(carried(&role).docker_namespaces(&other), BTreeSet::new());
        }
    }

    #[test]
    fn a_missing_right_says_what_it_is_for() {
        let n1 = carried(&node("n1", &["a.csi"]));
        assert_eq!(n1.controllers(), [PluginId::new("a.csi").unwrap()]);
        for (plugin, expected) in [("a.csi", true), ("b.csi", false)] {
            assert_eq!(n1.hears_controller(&PluginId::new(plugin).unwrap()), expected, "{plugin}");
        }
        let needed = derive_permissions(&node("n1", &["a.csi", "b.csi"]));
        let missing = n1.find_missing(&needed);
        let lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let of_controllers = ALL.iter().filter(|row| row.service == CONTROLLER);
        assert_eq!(lines.len(), 1 + of_controllers.count(), "{lines:#?}");
        let shown = "publish: requests berth.v1.node.host.n1.b=2Ecsi.node.n1 (node.host)";
        assert_eq!(lines[0], shown);
        let heard = "subscribe: requests berth.v1.controller.b=2Ecsi.publish.*.* ";
        assert!(lines[1].starts_with(heard), "{lines:#?}");
        assert!(lines[1].ends_with(" (controller.publish)"), "{lines:#?}");
        let other = carried(&node("n2", &[])).find_missing(&derive_permissions(&node("n1", &[])));
        let report = "publish: requests berth.v1.node.report.node.n1 (node.report)";
        assert!(other.iter().any(|right| right.to_string() == report), "{other:#?}");
    }

    #[test]
    fn a_report_of_missing_rights_is_read_as_it_was_told() {
        let needed = derive_permissions(&Role::Claim).with_inbox("_INBOX.U");
        let missing = carried(&Role::Gc).find_missing(&needed);
        let told: Vec<RightSubject> = missing.iter().cloned().map(Into::into).collect();
        let (identity, remedy) = ("claim".to_owned(), "berth access …".to_owned());
        let report = AccessReport { identity, missing: told, remedy };
        assert_eq!(report.missing_rights(), missing);
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<AccessReport>(&text).unwrap(), report);
        let answers = report.find_step("claim.take", false).unwrap();
        assert!(answers.subject.starts_with("berth.v1.claim.take.*."), "{answers}");
        assert_eq!(report.find_step("claim.take", true), None);
    }

    #[test]
    fn subjects_are_compared_as_nats_server_does() {
        let missing = |claims: Value, publish: &[&str], subscribe: &[&str]| -> Vec<String> {
            let list = |some: &[&str]| some.iter().map(|one| (*one).to_owned()).collect();
            let (publish_allow, subscribe_allow) = (list(publish), list(subscribe));
            let needed = Permissions { publish_allow, subscribe_allow, ..Permissions::default() };
            let missing = Permissions::from_claims(&claims).find_missing(&needed);
            missing.into_iter().map(|right| right.subject).collect()
        };
        // No list is every subject; a denial without a list is none.
        assert!(missing(json!({}), &["a.>"], &["b q"]).is_empty());
        let none = json!({"pub": {"deny": [">"]}});
        assert_eq!(missing(none, &["a"], &["b"]), ["a"]);
        // A wildcard covers a token, and no wildcard of several.
        let some = json!({"pub": {"allow": ["a.*", "c.>", "d"]}});
        let publish = ["a.b", "a.*", "a.>", "a", "c.x.y", "c.>", "c", "d"];
        assert_eq!(missing(some, &publish, &[]), ["a.>", "a", "c"]);
        // Part of it is denied; another queue group.
        let some = json!({"sub": {"allow": ["a.> q", "b"], "deny": ["a.c"]}});
        let subscribe = ["a.b q", "a.b r", "a.b", "a.* q", "b", "b q"];
        assert_eq!(missing(some, &[], &subscribe), ["a.b r", "a.b", "a.* q"]);
    }
}
