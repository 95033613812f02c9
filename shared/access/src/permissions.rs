//! What an identity may send and receive on the bus.
//!
//! **Owns** the form of permissions. nats-server enforces them: they are part of the user's token.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::role::Role;

/// What a user may publish and subscribe to. A denial wins over what is allowed; what is in neither
/// list is denied. A subscription with a queue group is written `SUBJECT QUEUE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Subjects that the user may publish to.
    pub publish_allow: Vec<String>,
    /// Subjects that the user may not publish to.
    pub publish_deny: Vec<String>,
    /// Subjects that the user may subscribe to.
    pub subscribe_allow: Vec<String>,
    /// Subjects that the user may not subscribe to.
    pub subscribe_deny: Vec<String>,
    /// How many replies to a request that the user received it may publish, and for how long.
    pub responses: Option<(i64, Duration)>,
}

/// What a role may do, without the inbox of its identity.
pub fn derive_permissions(_role: &Role) -> Permissions {
    Permissions {
        publish_allow: vec![">".to_owned()],
        subscribe_allow: vec![">".to_owned()],
        ..Permissions::default()
    }
}

impl Permissions {
    /// Adds the identity's own inbox to the subjects that it may subscribe to.
    #[must_use]
    pub fn with_inbox(mut self, prefix: &str) -> Self {
        let inbox = format!("{prefix}.>");
        if !self.subscribe_allow.contains(&inbox) {
            self.subscribe_allow.push(inbox);
        }
        self
    }

    /// The claims of a user's token. An empty list would allow everything, so a user without any
    /// subject gets a denial of all.
    pub(crate) fn claims(&self) -> Map<String, Value> {
        let mut claims = Map::new();
        claims.insert("pub".to_owned(), side(&self.publish_allow, &self.publish_deny));
        claims.insert("sub".to_owned(), side(&self.subscribe_allow, &self.subscribe_deny));
        if let Some((max, span)) = self.responses {
            let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
            claims.insert("resp".to_owned(), json!({ "max": max, "ttl": ns }));
        }
        claims
    }
}

fn side(allow: &[String], deny: &[String]) -> Value {
    if allow.is_empty() {
        return json!({ "deny": [">"] });
    }
    let mut side = Map::new();
    side.insert("allow".to_owned(), json!(allow));
    if !deny.is_empty() {
        side.insert("deny".to_owned(), json!(deny));
    }
    Value::Object(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_subjects_is_denied_all_of_them() {
        let claims = Value::Object(Permissions::default().claims());
        assert_eq!(claims, json!({ "pub": { "deny": [">"] }, "sub": { "deny": [">"] } }));
    }

    #[test]
    fn lists_and_replies_are_written_as_the_server_reads_them() {
        let permissions = Permissions {
            publish_allow: vec!["a.b".to_owned()],
            publish_deny: vec!["a.c".to_owned()],
            subscribe_allow: vec!["s q".to_owned()],
            subscribe_deny: Vec::new(),
            responses: Some((1, Duration::from_secs(2))),
        };
        let claims =
            Value::Object(permissions.with_inbox("_INBOX_U").with_inbox("_INBOX_U").claims());
        let expected = json!({
            "pub": { "allow": ["a.b"], "deny": ["a.c"] },
            "sub": { "allow": ["s q", "_INBOX_U.>"] },
            "resp": { "max": 1, "ttl": 2_000_000_000_u64 },
        });
        assert_eq!(claims, expected);
    }
}
