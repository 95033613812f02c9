//! The description and metadata of a stream after an upgrade.

use berth_bus::{Bus, Config};
use berth_contract::actor::Actor;
use berth_contract::bucket::{LEASES, SETTINGS};
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY, ServiceName};
use berth_harness::nats::Server;

use crate::support::{config, plain};

async fn connect_as(server: &Server, service: ServiceName) -> Bus {
    let actor = Actor::service(service);
    Bus::connect(Config { actor, ..config(&server.url()) }).await.unwrap()
}

async fn words(server: &Server) -> async_nats::jetstream::stream::Config {
    let stream = plain(&server.url()).await.get_stream("KV_berth-leases").await.unwrap();
    stream.cached_info().config.clone()
}

#[tokio::test]
async fn the_owner_of_a_stream_corrects_its_words_and_nothing_else() {
    let server = Server::start().await;
    let (registry, claim) =
        (connect_as(&server, PLUGIN_REGISTRY).await, connect_as(&server, CLAIM).await);
    registry.bucket(&LEASES, 1).await.unwrap();
    let made = words(&server).await;
    // The stream as an older version made it, with a bound of an operator.
    let mut older = made.clone();
    older.description = Some("Leases of nodes".to_owned());
    older.metadata.insert("berth.writer".to_owned(), "plugin-registry".to_owned());
    older.metadata.remove("berth.settings");
    older.max_bytes = 1 << 20;
    let context = plain(&server.url()).await;
    context.update_stream(&older).await.unwrap();

    let fields = |drift: &[berth_bus::Drift]| -> Vec<String> {
        drift.iter().map(|setting| setting.field.clone()).collect()
    };
    let opened = claim.bucket(&LEASES, 1).await.unwrap();
    let expected_drift =
        ["description", "max_bytes", "metadata.berth.settings", "metadata.berth.writer"];
    assert_eq!(fields(opened.drift()), expected_drift, "another service leaves it");
    let corrected = registry.bucket(&LEASES, 1).await.unwrap();
    assert_eq!(fields(corrected.drift()), ["max_bytes"]);
    let now = words(&server).await;
    assert_eq!(now.max_bytes, 1 << 20);
    assert_eq!((&now.description, &now.metadata), (&made.description, &made.metadata));

    // The words of a newer version stay, and are no drift.
    let mut newer = made.clone();
    newer.description = Some("Leases, and more".to_owned());
    newer.metadata.insert("berth.settings".to_owned(), (SETTINGS + 1).to_string());
    context.update_stream(&newer).await.unwrap();
    let opened = registry.bucket(&LEASES, 1).await.unwrap();
    assert_eq!(fields(opened.drift()), [""; 0]);
    assert_eq!(words(&server).await.description, newer.description);
}
