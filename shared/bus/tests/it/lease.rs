//! Leases end by themselves, pass on, and end for their holder before the server ends them.

use std::time::Duration;

use berth_bus::{Bucket, Bus, Config, Lease, LeaseError};
use berth_harness::nats::Server;
use berth_harness::proxy::Proxy;
use berth_harness::wait;
use bytes::Bytes;
use tokio::time::{Instant, timeout};

use crate::support::{
    LEASES, PATIENCE, STATE, config, connect, mirror, one_bucket, put, text, trace,
};

/// Renewed often enough that a busy machine may pause for a second.
const TTL: Duration = Duration::from_secs(2);

async fn acquire(
    bucket: &Bucket,
    holder: &'static str,
    ttl: Duration,
) -> Result<Lease, LeaseError> {
    bucket.acquire("leader", Bytes::from_static(holder.as_bytes()), ttl, trace()).await
}

/// Takes the lease as soon as it is free.
async fn succeed(bucket: &Bucket, holder: &'static str, ttl: Duration) -> Lease {
    wait::until("the lease is free", PATIENCE, async || acquire(bucket, holder, ttl).await).await
}

#[tokio::test]
async fn a_held_lease_is_refused_with_the_name_of_its_holder() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let lease = acquire(&bucket, "first", PATIENCE).await.unwrap();
    assert!(lease.is_held());
    let Err(LeaseError::Held { holder, .. }) = acquire(&bucket, "second", TTL).await else {
        panic!("it is held");
    };
    assert_eq!((text(&holder), holder.revision), ("first", lease.fence()));
    lease.release().await.unwrap();
    let second = acquire(&bucket, "second", TTL).await.unwrap();
    assert!(second.fence() > holder.revision, "fences rise");
}

#[tokio::test]
async fn a_lease_taken_over_an_expiry_marker_expires_too() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let mut fence = 0;
    // The first write is over nothing, the second over the first lease's expiry marker, the third
    // over the second's.
    for holder in ["first", "second", "third"] {
        let lease = succeed(&bucket, holder, TTL).await;
        assert!(lease.fence() > fence);
        fence = lease.fence();
        wait::until("it expires", PATIENCE, async || match bucket.get("leader").await.unwrap() {
            Some(entry) if entry.value.is_some() => Err(text(&entry).to_owned()),
            _ => Ok(()),
        })
        .await;
        assert!(!lease.is_held(), "its holder counted itself out before");
    }
}

#[tokio::test]
async fn a_lease_taken_over_a_release_marker_expires_too() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    acquire(&bucket, "first", TTL).await.unwrap().release().await.unwrap();
    acquire(&bucket, "second", TTL).await.unwrap();
    succeed(&bucket, "third", TTL).await;
}

#[tokio::test]
async fn a_renewed_lease_outlives_its_ttl_and_then_still_expires() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let mut lease = acquire(&bucket, "first", TTL).await.unwrap();
    let (fence, began) = (lease.fence(), Instant::now());
    while began.elapsed() < TTL * 2 {
        lease.renew().await.unwrap();
        let entry = bucket.get("leader").await.unwrap().unwrap();
        assert_eq!((text(&entry), entry.revision), ("first", lease.revision()));
        tokio::time::sleep(TTL / 4).await;
    }
    assert_eq!(lease.fence(), fence, "renewals do not move the fence");
    // Without the TTL in its renewals, the first lease would never end.
    succeed(&bucket, "second", TTL).await;
    assert!(matches!(lease.renew().await, Err(LeaseError::Lost { .. })));
}

#[tokio::test]
async fn a_kept_lease_is_held_until_it_is_released() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let kept = acquire(&bucket, "first", TTL).await.unwrap().keep();
    assert!(timeout(TTL * 3, kept.lost()).await.is_err());
    assert!(kept.is_held());
    assert!(matches!(acquire(&bucket, "second", TTL).await, Err(LeaseError::Held { .. })));
    let fence = kept.fence();
    kept.release().await.unwrap();
    let second = acquire(&bucket, "second", TTL).await.unwrap();
    assert!(second.fence() > fence);
}

#[tokio::test]
async fn a_kept_lease_is_renewed_for_its_current_ttl() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let (set_ttl, ttl) = tokio::sync::watch::channel(TTL);
    let lease = acquire(&bucket, "first", TTL).await.unwrap();
    let first = lease.revision();
    let kept = lease.keep_for(ttl);
    set_ttl.send_replace(Duration::from_secs(3600));
    wait::until("it is renewed", PATIENCE, async || {
        let revision = bucket.get("leader").await.unwrap().map_or(0, |entry| entry.revision);
        if revision > first { Ok(()) } else { Err(revision) }
    })
    .await;
    drop(kept);
    tokio::time::sleep(TTL * 3).await;
    assert!(matches!(acquire(&bucket, "second", TTL).await, Err(LeaseError::Held { .. })));
}

