//! What is collected, and what is kept.

use std::time::Duration;

use berth_contract::{bucket, key};
use berth_domain::alloc::AllocState;
use berth_domain::volume::{Closing, State};
use berth_harness::wait;
use berth_service::clock;

use crate::site::{ON_DEMAND, PATIENCE, Pace, Site, alloc_id, namespace};

fn line<'a>(lines: &'a [String], part: &str) -> &'a str {
    let matching: Vec<&String> = lines.iter().filter(|line| line.contains(part)).collect();
    match matching.as_slice() {
        [one] => one,
        _ => panic!("{part:?} in {lines:#?}"),
    }
}

#[tokio::test]
async fn a_forced_sweep_releases_what_nobody_wants_and_nothing_else() {
    let mut site = Site::start(1, ON_DEMAND).await;
    site.start_claim().await;
    site.start_registry().await;
    for (alloc, state) in [
        ("ended", AllocState::Complete),
        ("live", AllocState::Live),
        ("queued", AllocState::Failed),
    ] {
        site.plant_alloc(alloc, state).await;
    }
    site.plant_volume("data", None).await;
    let epoch = site.plant_claim("data", "ended", State::Taken).await;
    site.plant_claim("data", "live", State::Taken).await;
    site.plant_claim("data", "queued", State::Waiting).await;
    site.plant_claim("data", "unheard of", State::Taken).await;
    let live = site.claim("data", "live").await;

    let sweep = site.force().await.unwrap();
    assert_eq!(sweep.collected.len(), 3, "{sweep:#?}");
    let ended = line(&sweep.collected, "of alloc ended");
    let name = format!("claim of alloc ended on volume team/a/data (epoch {epoch})");
    assert!(ended.starts_with(&format!("{name}: the alloc ended at 2")), "{ended}");
    assert!(ended.ends_with("(complete); it is unpublishing now"), "{ended}");
    let gone = line(&sweep.collected, "unheard of");
    assert!(gone.contains("the alloc does not exist; it is unpublishing now"), "{gone}");
    assert!(line(&sweep.collected, "queued").ends_with("(failed); it is gone"));

    let claim = site.claim("data", "ended").await.unwrap();
    assert_eq!((claim.state, claim.epoch), (State::Unpublishing, epoch));
    assert!(claim.reason.unwrap().starts_with("gc: the alloc ended at 2"));
    let claim = site.claim("data", "unheard of").await.unwrap();
    assert_eq!(claim.reason.as_deref(), Some("gc: the alloc does not exist"));
    assert_eq!(site.claim("data", "live").await, live);
    assert_eq!(site.claim("data", "queued").await, None);

    // A second sweep: the claims are being released, and are named until they are gone. No watcher
    // runs here.
    let second_sweep = site.force().await.unwrap();
    assert_eq!(second_sweep.collected, Vec::<String>::new());
    assert_eq!(second_sweep.kept.len(), 2, "{second_sweep:#?}");
    assert!(second_sweep.kept[0].contains("is berth-volumewatcher running?"), "{second_sweep:#?}");
}

#[tokio::test]
async fn what_the_watcher_missed_is_collected_after_the_grace_without_being_asked() {
    let pace = Pace { interval_ms: 200, grace_ms: 1_000, ..ON_DEMAND };
    let mut site = Site::start(2, pace).await;
    site.start_claim().await;
    site.plant_volume("data", None).await;
    let planted = clock::now();
    // The claim comes before its alloc: a claim without an alloc is overdue at once.
    site.plant_alloc("a", AllocState::Stopped).await;
    site.plant_claim("data", "a", State::Taken).await;
    let claim = wait::until("the claim is released", PATIENCE, async || {
        let claim = site.claim("data", "a").await.unwrap();
        if claim.state == State::Unpublishing { Ok(claim) } else { Err(claim.state) }
    })
    .await;
    assert!(claim.since.since(planted) >= Duration::from_secs(1), "{claim:?}");
}

#[tokio::test]
async fn one_that_fails_stops_no_other_and_is_found_again() {
    let mut site = Site::start(1, ON_DEMAND).await;
    for id in ["v1", "v2"] {
        site.plant_volume(id, None).await;
        site.plant_claim(id, "a", State::Taken).await;
    }
    site.plant_claim("v3", "newer", State::Taken).await;
    let newer = br#"{"state":"dreaming","schema":7}"#.to_vec();
    site.plant(&bucket::ALLOCS, &key::alloc(&namespace(), &alloc_id("newer")), newer).await;

    // No claim service runs, and no registry.
    let sweep = site.force().await.unwrap();
    assert_eq!(sweep.collected, Vec::<String>::new());
    for kind in ["claims", "allocs", "nodes"] {
        let kept = line(&sweep.kept, &format!("{kind}: not looked at now"));
        assert!(kept.contains("no service answers"), "{kept}");
    }

    site.start_claim().await;
    site.start_registry().await;
    let sweep = site.force().await.unwrap();
    assert_eq!(sweep.collected.len(), 2, "{sweep:#?}");
    // An alloc that cannot be read may be live.
    let [record] = sweep.kept.as_slice() else { panic!("{sweep:#?}") };
    assert!(record.contains("the record team/a.newer cannot be read here"), "{record}");
    assert_eq!(site.claim("v3", "newer").await.unwrap().state, State::Taken);
}

#[tokio::test]
async fn a_closing_volume_goes_once_its_claims_are_gone() {
    let mut site = Site::start(1, ON_DEMAND).await;
    site.start_claim().await;
    let closing = || Some(Closing { since: clock::now(), reason: "no longer needed".to_owned() });
    site.plant_volume("empty", closing()).await;
    site.plant_volume("held", closing()).await;
    site.plant_claim("held", "a", State::Unpublishing).await;
    site.plant_volume("stays", None).await;
    let sweep = site.force().await.unwrap();
    let [line] = sweep.collected.as_slice() else { panic!("{sweep:#?}") };
    assert!(line.starts_with("volume team/a/empty: closing since 2"), "{line}");
    for (id, stands) in [("empty", false), ("held", true), ("stays", true)] {
        assert_eq!(site.volume_stands(id).await, stands, "{id}");
    }
}
