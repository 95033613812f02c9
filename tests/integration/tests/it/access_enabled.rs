//! Access control that is switched on under a running fleet.

use std::time::Duration;

use berth_access::LocalFleet;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};

const PATIENCE: Duration = Duration::from_secs(30);

/// Every process logs why the bus refuses it, and continues once the bus accepts it. Mounts stay,
/// and the claim of an ended alloc is released.
#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_asks_for_identities_from_now_on_is_named_by_every_process() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, plain: true, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("web", 0, "data").await;
    let kept_file = std::path::Path::new(&mounted.path).join("kept");
    std::fs::write(&kept_file, "kept").unwrap();

    let fleet = LocalFleet::create(&system.dir().join("access"), &["berth"]).unwrap();
    let file = system.nats_dir().join("nats.conf");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.clone() + &fleet.server_config("berth").unwrap()).unwrap();
    system.servers()[0].restart().await;
    for part in Part::all(options).filter(|part| !matches!(part, Part::Nats | Part::Driver(_))) {
        wait::until(&format!("{part:?} logs the reason"), PATIENCE, async || {
            let log = system.daemon(part).log();
            if log.contains("invalid peer certificate: UnknownIssuer") { Ok(()) } else { Err(log) }
        })
        .await;
    }
    let ran = system.berth().args(["--timeout", "5s", "volume", "list"]).output().await.unwrap();
    let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
    let is_named = printed.contains("give the file of the authority");
    assert!(!ran.status.success() && is_named, "{printed}");
    assert_eq!(std::fs::read_to_string(&kept_file).unwrap(), "kept");

    std::fs::write(&file, config).unwrap();
    system.servers()[0].restart().await;
    system.healthy().await;
    assert_eq!(std::fs::read_to_string(&kept_file).unwrap(), "kept");
    system.stop("web").await;
    system.freed("data").await;
    system.judge();
}
