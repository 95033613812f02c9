//! Who the processes of a system are on its bus: each has an identity of its own, and the bus has
//! TLS.

use berth_access::{Grants, LocalFleet, Role};
use berth_bus::{Bus, Config, Credentials, Tls};
use berth_contract::actor::Actor;
use berth_domain::{Namespace, NodeId, PluginId};
use berth_harness::dirs::Dir;
use berth_harness::nats::Login;
use berth_harness::process::{Program, binary};
use tokio::process::Command;

use super::{Options, PLUGIN, System};
use crate::RECOVERY;

/// The server's name in its certificate.
const SERVER: &str = "berth";

/// The identities of a system. None where the test reads or changes what is said on the bus.
pub(super) struct Identities(Option<LocalFleet>);

impl Identities {
    pub(super) fn make(dir: &Dir, options: Options) -> Self {
        // A cable reads what passes.
        let is_plain = options.plain || options.cables;
        let make = || LocalFleet::create(&dir.join("access"), &[SERVER]);
        Self((!is_plain).then(|| make().expect("identities can be made")))
    }

    /// How one in this role gets in. None where all may.
    pub(super) fn login(&self, role: &Role) -> Option<Login> {
        let fleet = self.0.as_ref()?;
        let creds_file = fleet.creds(role).expect("the identity can be made");
        Some(Login { creds_file, ca_file: fleet.ca() })
    }

    /// What the configuration of each server says of them.
    pub(super) fn server_config(&self) -> String {
        let said = self.0.as_ref().map(|fleet| fleet.server_config(SERVER));
        said.map_or_else(String::new, |said| said.expect("the configuration can be made"))
    }

    /// Gives a process of the system its identity.
    pub(super) fn identify(&self, program: Program, name: &str) -> Program {
        match self.login(&role(name)) {
            Some(login) => program.identified(&login),
            None => program,
        }
    }

    /// Connects to the bus in this role, in the name of this actor.
    pub(super) async fn connect(&self, url: String, role: &Role, actor: Actor) -> Bus {
        let config = Config { actor, ..Config::new([url], "test") };
        let config = match self.login(role) {
            Some(Login { creds_file, ca_file }) => Config {
                credentials: Credentials::CredsFile(creds_file),
                tls: Tls { ca_file: Some(ca_file), ..Tls::default() },
                ..config
            },
            None => config.insecure(),
        };
        Bus::connect(config).await.expect("the test reaches the bus")
    }
}

/// The role of a process by its name: `claim-0`, `agent-1`.
fn role(name: &str) -> Role {
    let (what, number) = name.rsplit_once('-').expect("a process has a number");
    let node = || NodeId::new(format!("n{number}")).expect("a node has an id");
    match what {
        "claim" => Role::Claim,
        "plugin-registry" => Role::PluginRegistry,
        "volumewatcher" => Role::Volumewatcher,
        "gc" => Role::Gc,
        "docker" => {
            // Tests of Docker use these.
            let namespaces = ["default", "prod"].map(|name| Namespace::new(name).expect("an id"));
            let namespaces = namespaces.into();
            Role::Docker { node: node(), namespaces }
        }
        _ => {
            let plugin = PluginId::new(PLUGIN).expect("the plugin has an id");
            Role::Node { node: node(), controllers: vec![plugin] }
        }
    }
}

/// An operator who may see and do everything by requests.
fn operator() -> Role {
    let mut grants =
        Grants::parse_namespaces(&["*=read,write,mount"]).expect("the grants are good");
    (grants.plugin_read, grants.node_read, grants.operator) = (true, true, true);
    Role::User { name: "operator".to_owned(), grants }
}

impl System {
    /// `berth`, for an operator of this system.
    pub fn berth(&self) -> Command {
        self.identify_operator(Command::new(binary("berth")))
    }

    /// What the operator's `berth` prints, on stdout and then on stderr.
    pub async fn berth_prints(&self, args: &[&str]) -> String {
        let mut command = self.berth();
        command.args(["--nats", &self.url()]).args(args).kill_on_drop(true);
        let output = tokio::time::timeout(RECOVERY, command.output()).await;
        let output = output.expect("berth ends").expect("berth runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    pub(super) fn identify_operator(&self, berth: Command) -> Command {
        self.identify_as(&operator(), berth)
    }

    /// Has `berth` use this role on this system's bus.
    pub fn identify_as(&self, role: &Role, mut berth: Command) -> Command {
        berth.env("BERTH_NATS_URL", self.url());
        match self.identities.login(role) {
            Some(login) => {
                berth.env("BERTH_CREDS", login.creds_file);
                berth.env("BERTH_TLSCA", login.ca_file)
            }
            None => berth.env("BERTH_INSECURE", "true"),
        };
        berth
    }

    /// The files with which one in this role gets in.
    ///
    /// # Panics
    /// On a bus that asks for none.
    pub fn login(&self, role: &Role) -> Login {
        self.identities.login(role).expect("the system has identities")
    }

    /// Another connection to the bus: in this role, in the name of this actor.
    pub async fn connect_as(&self, role: &Role, actor: Actor) -> Bus {
        self.identities.connect(self.url(), role, actor).await
    }
}
