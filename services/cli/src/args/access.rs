//! `berth access …`

use std::path::PathBuf;
use std::time::Duration;

use berth_contract::role::check_name;
use berth_domain::{Namespace, NodeId, PluginId, Timestamp};
use clap::{Args, Subcommand, ValueEnum};

use crate::span;

/// `berth access …`
#[derive(Debug, Args)]
pub struct Access {
    /// The directory of the fleet's keys
    #[arg(long, global = true, value_name = "DIR", env = "BERTH_ACCESS_DIR")]
    #[arg(default_value = "berth-access", hide_env_values = true)]
    pub dir: PathBuf,
    /// The command.
    #[command(subcommand)]
    pub command: AccessCommand,
}

/// What is done with the directory.
#[derive(Debug, Subcommand)]
pub enum AccessCommand {
    /// Make the keys of a new fleet, its services' identities and its servers' configuration
    ///
    /// Makes the operator, the system account and Berth's account, a TLS authority, an identity for
    /// each service, and for each server a directory with its configuration, certificate and key.
    /// Name each server as the fleet reaches it: by DNS name or address. One server, or three for a
    /// fleet that survives the loss of one.
    #[command(after_long_help = "EXAMPLES
    berth access init --servers bus.example
    berth access init --servers a.example,b.example,c.example --dir /root/berth-access")]
    Init(AccessInit),
    /// Make another identity for a service, such as one for each host
    ///
    /// `init` has made one identity for each service, which all its replicas may use. With
    /// identities of their own, one replica can be shut out without the others.
    #[command(after_long_help = "EXAMPLES
    berth access service claim --name host-a
    berth access service gc --name host-a --expires 90d")]
    Service(AccessService),
    /// Make the identity of a node's agent
    ///
    /// The agent may act for this node and no other. A controller decides about volumes of all
    /// nodes: to host one is a right of its own, given by --controllers.
    #[command(after_long_help = "EXAMPLES
    berth access node n1
    berth access node n1 --controllers ebs.csi.aws.com,nfs.csi.k8s.io --expires 90d
    berth access node n1 --controllers ebs.csi.aws.com --replace")]
    Node(AccessNode),
    /// Make the identity of a node's Docker volume plugin
    ///
    /// The plugin may see, create, claim and mount volumes of these namespaces, on this node and no
    /// other, and delete the volumes that it created.
    #[command(after_long_help = "EXAMPLES
    berth access docker n1
    berth access docker n1 --namespaces default,team-a --expires 90d")]
    Docker(AccessDocker),
    /// Make the identity of a person or program
    ///
    /// Each --grant gives capabilities in one namespace: list (volumes and allocs, one line each),
    /// read (see volumes, claims, allocs and events with all details), write (register, change and
    /// deregister volumes), mount (register and stop allocs, and mount volumes). Read contains
    /// list; write and mount contain read. The namespace '*' is a grant of its own: requests about
    /// all namespaces.
    #[command(after_long_help = "EXAMPLES
    berth access user alice --grant team-a=read,write,mount --grant team-b=read
    berth access user scheduler --grant '*=read,mount' --nodes --plugins
    berth access user oncall --grant '*=read' --nodes --plugins --operator --expires 30d")]
    User(AccessUser),
    /// Make the identity of an operator with all rights
    ///
    /// An admin may send every request, and read, change and delete streams and buckets: for
    /// repair, backup and restore. For daily work use a user with --operator.
    #[command(after_long_help = "EXAMPLES
    berth access admin root --expires 1d")]
    Admin(AccessOther),
    /// Make the identity of a reader of buckets and events
    ///
    /// A reader sends no request to a service and changes nothing.
    #[command(after_long_help = "EXAMPLES
    berth access inspect dashboard")]
    Inspect(AccessOther),
    /// List identities, servers and authorities, and when they end
    ///
    /// STATE is that of an identity's newest key: valid, expired or revoked.
    #[command(
        visible_alias = "ls",
        after_long_help = "EXAMPLES
    berth access list
    berth access list --json | jq -r '.identities[] | select(.state == \"expired\") | .name'"
    )]
    List,
    /// Show in words what an identity may do, until when, and whether it was revoked
    ///
    /// NAME is the full name, such as node/n1, or the part after the slash where that is clear, or
    /// a public key as nats-server shows it in logs and lists of connections.
    #[command(after_long_help = "EXAMPLES
    berth access show node/n1
    berth access show alice
    berth access show UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4")]
    Show(Show),
    /// Give an identity a new key with the same rights
    ///
    /// The new file replaces the old one here. Servers accept the old key, too, until it is
    /// revoked: hand out the file, restart the program, then `berth access revoke NAME --replaced`.
    #[command(after_long_help = "EXAMPLES
    berth access rotate node/n1 --expires 90d
    berth access rotate claim")]
    Rotate(Rotate),
    /// Shut an identity out
    ///
    /// Writes the list of revoked keys for each server. The servers must load it: until then they
    /// accept the identity. With --replaced only the keys are revoked that newer ones have
    /// replaced: the last step of a rotation. A repetition writes the files again.
    ///
    /// NAME may be a public key that this directory does not know: of an identity that a later,
    /// lost state of it made. --all-before shuts out everything that was issued before a time, also
    /// the services and nodes: each needs a new identity then.
    #[command(after_long_help = "EXAMPLES
    berth access revoke node/n1
    berth access revoke alice --replaced
    berth access revoke UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4
    berth access revoke --all-before 2026-11-21T08:00:00Z")]
    Revoke(Revoke),
    /// Take over the revocations of servers, after a restore of this directory
    ///
    /// FILE is the accounts.conf of a host. A restored backup of the directory does not know whom
    /// later states of it shut out, so hosts refuse its files (`berth access install`). This takes
    /// over what they have.
    #[command(after_long_help = "EXAMPLES
    scp root@a.example:/etc/berth/nats/accounts.conf a.conf
    berth access adopt a.conf")]
    Adopt(Adopt),
    /// On a server's host: put its files in their place
    ///
    /// FROM is a copy of servers/HOST/. The files belong to the owner of TO. Refused if they do not
    /// come after those that are there: then the directory that made them was set back, and would
    /// let in again whom the server shuts out.
    #[command(after_long_help = "EXAMPLES
    berth access install a.example
    berth access install a.example /etc/berth/nats && systemctl reload nats-server")]
    Install(Install),
    /// Issue new certificates for servers, or a new authority
    ///
    /// Without a HOST all servers get new certificates and keys. A running server loads them by a
    /// reload, and keeps its connections.
    ///
    /// A new authority takes three steps. --authority makes it, and ca.pem then holds both: copy it
    /// to all programs and servers. Then `berth access certify` issues certificates of the new one.
    /// When all servers have loaded them, --retire removes the old authority from ca.pem.
    #[command(after_long_help = "EXAMPLES
    berth access certify
    berth access certify a.example --also 10.0.0.1
    berth access certify --add d.example,e.example
    berth access certify --authority
    berth access certify --retire")]
    Certify(Certify),
}

