//! The upgrade from the last release: no record is written that a present replica cannot read.

use std::time::Duration;

use berth_bus::Call;
use berth_client::{Client, Retry};
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::message::{alloc, volume};
use berth_contract::problem::Problem;
use berth_contract::record::SCHEMA;
use berth_contract::verb::{self, Verb};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{AllocId, Namespace, NodeId, OwnerId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, System, Version};
use berth_service::clock;
use serde_json::{Value, json};

/// Deadline of each step.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests about one volume: so many that each replica gets some of them.
const REQUESTS: usize = 20;

/// Requests that need a newer schema, with their subjects.
fn newer_requests() -> [(String, Value); 3] {
    let namespace = Namespace::default();
    [
        (
            verb::VolumeCreate::subject(&namespace),
            json!({"id": "made", "plugin": "dev.berth", "size": "1MiB",
                "capability": [{"access": "single-node-writer"}]}),
        ),
        (verb::VolumeExpand::subject(&namespace), json!({"id": "data", "size": "4MiB"})),
        (
            verb::SnapshotCreate::subject(&namespace),
            json!({"volumes": ["data"], "snapshot": "monday"}),
        ),
    ]
}

/// Retries until the level refuses the request for this reason. Earlier refusals may say that the
/// plugin is not reported yet, or that the replicas are still being checked.
async fn await_level_refusal(
    system: &System,
    subject: &str,
    request: &Value,
    reason: &str,
) -> Problem {
    wait::until("the level refuses the request", PATIENCE, async || {
        match system.ask::<Value>(subject, request).await {
            Err(problem)
                if problem.code == Code::LevelTooLow && problem.message.contains(reason) =>
            {
                Ok(problem)
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Checks that no record of the volumes has a schema that the last release cannot read.
async fn check_nothing_newer_is_written(system: &System) {
    let volumes = system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
    for entry in volumes.list(">").await.unwrap().entries {
        let value: Value = serde_json::from_slice(&entry.value.unwrap()).unwrap();
        assert_eq!(value["schema"], SCHEMA, "{}: {value}", entry.key);
    }
}

/// Sends a request with the retries of a usual client.
async fn send<V: Verb<To = Namespace>>(system: &System, request: &V::Request) -> V::Reply {
    let call = Call::within(clock::begin_trace(), PATIENCE);
    let is_retryable = |failed: &berth_client::FailedTry<'_>| failed.problem.retryable;
    let client = Client::new(system.bus.clone());
    let namespace = Namespace::default();
    client.persist::<V>(&namespace, request, &call, Retry::USUAL, is_retryable).await.unwrap()
}

/// Checks that each replica answers requests about the volume.
async fn check_volume_answers(system: &System, id: &str) {
    for _ in 0..REQUESTS {
        let body = volume::VolumeQuery::current(VolumeId::new(id).unwrap());
        send::<verb::VolumeStatus>(system, &body).await;
    }
}

/// Checks that requests with a field that the older replica does not know succeed.
async fn check_owner_requests(system: &System) {
    let owner = Some(OwnerId::new("me").unwrap());
    for number in 0..REQUESTS {
        let id = AllocId::new(format!("owned{number}")).unwrap();
        let node = NodeId::new("n1").unwrap();
        let volumes = vec![VolumeRequest::for_volume(VolumeId::new("data").unwrap())];
        let register = alloc::RegisterAlloc::new(id.clone(), node, volumes);
        let register = alloc::RegisterAlloc { owner: owner.clone(), ..register };
        let registered = send::<verb::AllocRegister>(system, &register).await;
        assert_eq!(registered.owner, owner);
        let stop = alloc::StopAlloc::new(id, AllocState::Complete, None);
        let stop = alloc::StopAlloc { owner: owner.clone(), ..stop };
        send::<verb::AllocStop>(system, &stop).await;
    }
}

async fn berth(system: &System, args: &[&str]) -> String {
    let ran = system.berth_of(Version::This).args(args).output().await.unwrap();
    String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_newer_is_written_until_every_replica_can_read_it_and_nobody_holds_it() {
    if !or_skip("real mounts") || !Version::LastRelease.is_here_or_skip() {
        return;
    }
    let driver = |node| vec!["--topology".to_owned(), format!("host=h{}", node + 1)];
    let options =
        Options { version: Version::LastRelease, replicas: 2, driver, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    let last_part = Part::SecondClaim;
    let is_berth = |part: &Part| !matches!(part, Part::Nats | Part::Driver(_));
    for part in Part::all(options).filter(is_berth).filter(|part| *part != last_part) {
        system.install(part, Version::This).await;
    }
    system.healthy().await;

    for (subject, request) in newer_requests() {
        let problem = await_level_refusal(&system, &subject, &request, "berth-claim claim/").await;
        assert!(problem.retryable, "{problem}");
        assert!(problem.next.contains("upgrade the replica"), "{problem:?}");
    }
    check_nothing_newer_is_written(&system).await;
    check_volume_answers(&system, "data").await;
    check_owner_requests(&system).await;
    let report = berth(&system, &["doctor"]).await;
    assert!(report.contains("keeps the level of records at 1"), "{report}");

    // The operator may still want to go back.
    assert!(berth(&system, &["level", "hold"]).await.contains("level 1 of 2, held by"));
    system.install(last_part, Version::This).await;
    system.healthy().await;
    for (subject, request) in newer_requests() {
        let problem = await_level_refusal(&system, &subject, &request, " holds it ").await;
        assert!(!problem.retryable && problem.next.contains("level release"), "{problem:?}");
    }
    // A volume that one node alone has would need the newer schema, for its home.
    system.provision("placed");
    let placed = json!({"id": "placed", "plugin": PLUGIN, "topology": [{"host": "h1"}],
        "capability": [{"access": "single-node-writer"}]});
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &placed).await.unwrap();
    check_nothing_newer_is_written(&system).await;
    let report = berth(&system, &["doctor"]).await;
    assert!(report.contains("held at 1, and every replica reads schema 2"), "{report}");

    // Released, the level rises by itself.
    assert!(berth(&system, &["level", "release"]).await.contains("level 1 of 2"));
    system.created("made", json!({"size": "1MiB"})).await;
    system.expand("data", json!({"size": "4MiB"})).await.unwrap();

    // An older replica that starts now cannot read the new records. Callers get the answer of the
    // newer one.
    system.install(last_part, Version::LastRelease).await;
    system.healthy().await;
    check_volume_answers(&system, "made").await;
    let report = berth(&system, &["doctor"]).await;
    assert!(report.contains("cannot read records of schema 2"), "{report}");
    system.judge();
}
