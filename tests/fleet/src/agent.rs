//! One agent of the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;

use berth_access::{LocalFleet, Role};
use berth_bus::{Bus, Config, Credentials, EndpointSpec, Service, ServiceSpec, Tls};
use berth_contract::code::Code;
use berth_contract::decode::{Unknown, decode};
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::verb;
use berth_csi::Fingerprint;
use berth_csi::advertised::{
    ControllerCapabilities, NodeCapabilities, PluginServices, VolumeExpansion,
};
use berth_csi::fingerprint::NodeFingerprint;
use berth_domain::{NodeId, PluginId};
use berth_node_agent::agent::report::Reporter;
use berth_node_agent::agent::{CLAIMS_TIMEOUT, COMPARISON_INTERVAL};
use berth_node_agent::controllers::{self, ControllerHosting, CreationAnswers, HostedControllers};
use berth_node_agent::executor::VolumeExecutor;
use berth_node_agent::fleet::claimed::read_claimed_uses;
use berth_node_agent::fleet::events::EventPublisher;
use berth_node_agent::fleet::gate::Gate;
use berth_node_agent::fleet::hosting::HostingRights;
use berth_node_agent::fleet::lease::{Holder, LeaseTtl, NodeLease};
use berth_node_agent::fleet::secret::SealingKey;
use berth_node_agent::fleet::start_revision::StartRevision;
use berth_node_agent::fleet::unaccounted::UnaccountedMounts;
use berth_node_agent::host::Host;
use berth_node_agent::plugins::declaration::PluginSource;
use berth_node_agent::plugins::record::InstanceRecord;
use berth_node_agent::plugins::{InstanceView, Plugin, PluginInstance, Plugins};
use berth_service::clock;
use berth_service::fault_report::FaultReport;
use berth_service::shutdown::{Shutdown, Trigger};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::Fatal;

/// The plugin of every agent.
const PLUGIN: &str = "fleet.example";
/// How many agents, the first ones, also have the plugin's controller.
const CONTROLLERS: usize = 3;
/// Requests at once of one endpoint, as in the agent itself.
const MAX_IN_FLIGHT: u32 = 512;

/// The bus of the agents, and their identities.
#[derive(Debug)]
pub struct BusAccess {
    pub nats: String,
    pub fleet: LocalFleet,
    /// Whether each agent asks for its claims now and then, as an agent with mounts does.
    pub asks_for_claims: bool,
}

/// An agent that holds its node's lease and reports its plugin.
#[derive(Debug)]
pub struct Agent {
    plugin: Plugin,
    member: Arc<PluginInstance>,
    // While these live, the agent listens and reports.
    _service: Service,
    _trigger: Trigger,
}

impl BusAccess {
    /// Connects to the bus in this role.
    pub async fn connect(&self, role: &Role) -> Result<Bus, Fatal> {
        let name = format!("{}/{}", role.identity_name(None), std::process::id());
        Ok(Bus::connect(Config {
            actor: role.actor(),
            credentials: Credentials::CredsFile(self.fleet.creds(role)?),
            tls: Tls { ca_file: Some(self.fleet.ca()), ..Tls::default() },
            ..Config::new([&self.nats], &name)
        })
        .await?)
    }