/// `berth access init`
#[derive(Debug, Args)]
pub struct AccessInit {
    /// The servers, as the fleet reaches them: one, three or another odd number
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required = true)]
    pub servers: Vec<String>,
    /// Where each host will have its files
    #[arg(long, value_name = "DIR", default_value = "/etc/berth/nats")]
    pub installed: PathBuf,
}

/// A service that has identities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServiceKind {
    /// `berth-claim`
    Claim,
    /// `berth-plugin-registry`
    PluginRegistry,
    /// `berth-volumewatcher`
    Volumewatcher,
    /// `berth-gc`
    Gc,
}

/// Options of every identity.
#[derive(Debug, Args)]
pub struct KeyOptions {
    /// How long it is valid: 90d, 12h [default: for ever]
    #[arg(long, value_name = "SPAN", value_parser = span::parse_validity)]
    pub expires: Option<Duration>,
    /// If the identity exists, give it a new key with these rights; the old key works until revoked
    #[arg(long)]
    pub replace: bool,
}

/// `berth access service`
#[derive(Debug, Args)]
pub struct AccessService {
    /// The service
    pub service: ServiceKind,
    /// The name of this identity, where the service has several
    #[arg(long, value_name = "NAME", value_parser = check_name)]
    pub name: Option<String>,
    /// The key.
    #[command(flatten)]
    pub key: KeyOptions,
}