#[tokio::test]
async fn a_kept_lease_that_is_dropped_expires() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    drop(acquire(&bucket, "first", TTL).await.unwrap().keep());
    succeed(&bucket, "second", TTL).await;
}

#[tokio::test]
async fn a_holder_that_is_cut_off_knows_before_the_next_one_holds() {
    let server = Server::start().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = Proxy::start(address).await;
    let hasty = Config { request_timeout: Duration::from_millis(500), ..config(&proxy.url()) };
    let cut = Bus::connect(hasty).await.unwrap().bucket(&LEASES, 1).await.unwrap();
    let sound = connect(&server.url()).await.bucket(&LEASES, 1).await.unwrap();
    let ttl = TTL * 2;
    let kept = acquire(&cut, "first", ttl).await.unwrap().keep();
    for silent in [true, false] {
        assert!(kept.is_held());
        if silent {
            // The break is shorter than the TTL, so the lease is held throughout.
            proxy.half_open();
            assert!(timeout(ttl / 4, kept.lost()).await.is_err());
            proxy.heal();
            wait::until("it is renewed", PATIENCE, async || {
                let renewed = sound.get("leader").await.unwrap().is_some_and(|e| e.value.is_some());
                if renewed && kept.is_held() { Ok(()) } else { Err(renewed) }
            })
            .await;
        } else {
            proxy.half_open();
            let (lost, second) = tokio::join!(
                async {
                    kept.lost().await;
                    Instant::now()
                },
                async {
                    let lease = succeed(&sound, "second", ttl).await;
                    (lease, Instant::now())
                }
            );
            assert!(lost < second.1, "two held it for {:?}", lost - second.1);
            assert!(!kept.is_held());
            assert!(second.0.is_held());
        }
    }
}

#[tokio::test]
async fn a_lease_that_was_taken_away_is_lost() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let kept = acquire(&bucket, "first", TTL * 3).await.unwrap().keep();
    wait::until("somebody overwrites it", PATIENCE, async || {
        let revision = bucket.head("leader").await.unwrap();
        bucket.commit(put("leader", "thief", "leader", revision)).await
    })
    .await;
    timeout(PATIENCE, kept.lost()).await.unwrap();
    kept.release().await.unwrap();
    let entry = bucket.get("leader").await.unwrap().unwrap();
    assert_eq!(text(&entry), "thief", "the release of a lost lease releases nothing");
}

#[tokio::test]
async fn an_expiry_reaches_a_mirror_as_a_delete() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    let mirror = mirror(&bucket, ">").await;
    let lease = acquire(&bucket, "first", TTL).await.unwrap();
    mirror.reach(lease.revision(), Instant::now() + PATIENCE).await.unwrap();
    assert!(mirror.read(|keys| keys.0.contains_key("leader")));
    wait::until("the mirror notices", Duration::from_secs(5), async || {
        if mirror.read(|keys| keys.0.is_empty()) { Ok(()) } else { Err("not yet") }
    })
    .await;
}

#[tokio::test]
async fn invalid_terms_of_a_lease_are_refused() {
    let (_server, bus, bucket) = one_bucket(&LEASES).await;
    for ttl in [Duration::from_millis(500), Duration::from_millis(1500), Duration::ZERO] {
        let refused = acquire(&bucket, "first", ttl).await;
        assert!(matches!(refused, Err(LeaseError::Refused { .. })), "{refused:?}");
    }
    // With history, the server raises every TTL to the marker's.
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    assert!(matches!(acquire(&bucket, "first", TTL).await, Err(LeaseError::Refused { .. })));
}

/// A value that was written by hand never expires.
#[tokio::test]
async fn a_lease_without_a_ttl_is_reported_and_taken_over() {
    let (_server, _bus, bucket) = one_bucket(&LEASES).await;
    bucket.commit(put("leader", "junk", "leader", 0)).await.unwrap();
    let Err(LeaseError::Held { holder, .. }) = acquire(&bucket, "first", TTL).await else {
        panic!("it looks held");
    };
    assert!(!holder.has_ttl);
    let lease = bucket.inherit(&holder, "first".into(), TTL, trace()).await.unwrap();
    let Err(LeaseError::Held { holder, .. }) = acquire(&bucket, "second", TTL).await else {
        panic!("it is held");
    };
    assert!(holder.has_ttl && lease.is_held());
    bucket.commit(put("leader", "junk", "leader", lease.revision())).await.unwrap();
    let kept = lease.keep();
    timeout(PATIENCE, kept.lost()).await.unwrap();
    assert!(!kept.is_held());
}
