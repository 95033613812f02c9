//! Buckets are made once, with the expected settings, and drift is reported.

use std::time::Duration;

use berth_bus::{Bus, Config, OpenError};
use berth_contract::bucket::BucketSpec;
use berth_harness::nats::{NatsOptions, NatsServers, Server};
use futures_util::future::join_all;

use crate::support::{LEASES, STATE, config, connect, one, plain, put};

#[tokio::test]
async fn services_that_start_at_once_make_one_bucket() {
    let server = Server::start().await;
    let opened = join_all((0..12).map(|_| async {
        let bus = connect(&server.url()).await;
        bus.bucket(&STATE, 1).await.unwrap()
    }))
    .await;
    for bucket in &opened {
        assert_eq!(bucket.drift(), []);
    }
    for (count, bucket) in opened.iter().enumerate() {
        let key = format!("k{count}");
        assert!(bucket.commit(put(&key, "v", &key, 0)).await.is_ok());
    }
}

#[tokio::test]
async fn every_bucket_of_the_contract_opens_without_drift() {
    let (_server, bus) = one().await;
    for spec in &berth_contract::bucket::ALL {
        assert_eq!(bus.bucket(spec, 1).await.unwrap().drift(), [], "{}", spec.name);
        assert_eq!(bus.bucket(spec, 1).await.unwrap().drift(), [], "{} again", spec.name);
    }
}

#[tokio::test]
async fn more_watches_than_the_servers_default_fit() {
    let (server, bus) = one().await;
    bus.bucket(&STATE, 1).await.unwrap();
    let stream = plain(&server.url()).await.get_stream("KV_state").await.unwrap();
    assert!(stream.cached_info().config.max_consumers > 1000);
}

#[tokio::test]
async fn a_setting_that_another_tool_dropped_is_reported_and_left_alone() {
    let (server, bus) = one().await;
    bus.bucket(&STATE, 1).await.unwrap();
    // As `nats kv edit` does, which rebuilds the configuration from the settings that it knows.
    let plain = plain(&server.url()).await;
    let mut config = plain.get_stream("KV_state").await.unwrap().cached_info().config.clone();
    config.allow_atomic_publish = false;
    config.description = Some("mine now".to_owned());
    plain.update_stream(config).await.unwrap();

    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    let mut drift: Vec<String> = bucket.drift().iter().map(ToString::to_string).collect();
    drift.sort();
    assert_eq!(
        drift,
        [
            "allow_atomic is null, not true",
            "description is \"mine now\", not \"a bucket of a test\""
        ]
    );
    let config = plain.get_stream("KV_state").await.unwrap().cached_info().config.clone();
    assert!(!config.allow_atomic_publish, "it is reported, not changed");
}

#[tokio::test]
async fn two_versions_of_a_bucket_meet_and_the_first_stays() {
    let (_server, bus) = one().await;
    bus.bucket(&STATE, 1).await.unwrap();
    let newer = BucketSpec { history: 4, ..STATE };
    let bucket = bus.bucket(&newer, 1).await.unwrap();
    let drift: Vec<&str> = bucket.drift().iter().map(|drift| drift.field.as_str()).collect();
    assert_eq!(drift, ["max_msgs_per_subject"]);
}

#[tokio::test]
async fn more_copies_than_one_server_can_keep_are_refused_at_once() {
    let (_server, bus) = one().await;
    let error = bus.bucket(&LEASES, 3).await.unwrap_err();
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_server_without_jetstream_is_reported() {
    let more = NatsOptions { extra: "jetstream: disabled", ..NatsOptions::default() };
    let server = NatsServers::start_with(1, more).await;
    let config = Config { start_timeout: Duration::from_millis(600), ..config(&server.url()) };
    let bus = Bus::connect(config).await.unwrap();
    let error = bus.bucket(&STATE, 1).await.unwrap_err();
    assert!(error.to_string().contains("JetStream is on"), "{error}");
}