/// `berth access node`
#[derive(Debug, Args)]
pub struct AccessNode {
    /// The node, as `node` in its agent's configuration
    pub node: NodeId,
    /// The plugins whose controllers it may host
    #[arg(long, value_name = "PLUGIN,…", value_delimiter = ',')]
    pub controllers: Vec<PluginId>,
    /// The key.
    #[command(flatten)]
    pub key: KeyOptions,
}

/// `berth access docker`
#[derive(Debug, Args)]
pub struct AccessDocker {
    /// The node
    pub node: NodeId,
    /// The namespaces whose volumes containers of the node may use; '*' is for all
    #[arg(long, value_name = "NAMESPACE,…", value_delimiter = ',', default_value = "default")]
    pub namespaces: Vec<Namespace>,
    /// The key.
    #[command(flatten)]
    pub key: KeyOptions,
}

/// `berth access user`
#[derive(Debug, Args)]
pub struct AccessUser {
    /// The name
    #[arg(value_parser = check_name)]
    pub name: String,
    /// Capabilities in a namespace: team-a=read,write,mount
    #[arg(long = "grant", value_name = "NAMESPACE=CAPABILITY,…")]
    pub grants: Vec<String>,
    /// Declare nodes gone, detach volumes, collect garbage, stop plugins
    #[arg(long)]
    pub operator: bool,
    /// See plugins
    #[arg(long)]
    pub plugins: bool,
    /// See nodes
    #[arg(long)]
    pub nodes: bool,
    /// The key.
    #[command(flatten)]
    pub key: KeyOptions,
}

/// `berth access admin`, `berth access inspect`
#[derive(Debug, Args)]
pub struct AccessOther {
    /// The name
    #[arg(value_parser = check_name)]
    pub name: String,
    /// The key.
    #[command(flatten)]
    pub key: KeyOptions,
}

/// `berth access show`
#[derive(Debug, Args)]
pub struct Show {
    /// The identity
    pub name: String,
}

/// `berth access rotate`
#[derive(Debug, Args)]
pub struct Rotate {
    /// The identity
    pub name: String,
    /// How long the new key is valid: 90d, 12h [default: for ever]
    #[arg(long, value_name = "SPAN", value_parser = span::parse_validity)]
    pub expires: Option<Duration>,
}

/// `berth access revoke`
#[derive(Debug, Args)]
pub struct Revoke {
    /// The identity, or a public key
    #[arg(required_unless_present = "all_before")]
    pub name: Option<String>,
    /// Only its earlier keys
    #[arg(long)]
    pub replaced: bool,
    /// Everything that was issued before this time, such as 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = span::parse_time)]
    #[arg(conflicts_with_all = ["name", "replaced"])]
    pub all_before: Option<Timestamp>,
}

/// `berth access adopt`
#[derive(Debug, Args)]
pub struct Adopt {
    /// Files accounts.conf of servers
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}

/// `berth access install`
#[derive(Debug, Args)]
pub struct Install {
    /// The new files: a copy of servers/HOST/ of the directory
    pub from: PathBuf,
    /// The directory that the host's server reads
    #[arg(default_value = "/etc/berth/nats")]
    pub to: PathBuf,
}

/// `berth access certify`
#[derive(Debug, Args)]
pub struct Certify {
    /// The servers that get new certificates [default: all]
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
    /// Further names or addresses of these servers
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    pub also: Vec<String>,
    /// Add servers to the fleet; all servers get new routes
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["hosts", "also"])]
    pub add: Vec<String>,
    /// Make a new authority; the old one stays trusted
    #[arg(long, conflicts_with_all = ["hosts", "also", "add"])]
    pub authority: bool,
    /// End the trust in all authorities but the newest
    #[arg(long, conflicts_with_all = ["hosts", "also", "add", "authority"])]
    pub retire: bool,
}
