//! `berth bus copies` on one server, and on three.

use berth_bus::{Bus, Config};
use berth_contract::bucket::{LEASES, VOLUMES};
use berth_harness::nats::NatsServers;
use serde_json::Value;

use crate::berth::{Ran, berth};

fn ask(servers: &NatsServers, args: &[&str]) -> Ran {
    berth(&[&["--nats", &servers.url(), "bus", "copies"], args].concat())
}

#[tokio::test]
async fn one_server_has_what_it_can_have() {
    let servers = NatsServers::start(1).await;
    let ran = ask(&servers, &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("no bucket or stream of Berth exists yet"), "{ran:?}");
    let bus = Bus::connect(Config::new([servers.url()], "test/host/1").insecure()).await.unwrap();
    bus.bucket(&VOLUMES, 1).await.unwrap();
    for args in [&[][..], &["--raise"]] {
        let ran = ask(&servers, args);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.out.contains("KV_berth-volumes") && ran.out.contains("only server"), "{ran:?}");
    }
    let ran = ask(&servers, &["--raise", "--to", "3", "--timeout", "20s"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("replicas > 1 not supported in non-clustered mode"), "{ran:?}");
    for args in [&["--to", "3"][..], &["--raise", "--to", "2"]] {
        assert_eq!(ask(&servers, args).code, 2, "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_hold_three_and_the_exit_code_says_when_they_do_not() {
    let servers = NatsServers::start(3).await;
    let bus = Bus::connect(Config::new([servers.url()], "test/host/1").insecure()).await.unwrap();
    // Streams with the settings of a single server.
    for spec in [&VOLUMES, &LEASES] {
        bus.bucket(spec, 1).await.unwrap();
    }
    let short = ask(&servers, &["--json"]);
    assert_eq!(short.code, 1, "{short:?}");
    let report: Value = serde_json::from_str(&short.out).unwrap();
    assert_eq!(report["servers"].as_array().unwrap().len(), 3, "{report}");
    for stream in report["streams"].as_array().unwrap() {
        assert_eq!((stream["copies"].as_u64(), stream["wanted"].as_u64()), (Some(1), Some(3)));
    }
    assert!(short.err.contains("berth bus copies --raise"), "{short:?}");

    let raised = ask(&servers, &["--raise", "--timeout", "90s"]);
    assert_eq!(raised.code, 0, "{raised:?}");
    assert!(raised.err.contains("3 of 3 have all their copies"), "{raised:?}");
    let listed = ask(&servers, &[]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert_eq!(listed.out.matches("3/3").count(), 3, "{listed:?}");
    assert!(listed.out.contains("servers of cluster berth: n1, n2, n3"), "{listed:?}");
}
