//! Checks whether the program's identity has every right that its role needs in this version.
//!
//! **Owns** the comparison of the `.creds` file with [`derive_permissions`], and its report: a
//! warning at each start, `--check-access`, and the answers to monitoring.
//!
//! **Promises** that all missing rights are reported at once, with the command that makes an
//! identity with all rights. Nothing is sent: a token contains its rights.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use berth_bus::{BadCredentials, Bus, Credentials, Identity};
use berth_contract::message::access::AccessReport;
use berth_contract::permissions::{MissingRight, Permissions, derive_permissions};
use berth_contract::role::Role;
use berth_domain::{Namespace, PluginId, Timestamp};
use berth_telemetry::metric::ACCESS_MISSING;

/// How long before their end credentials and certificates cause a warning.
pub const EXPIRY_WARNED: Duration = Duration::from_secs(14 * 24 * 3600);

/// A token, compared with what its program needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessCheck {
    /// The identity's name, or else its key.
    pub name: String,
    /// When the token expires.
    pub expires: Option<Timestamp>,
    /// The rights that are not in the token.
    pub missing: Vec<MissingRight>,
    /// Plugins of the agent that its identity may not host the controllers of. That is a fault
    /// only where the plugin's instance on this node has a controller.
    pub not_hosted: Vec<PluginId>,
    /// Whether Docker's plugin may serve every namespace, as identities of older versions do.
    pub every_namespace: bool,
    /// The command that makes an identity with all rights.
    pub remedy: String,
}

/// Compares the token with the role. `None` where there is no token: nats-server alone knows what
/// the credentials allow.
pub fn check_access(
    role: &Role,
    credentials: &Credentials,
) -> Result<Option<AccessCheck>, BadCredentials> {
    let identity = credentials.identity()?;
    Ok(identity.and_then(|identity| {
        let permissions = identity.permissions.as_ref()?;
        Some(compare(role, &identity, permissions))
    }))
}

fn compare(role: &Role, identity: &Identity, permissions: &Permissions) -> AccessCheck {
    let inbox = identity.inbox_prefix();
    let find_missing =
        |role: &Role| permissions.find_missing(&derive_permissions(role).with_inbox(&inbox));
    let (mut missing, mut not_hosted, mut every_namespace) = (Vec::new(), Vec::new(), false);
    let mut controllers = permissions.controllers();
    let role = &match role {
        // Only the identity says which namespaces it serves.
        Role::Docker { node, namespaces } => {
            let (node, served) = (node.clone(), permissions.docker_namespaces(node));
            every_namespace = served.iter().any(Namespace::is_wildcard);
            let named: BTreeSet<_> =
                served.into_iter().filter(|namespace| !namespace.is_wildcard()).collect();
            let needed = if named.is_empty() { namespaces.clone() } else { named };
            Role::Docker { node, namespaces: needed }
        }
        role => role.clone(),
    };
    if let Role::Node { node, controllers: wanted } = role {
        missing = find_missing(&Role::Node { node: node.clone(), controllers: Vec::new() });
        not_hosted.clone_from(wanted);
        not_hosted.retain(|plugin| {
            let controllers = vec![plugin.clone()];
            let hosting = find_missing(&Role::Node { node: node.clone(), controllers });
            hosting.iter().any(|right| !missing.contains(right))
        });
        controllers.extend(wanted.iter().cloned());
    } else {
        missing.extend(find_missing(role));
    }
    controllers.sort();
    controllers.dedup();
    let name = identity.name.clone().unwrap_or_else(|| identity.key.clone());
    let remedy = write_remedy(role, &name, &controllers);
    AccessCheck { name, expires: identity.expires, missing, not_hosted, every_namespace, remedy }
}

