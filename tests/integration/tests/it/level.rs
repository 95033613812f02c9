//! The upgrade from the last release: nothing is written that a replica which is there cannot read.

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

/// A patience that only a broken run uses up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests about one volume. If a replica refused its share, one of these would meet it.
const REQUESTS: usize = 20;

/// What needs a newer schema: a subject, a request, and the key that it would write.
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

/// The refusal by the level for this reason. It may come after that of a plugin that is not
/// reported yet, and after the one that the replicas are still being looked at.
async fn refused(system: &System, subject: &str, request: &Value, reason: &str) -> Problem {
    wait::until("it is refused by the level", PATIENCE, async || {
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

/// No record of the volumes has a schema that the last release cannot read.
async fn nothing_newer_is_written(system: &System) {
    let volumes = system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
    for entry in volumes.list(">").await.unwrap().entries {
        let value: Value = serde_json::from_slice(&entry.value.unwrap()).unwrap();
        assert_eq!(value["schema"], SCHEMA, "{}: {value}", entry.key);
    }
}

/// Sends a request as programs do.
async fn send<V: Verb<To = Namespace>>(system: &System, request: &V::Request) -> V::Reply {
    let call = Call::within(clock::begin_trace(), PATIENCE);
    let again = |failed: &berth_client::FailedTry<'_>| failed.problem.retryable;
    let client = Client::new(system.bus.clone());
    let namespace = Namespace::default();
    client.persist::<V>(&namespace, request, &call, Retry::USUAL, again).await.unwrap()
}

/// Whichever replica a request reaches, the caller learns what the volume is.
async fn everybody_is_answered(system: &System, id: &str) {
    for _ in 0..REQUESTS {
        let body = volume::VolumeQuery::current(VolumeId::new(id).unwrap());
        send::<verb::VolumeStatus>(system, &body).await;
    }
}

/// Whichever replica a request reaches, a field that the older one does not know is taken.
async fn owners_are_taken(system: &System) {
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
    let last = Part::SecondClaim;
    let is_berth = |part: &Part| !matches!(part, Part::Nats | Part::Driver(_));
    for part in Part::all(options).filter(is_berth).filter(|part| *part != last) {
        system.install(part, Version::This).await;
    }
    system.healthy().await;

    for (subject, request) in newer_requests() {
        let problem = refused(&system, &subject, &request, "berth-claim claim/").await;
        assert!(problem.retryable, "{problem}");
        assert!(problem.next.contains("upgrade the replica"), "{problem:?}");
    }
    nothing_newer_is_written(&system).await;
    everybody_is_answered(&system, "data").await;
    owners_are_taken(&system).await;
    let told = berth(&system, &["doctor"]).await;
    assert!(told.contains("keeps the level of records at 1"), "{told}");

    // The operator may still want to go back.
    assert!(berth(&system, &["level", "hold"]).await.contains("level 1 of 2, held by"));
    system.install(last, Version::This).await;
    system.healthy().await;
    for (subject, request) in newer_requests() {
        let problem = refused(&system, &subject, &request, " holds it ").await;
        assert!(!problem.retryable && problem.next.contains("level release"), "{problem:?}");
    }
    // Where one node alone has it, its home would need the newer schema.
    system.provision("placed");
    let placed = json!({"id": "placed", "plugin": PLUGIN, "topology": [{"host": "h1"}],
        "capability": [{"access": "single-node-writer"}]});
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let _: Value = system.persist(&subject, &placed).await.unwrap();
    nothing_newer_is_written(&system).await;
    let told = berth(&system, &["doctor"]).await;
    assert!(told.contains("held at 1, and every replica reads schema 2"), "{told}");

    // Let go, it rises by itself.
    assert!(berth(&system, &["level", "release"]).await.contains("level 1 of 2"));
    system.created("made", json!({"size": "1MiB"})).await;
    system.expand("data", json!({"size": "4MiB"})).await.unwrap();

    // A replica that comes back after that does not stand in for the other.
    system.install(last, Version::LastRelease).await;
    system.healthy().await;
    everybody_is_answered(&system, "made").await;
    let told = berth(&system, &["doctor"]).await;
    assert!(told.contains("cannot read records of schema 2"), "{told}");
    system.judge();
}
