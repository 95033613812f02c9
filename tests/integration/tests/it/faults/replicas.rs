//! One of two claim services stands still before a write, and goes on when its caller has given up
//! and had the other one write something else.

use std::pin::pin;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::header;
use berth_contract::subject::Namespaced;
use berth_domain::Namespace;
use berth_harness::nats::raw;
use berth_harness::proxy::{Point, Side};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, System};
use berth_service::clock;
use serde_json::{Value, json};

use super::options;

/// Whoever was not answered in time asked for something else, and was answered: nothing of the
/// first asking is written over that when its replica wakes up.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_worked_in_after_its_deadline_overwrites_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..options() }).await;
    system.provision("data");
    let subject = Namespaced::VolumeRegister.subject(&Namespace::default());
    let named = |name| {
        let capability = json!([{"access": "single-node-writer"}]);
        json!({"id": "data", "name": name, "plugin": PLUGIN, "capability": capability})
    };
    system.persist::<Value>(&subject, &named("first")).await.unwrap();

    let subjects = vec!["$KV.berth-volumes.default.data.spec".to_owned()];
    system.wire.arm(Point { subjects, at: 0, side: Side::Before });
    let deadline = clock::now().after(Duration::from_secs(2));
    let (body, until) = (named("late").to_string(), deadline.unix_ms().to_string());
    let headers = [(header::DEADLINE, until.as_str())];
    let late = raw::ask(&system.servers()[0], &subject, &headers, body.as_bytes());
    let mut late = pin!(late);
    let passed = tokio::select! {
        answer = &mut late => panic!("answered without a write: {answer}"),
        passed = system.wire.tripped() => passed,
    };
    let sleeper = system.part_of(&passed.cable);
    system.daemon(sleeper).pause();
    wait::until("its caller has given up", Duration::from_secs(10), || async {
        if clock::now() > deadline { Ok(()) } else { Err("there is time left") }
    })
    .await;
    system.persist::<Value>(&subject, &named("newer")).await.unwrap();
    for cable in system.cables(sleeper) {
        cable.heal();
    }
    system.daemon(sleeper).resume();

    let answer = late.await;
    assert_eq!(answer["error"]["code"], Code::Late.as_str(), "{answer}");
    assert_eq!(system.volume_status("data").await.unwrap().name, "newer");
}