/// The command that gives the identity a new key with all rights of the role.
fn write_remedy(role: &Role, name: &str, controllers: &[PluginId]) -> String {
    let service = match role {
        Role::Claim => "berth access service claim --replace",
        Role::PluginRegistry => "berth access service plugin-registry --replace",
        Role::Volumewatcher => "berth access service volumewatcher --replace",
        Role::Gc => "berth access service gc --replace",
        Role::Node { node, .. } if controllers.is_empty() => {
            return format!("berth access node {node} --replace");
        }
        Role::Node { node, .. } => {
            let ids: Vec<&str> = controllers.iter().map(PluginId::as_str).collect();
            return format!("berth access node {node} --controllers {} --replace", ids.join(","));
        }
        Role::Docker { node, namespaces } => {
            let names: Vec<&str> = namespaces.iter().map(Namespace::as_str).collect();
            let names = names.join(",");
            return format!("berth access docker {node} --namespaces {names} --replace");
        }
        // No program has such a role: an operator repeats the grants.
        Role::User { .. } | Role::Admin { .. } | Role::Inspect { .. } => {
            return format!("berth access show {name}");
        }
    };
    match name.split_once('/') {
        Some((kind, replica)) if kind == role.kind() => format!("{service} --name {replica}"),
        _ => service.to_owned(),
    }
}

/// Has the process's services report the rights that its identity lacks, by the file of each
/// connection. A file with another key is for the next start of the process.
pub(crate) async fn report_access(role: Role, bus: Bus) {
    let key = |bus: &Bus| bus.credentials().identity().ok().flatten().map(|identity| identity.key);
    let (mut connections, first) = (0, key(&bus));
    loop {
        connections = bus.await_connection(connections).await;
        if key(&bus) != first {
            continue;
        }
        let check = check_access(&role, bus.credentials()).ok().flatten();
        let count = check.as_ref().map_or(0, |check| check.missing.len());
        ACCESS_MISSING.set(u64::try_from(count).unwrap_or(u64::MAX), []);
        bus.set_access(check.and_then(AccessCheck::into_report));
    }
}

impl AccessCheck {
    /// The missing rights for monitoring; none if no right is missing.
    fn into_report(self) -> Option<AccessReport> {
        let Self { name: identity, missing, remedy, .. } = self;
        let lacks = !missing.is_empty();
        let missing = missing.into_iter().map(Into::into).collect();
        lacks.then_some(AccessReport { identity, missing, remedy })
    }

    /// Whether the identity ends within [`EXPIRY_WARNED`].
    fn ends_soon(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end < now.after(EXPIRY_WARNED))
    }

    /// Logs the missing rights, and an end that is near.
    pub(crate) fn warn(&self, now: Timestamp) {
        let (identity, next) = (&self.name, &self.remedy);
        if !self.missing.is_empty() {
            let rights: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
            let (count, missing) = (rights.len(), rights.join("; "));
            tracing::warn!(
                identity,
                count,
                missing,
                next,
                "the identity lacks rights that this version needs"
            );
        }
        if let Some(expires) = self.expires.filter(|_| self.ends_soon(now)) {
            let next = format!("berth access rotate {identity} --expires 90d");
            tracing::warn!(identity, %expires, next, "the identity expires soon");
        }
    }

    /// The report of `--check-access`, and whether nothing is missing.
    pub(crate) fn report(&self, now: Timestamp) -> (String, bool) {
        let Self { name, expires, missing, not_hosted, every_namespace, remedy } = self;
        let mut text = format!("identity {name}");
        let _ = match expires {
            Some(expires) => writeln!(text, ", expires {expires}"),
            None => writeln!(text, ", does not expire"),
        };
        let has_expired = expires.is_some_and(|end| end <= now);
        if has_expired || self.ends_soon(now) {
            let verdict =
                if has_expired { "missing: it has expired" } else { "warning: ends soon" };
            let _ = writeln!(text, "{verdict}\n  next: berth access rotate {name} --expires 90d");
        }
        for right in missing {
            let _ = writeln!(text, "missing: {right}");
        }
        for plugin in not_hosted {
            let _ = writeln!(
                text,
                "warning: may not host the controller of {plugin}; it needs no such right where \
                 the plugin has no controller on this node"
            );
        }
        if *every_namespace {
            text += "warning: may serve every namespace to its host's containers, as identities of \
                     older versions do; name those that the host is to serve\n";
        }
        if missing.is_empty() {
            text += "ok: it has every right that this version needs\n";
        }
        if !missing.is_empty() || !not_hosted.is_empty() || *every_namespace {
            let _ = writeln!(text, "  next: {remedy}");
        }
        (text, missing.is_empty() && !has_expired)
    }
}

#[cfg(test)]
mod tests;
