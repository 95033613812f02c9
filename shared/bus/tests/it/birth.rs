//! A deleted bucket of Berth is never made again before an operator accepts its loss.

use berth_bus::{Bus, Config, OpenError};
use berth_contract::bucket::{ALL, ALLOCS, BUCKETS, VOLUMES};
use berth_harness::nats::Server;
use futures_util::future::join_all;

use crate::support::{config, connect, listed, one, plain, set};

async fn delete(server: &Server, bucket: &str) {
    plain(&server.url()).await.delete_stream(format!("KV_{bucket}")).await.unwrap();
}

async fn open_all(bus: &Bus) {
    for spec in &ALL {
        bus.bucket(spec, 1).await.unwrap();
    }
}

/// The reason why the bucket is not opened; asserts that it is not made either.
async fn refused(server: &Server, bus: &Bus) -> String {
    let error = bus.bucket(&VOLUMES, 1).await.unwrap_err();
    assert!(matches!(error, OpenError::Lost(_)), "{error}");
    let error = error.to_string();
    for part in ["BERTH0011", VOLUMES.name, "berth bus restore", "begin-anew"] {
        assert!(error.contains(part), "{error} does not say {part}");
    }
    let stream = plain(&server.url()).await.get_stream("KV_berth-volumes").await;
    assert!(stream.is_err_and(|error| error.to_string().contains("not found")), "it was made");
    error
}

#[tokio::test]
async fn a_deleted_bucket_is_made_again_only_when_an_operator_accepts_its_loss() {
    let (server, bus) = one().await;
    open_all(&bus).await;
    let volumes = bus.bucket(&VOLUMES, 1).await.unwrap();
    set(&volumes, "default.v.spec", "1").await;
    delete(&server, VOLUMES.name).await;
    for _ in 0..2 {
        let bus = connect(&server.url()).await;
        assert!(refused(&server, &bus).await.contains("deleted"));
        assert!(bus.bucket(&ALLOCS, 1).await.is_ok(), "the others can be opened");
    }
    // The command of docs/backup.md.
    let record = plain(&server.url()).await.get_key_value(BUCKETS.name).await.unwrap();
    record.put(VOLUMES.name, "begin-anew".into()).await.unwrap();
    let opened = bus.bucket(&VOLUMES, 1).await.unwrap();
    assert!(listed(&opened, ">").await.0.is_empty());
    delete(&server, VOLUMES.name).await;
    refused(&server, &bus).await;
}

#[tokio::test]
async fn an_empty_bucket_in_place_of_a_deleted_one_is_refused() {
    let (server, bus) = one().await;
    open_all(&bus).await;
    delete(&server, VOLUMES.name).await;
    let plain = plain(&server.url()).await;
    let by_hand = async_nats::jetstream::kv::Config {
        bucket: VOLUMES.name.to_owned(),
        ..async_nats::jetstream::kv::Config::default()
    };
    plain.create_key_value(by_hand).await.unwrap();
    let error = bus.bucket(&VOLUMES, 1).await.unwrap_err();
    assert!(matches!(error, OpenError::Lost(_)), "{error}");
    assert!(error.to_string().contains("empty"), "{error}");
}

/// An installation that is older than the record: other buckets show that one is missing.
#[tokio::test]
async fn buckets_of_before_the_record_are_put_on_it() {
    let (server, bus) = one().await;
    open_all(&bus).await;
    let allocs = bus.bucket(&ALLOCS, 1).await.unwrap();
    set(&allocs, "default.a", "1").await;
    delete(&server, BUCKETS.name).await;
    // No bucket is missing.
    open_all(&bus).await;
    delete(&server, BUCKETS.name).await;
    delete(&server, VOLUMES.name).await;
    // Another bucket is opened first, which puts all buckets on record.
    assert!(bus.bucket(&ALLOCS, 1).await.is_ok());
    assert!(refused(&server, &bus).await.contains("earlier"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_at_once_in_any_order_make_all_buckets() {
    let server = Server::start().await;
    let started = (0..12).map(|at| {
        let url = server.url();
        async move {
            let bus = Bus::connect(Config { ..config(&url) }).await.unwrap();
            for step in 0..ALL.len() {
                let spec = &ALL[(at + step) % ALL.len()];
                let bucket = bus.bucket(spec, 1).await.unwrap();
                assert_eq!(bucket.drift(), []);
                let key = format!("process{at}");
                set(&bucket, &key, "1").await;
            }
        }
    });
    join_all(started).await;
    open_all(&connect(&server.url()).await).await;
}