    /// Starts the agent of this number, as `berth-node-agent` starts itself.
    pub async fn start(&self, number: usize) -> Result<Agent, Fatal> {
        let node = NodeId::new(format!("fleet-{number:04}"))?;
        let config = json!({
            "node": node.as_str(), "state_dir": "/var/lib/berth",
            "plugin": [{"id": PLUGIN, "socket": "/run/berth/fleet.example/csi.sock"}],
        });
        let config: berth_node_agent::Config = decode(config, Unknown::Fault)
            .map_err(|faults| format!("the agent's configuration: {faults:?}"))?;
        let configured = config.plugins.first().ok_or("no plugin is configured")?;

        let hosted = (number < CONTROLLERS).then(|| PluginId::new(PLUGIN)).transpose()?;
        let controllers = hosted.into_iter().collect();
        let bus = self.connect(&Role::Node { node: node.clone(), controllers }).await?;
        let host = Host::read(node.clone());
        let gate = Gate::default();
        let (trigger, shutdown) = Shutdown::new();
        let tenure = NodeLease {
            bus: bus.clone(),
            holder: Holder {
                node: node.clone(),
                agent: format!("{number:032x}"),
                hostname: host.attributes.get("hostname").cloned().unwrap_or_default(),
                boot_id: host.boot_id.clone(),
                pid: std::process::id(),
                since: clock::now(),
            },
            ttl: LeaseTtl::new(config.lease_ttl),
            gate: gate.clone(),
            volumes: watch::Sender::new(0),
        };
        let events = bus.events_by_request();
        let lease = tenure.acquire(&shutdown).await.ok_or("the lease was not acquired")?;
        let started_at = StartRevision::read(&bus, &node, &lease, &FaultReport::default()).await;
        let sealing = SealingKey::generate();

        let record =
            InstanceRecord::new(PluginSource::Configuration, configured.clone(), clock::now());
        let member = PluginInstance::new(record, None, clock::now());
        let plugins = Plugins::new(config.plugin_patience, None);
        let (plugin, _) = plugins.add_instance(Arc::clone(&member));
        plugin.set_instance_view(&member, healthy_view(&node, number < CONTROLLERS));
        let hosting = ControllerHosting {
            bus: bus.clone(),
            node: node.clone(),
            executor: VolumeExecutor::new(started_at),
            hosted: HostedControllers::default(),
            events: EventPublisher::new(events, node.clone()),
            sealing: sealing.clone(),
            answers: CreationAnswers::default(),
            drain: config.drain,
        };
        tokio::spawn(controllers::host(plugin.clone(), hosting, shutdown.clone()));
        let service = listen(&bus, &node).await?;
        if self.asks_for_claims {
            tokio::spawn(ask_for_claims(bus.clone(), node.clone()));
        }
        let interval = config.report_interval;
        let ttl = tenure.ttl.clone();
        let unaccounted = UnaccountedMounts::default();
        // These agents mount nothing.
        unaccounted.replace(Vec::new(), true);
        let journal = FaultReport::default();
        let hung = FaultReport::default();
        let rights = HostingRights::new(bus.clone(), node.clone());
        let reporter = Reporter {
            // Nothing is mounted, so there is nothing to compare.
            compared: tenure.volumes.subscribe(),
            bus,
            host,
            plugins,
            interval,
            ttl,
            gate,
            unaccounted,
            journal,
            hung,
            unseen: FaultReport::default(),
            sealing,
            rights,
        };
        tokio::spawn(reporter.run(shutdown.clone()));
        tokio::spawn(async move { tenure.keep(lease, &shutdown).await.map(drop) });
        Ok(Agent { plugin, member, _service: service, _trigger: trigger })
    }
}

impl Agent {
    /// Flips the health of the agent's plugin, with this description.
    pub fn change(&self, description: String) {
        let view = self.member.view();
        let (healthy, since) = (!view.healthy, clock::now());
        self.plugin
            .set_instance_view(&self.member, InstanceView { healthy, since, description, ..view });
    }
}

/// Asks for the claims of the node at the agent's interval. An agent without mounts does not ask.
async fn ask_for_claims(bus: Bus, node: NodeId) {
    loop {
        sleep(clock::jittered(COMPARISON_INTERVAL)).await;
        let listed = read_claimed_uses(&bus, &node, &BTreeSet::new(), CLAIMS_TIMEOUT).await;
        if let Err(problem) = listed {
            // A closed stderr is no reason to stop.
            let _ = writeln!(std::io::stderr(), "the claims of {node} were not listed: {problem}");
        }
    }
}

/// Listens at the subjects of an agent: subscriptions are part of a fleet's cost.
async fn listen(bus: &Bus, node: &NodeId) -> Result<Service, Fatal> {
    let metadata = [("node", node.as_str())];
    let spec = ServiceSpec::describe(NODE_AGENT, berth_version::current(), &metadata);
    let service = bus.service(spec).await?;
    for row in verb::ALL.iter().filter(|row| row.service == NODE_AGENT) {
        let spec = EndpointSpec::for_verb(row, row.subject_of_node(node), MAX_IN_FLIGHT);
        let refuse = |_| {
            let problem = Problem::new(Code::Internal, "this node is one of a simulated fleet");
            std::future::ready(Err::<Value, _>(problem))
        };
        service.endpoint(spec, refuse).await?;
    }
    Ok(service)
}

/// The view that an agent would have of a healthy plugin.
fn healthy_view(node: &NodeId, controller: bool) -> InstanceView {
    let capabilities =
        NodeCapabilities { stage_unstage_volume: true, ..NodeCapabilities::default() };
    let controller_capabilities =
        ControllerCapabilities { publish_unpublish_volume: true, ..Default::default() };
    let fingerprint = Fingerprint {
        name: PLUGIN.to_owned(),
        vendor_version: "1.4.2".to_owned(),
        services: PluginServices { controller_service: true, ..PluginServices::default() },
        expansion: VolumeExpansion::default(),
        group_snapshots: false,
        controller: controller.then_some(controller_capabilities),
        node: Some(NodeFingerprint {
            node_id: Some(format!("i-{node}")),
            max_volumes: Some(128),
            topology: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            capabilities,
        }),
    };
    InstanceView {
        healthy: true,
        description: format!("{PLUGIN} 1.4.2 is ready"),
        since: clock::now(),
        fingerprint: Some(fingerprint),
        process: None,
    }
}
