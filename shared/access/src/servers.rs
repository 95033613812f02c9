//! The configuration that makes nats-servers accept a fleet's identities.
//!
//! **Owns** the text of `host.conf` and `accounts.conf`. **Promises** that a server accepts nothing
//! but TLS, from clients and from other servers, and that a server needs a certificate of the
//! fleet's authority to be let into the cluster.
//!
//! **Never** sets what the sample configurations set: streams, limits, pings.

use std::path::{Component, Path, PathBuf};

use crate::host::Host;

/// The port for clients.
pub const CLIENT_PORT: u16 = 4222;
/// The port for the other servers of the cluster.
pub const ROUTE_PORT: u16 = 6222;
/// The name of the cluster. A server of another cluster is refused.
pub const CLUSTER: &str = "berth";
/// How long a TLS handshake may take, in seconds.
const TLS_TIMEOUT_S: u32 = 5;

/// A text in double quotes, as nats-server reads it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The tokens that servers trust.
#[derive(Debug)]
pub struct TrustedTokens {
    /// Grows with each change, so that files can be compared.
    pub serial: u64,
    /// The operator's token.
    pub operator: String,
    /// The system account's public key and token.
    pub system: (String, String),
    /// The public key and token of Berth's account, which lists the revoked keys.
    pub account: (String, String),
}

impl TrustedTokens {
    /// The configuration text: the same for each server.
    pub fn format(&self) -> String {
        let (system, system_token) = &self.system;
        let (account, account_token) = &self.account;
        format!(
            "# Written by `berth access`: serial {}. `berth access install` refuses older ones.\n\
             operator: {}\n\
             system_account: {system}\n\
             resolver: MEMORY\n\
             resolver_preload: {{\n  {system}: {}\n  {account}: {}\n}}\n",
            self.serial,
            quoted(&self.operator),
            quoted(system_token),
            quoted(account_token)
        )
    }
}

/// The directory of a server's certificate and authorities.
#[derive(Debug)]
pub struct ServerFiles<'a>(pub &'a Path);

impl ServerFiles<'_> {
    fn path(&self, name: &str) -> String {
        quoted(&self.0.join(name).to_string_lossy())
    }

    /// The `tls` block for clients, which have tokens and no certificates.
    pub fn format_client_tls(&self) -> String {
        format!(
            "tls {{\n  cert_file: {}\n  key_file: {}\n  timeout: {TLS_TIMEOUT_S}\n}}\n",
            self.path("server.pem"),
            self.path("server.key")
        )
    }

    /// The `tls` block for other servers, which must show a certificate of the authority.
    pub fn format_route_tls(&self) -> String {
        format!(
            "  tls {{\n    cert_file: {}\n    key_file: {}\n    ca_file: {}\n    verify: true\n    \
             timeout: {TLS_TIMEOUT_S}\n  }}\n",
            self.path("server.pem"),
            self.path("server.key"),
            self.path("ca.pem")
        )
    }
}

/// Includes a file into a configuration in the directory `config`; both paths are absolute.
/// nats-server reads the path of an included file from the directory of the file that includes it.
pub fn format_include(config: &Path, file: &Path) -> String {
    let up = config.components().filter(|part| matches!(part, Component::Normal(_)));
    let mut path: PathBuf = up.map(|_| Component::ParentDir).collect();
    path.extend(file.components().filter(|part| matches!(part, Component::Normal(_))));
    format!("include {}\n", quoted(&path.to_string_lossy()))
}

/// The wildcard address of the family that the fleet uses.
fn any_address(host: &Host) -> &'static str {
    if host.as_str().contains(':') { "[::]" } else { "0.0.0.0" }
}

/// The text of a server's `host.conf`.
pub fn format_host_config(host: &Host, fleet: &[Host], files: &ServerFiles<'_>) -> String {
    let (any, reached_at) = (any_address(host), host.in_url());
    let cluster = if fleet.len() > 1 { format_cluster(host, fleet, files) } else { String::new() };
    format!(
        "# Written by `berth access`, which replaces it. It is for this host only: {host}\n\
         # Your own settings belong in the file that includes this one.\n\n\
         # Streams remember their servers by these names.\n\
         server_name: {}\n\n\
         listen: \"{any}:{CLIENT_PORT}\"\n\
         # The certificate is for this name: clients must not be told another address.\n\
         client_advertise: \"{reached_at}:{CLIENT_PORT}\"\n\n\
         # Who may connect; `berth access install` replaces it. Then: nats-server --signal reload\n\
         include \"accounts.conf\"\n\n{}{cluster}",
        quoted(host.as_str()),
        files.format_client_tls()
    )
}

fn format_cluster(host: &Host, fleet: &[Host], files: &ServerFiles<'_>) -> String {
    let (any, reached_at) = (any_address(host), host.in_url());
    let route = |host: &Host| format!("    \"nats://{}:{ROUTE_PORT}\"\n", host.in_url());
    let routes: String = fleet.iter().map(route).collect();
    format!(
        "\ncluster {{\n  name: {CLUSTER}\n  listen: \"{any}:{ROUTE_PORT}\"\n  \
         advertise: \"{reached_at}:{ROUTE_PORT}\"\n\n  \
         # All of them, this one included: it notices itself.\n  routes: [\n{routes}  ]\n\n  \
         # Only servers with a certificate of the fleet's authority are let in.\n{}}}\n",
        files.format_route_tls()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_has_no_cluster_and_three_have_all_routes() {
        let hosts = ["a.example", "fd00::2", "10.0.0.3"].map(|host| Host::parse(host).unwrap());
        let files = ServerFiles(Path::new("/etc/berth/nats"));
        let alone = format_host_config(&hosts[0], &hosts[..1], &files);
        assert!(!alone.contains("cluster"), "{alone}");
        assert!(alone.contains("client_advertise: \"a.example:4222\""), "{alone}");
        assert!(alone.contains("key_file: \"/etc/berth/nats/server.key\""), "{alone}");
        let second = format_host_config(&hosts[1], &hosts, &files);
        for line in [
            "server_name: \"fd00::2\"",
            "listen: \"[::]:4222\"",
            "advertise: \"[fd00::2]:6222\"",
            "\"nats://a.example:6222\"",
            "\"nats://[fd00::2]:6222\"",
            "\"nats://10.0.0.3:6222\"",
            "verify: true",
        ] {
            assert!(second.contains(line), "{line} is not in\n{second}");
        }
    }

    #[test]
    fn paths_are_quoted() {
        let text = ServerFiles(Path::new("/a \"b\"\\c")).format_client_tls();
        assert!(text.contains(r#"cert_file: "/a \"b\"\\c/server.pem""#), "{text}");
    }
}
