//! What the agent shows the registry of its right to host controllers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use berth_bus::{Bus, Config, Listen, ServiceSpec, VerbRequest};
use berth_contract::actor::Actor;
use berth_contract::message::registry::Hosted;
use berth_contract::verb;
use berth_domain::PluginId;
use berth_harness::nats::NatsServers;
use berth_node_agent::fleet::hosting::HostingRights;

use crate::world::node;

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_right_is_shown_once_and_again_where_the_registry_lacks_it() {
    let nats = NatsServers::start(1).await;
    let config = Config { actor: Actor::Node(node()), ..Config::new([nats.url()], "agent") };
    let bus = Bus::connect(config.insecure()).await.unwrap();
    let rights = HostingRights::new(bus.clone(), node());
    let plugins: BTreeSet<_> = [PluginId::new("dev.berth").unwrap()].into();
    // No service has the verb yet, as with a registry of an earlier version.
    rights.show(plugins.clone(), PATIENCE).await.unwrap();

    let (name, version) = ("registry".to_owned(), "0.0.1".to_owned());
    let service = bus.service(ServiceSpec { name, version, ..ServiceSpec::default() }).await;
    let service = service.unwrap();
    let shown = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&shown);
    let host = move |_: VerbRequest<verb::NodeHost>| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(Hosted::default()) }
    };
    service.on(Listen::All, 8, host).await.unwrap();
    let show = async |plugins: &BTreeSet<PluginId>| {
        for _ in 0..3 {
            let rights = rights.show(plugins.clone(), PATIENCE).await.unwrap();
            assert!(rights.unheard.is_empty() && rights.denied.is_empty(), "{rights:?}");
        }
        shown.load(Ordering::Relaxed)
    };
    assert_eq!(show(&plugins).await, 1);
    rights.note_uncounted(&plugins);
    assert_eq!(show(&plugins).await, 2, "the registry has lost it");
    // A report without the controller takes the right from the registry's record.
    assert_eq!(show(&BTreeSet::new()).await, 2);
    assert_eq!(show(&plugins).await, 3);
}
