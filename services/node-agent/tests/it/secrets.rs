//! Secrets are sealed for the key that the agent made when it started; and it starts only when the
//! claim service has said at which revision.

use std::collections::BTreeMap;

use berth_contract::message::claim::Grant;
use berth_contract::message::secret::Secrets;
use berth_domain::SecretsId;
use berth_harness::{root, wait};

use crate::world::{Differences, PATIENCE, World, grant, lease};

async fn without_attach() -> World {
    World::start_with(Differences { driver: &["--no-attach"], ..Default::default() }).await
}

/// A9: the registry lost the key, so the agent reports it again at once and asks again.
#[tokio::test]
async fn secrets_are_asked_for_with_the_key_that_was_reported() {
    if !root::or_skip("mounts a volume") {
        return;
    }
    let world = without_attach().await;
    let secrets = Some(SecretsId::new("019bcb6ac57b-0123456789abcdef").unwrap());
    for (alloc, epoch) in [("a", 7), ("b", 8)] {
        let with_secrets =
            Grant { secrets: secrets.clone(), ..grant(alloc, epoch, &BTreeMap::new()) };
        world.answer_take(alloc, Ok(with_secrets));
    }
    let given = BTreeMap::from([("password".to_owned(), "hunter2".to_owned())]);
    world.claims.give_secrets(Secrets(given), 1);
    world.mount("a").await.unwrap();
    let asked_for = world.claims.asked_for();
    let [(first, before), (second, after)] = &asked_for[..] else { panic!("{asked_for:?}") };
    let key = world.last_report().unwrap().sealing_key;
    assert!(Some(first) == key.as_ref() && first == second, "{asked_for:?}");
    assert!(after > before, "the key was reported again: {asked_for:?}");

    // Another process has another key.
    let mut world = world;
    world.replace_agent(&[]);
    world.healthy_now().await;
    world.mount("b").await.unwrap();
    let later = world.last_report().unwrap().sealing_key;
    assert_ne!(later, key);
    assert_eq!(world.claims.asked_for().last().map(|(key, _)| key), later.as_ref());
    assert!(!world.agent.log().contains("hunter2"));
    for (alloc, epoch) in [("a", 7), ("b", 8)] {
        world.detach(alloc, epoch, 20 + epoch).await.unwrap();
    }
    world.judge();
}

/// Rule 4: without the revision the agent could not tell which calls are not for it.
#[tokio::test]
async fn an_agent_keeps_its_lease_and_waits_while_the_claim_service_is_away() {
    let world = without_attach().await;
    world.claims.set_away(true);
    world.agent.kill9();
    world.agent.restart();
    wait::until("the agent says what it waits for", PATIENCE, async || {
        let log = world.agent.log();
        let tries = log.matches("waits for the claim service").count();
        if tries >= 3 { Ok(()) } else { Err(log) }
    })
    .await;
    // Longer than the lease's TTL of 3 s: it is renewed.
    let since = lease(&world.bus).await.unwrap()["since"].clone();
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(4);
    wait::until("the lease outlives its TTL", PATIENCE, async || {
        let held = lease(&world.bus).await.ok_or("the lease ended")?;
        assert_eq!(held["since"], since);
        if tokio::time::Instant::now() >= until { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert!(world.status().await.is_err(), "it answers nothing yet");
    world.claims.set_away(false);
    world.healthy_now().await;
}
