//! Checks that the whole system works, with the requests of an ordinary client.

use std::time::Duration;

use berth_bus::{Bus, Call, Config, Credentials, RequestError, Tls};
use berth_contract::actor::Actor;
use berth_contract::message::alloc::ListAllocs;
use berth_contract::message::registry::ListPlugins;
use berth_contract::verb;
use berth_domain::{Namespace, PluginId};
use berth_service::clock;
use berth_service::process::chain;
use tokio::sync::watch;
use tokio::time::sleep;

use super::identities::{PERSON, Proof};
use super::layout::PLUGIN;

/// The address of the bus, and the credentials of the user.
#[derive(Debug)]
pub struct BusAddress {
    pub url: String,
    pub proof: Option<Proof>,
}

impl BusAddress {
    fn config(&self, name: &str) -> Config {
        let config = Config::new([self.url.as_str()], name);
        match &self.proof {
            None => config.insecure(),
            Some(Proof { creds, authority }) => Config {
                credentials: Credentials::CredsFile(creds.clone()),
                tls: Tls { ca_file: Some(authority.clone()), client: None },
                actor: Actor::user(PERSON),
                ..config
            },
        }
    }
}

/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until every node's driver and controller are healthy and claims are served. `missing`
/// receives the parts that are missing, as text.
pub async fn wait(address: &BusAddress, nodes: usize, missing: &watch::Sender<String>) {
    let bus = loop {
        let mut config = address.config("berth-dev");
        config.start_timeout = REQUEST_MAX;
        match Bus::connect(config).await {
            Ok(bus) => break bus,
            Err(error) => _ = missing.send_replace(chain(&error)),
        }
        sleep(PAUSE).await;
    };
    while let Err(not_yet) = check_services(&bus, nodes).await {
        missing.send_replace(not_yet);
        sleep(PAUSE).await;
    }
    bus.drain(REQUEST_MAX).await;
}

async fn check_services(bus: &Bus, nodes: usize) -> Result<(), String> {
    let call = || Call::within(clock::begin_trace(), REQUEST_MAX);
    let failed = |error: RequestError| chain(&error);
    let namespace = Namespace::default();
    let listed =
        bus.ask_service::<verb::AllocList>(&namespace, &ListAllocs::default(), &call()).await;
    listed.map_err(failed)?;
    // The plugin is read by its id, since a list contains no instances.
    let query = PluginId::new(PLUGIN).map(ListPlugins::by_id).map_err(|fault| fault.to_string())?;
    let answer =
        bus.ask_service::<verb::PluginStatus>(&(), &query, &call()).await.map_err(failed)?;
    let Some(plugin) = answer.plugins.first() else {
        return Err(format!("no agent has reported {PLUGIN}"));
    };
    let controllers = plugin.controllers.unwrap_or_default();
    if plugin.nodes.healthy == nodes && controllers.healthy == nodes {
        return Ok(());
    }
    let sick = plugin.instances.iter().find(|instance| !instance.healthy);
    let why = sick.map(|instance| {
        format!("; {} on {}: {}", instance.half, instance.node, instance.description)
    });
    Err(format!(
        "{PLUGIN} has {} healthy nodes and {} healthy controllers of {nodes}{}",
        plugin.nodes.healthy,
        controllers.healthy,
        why.unwrap_or_default()
    ))
}
