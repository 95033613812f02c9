//! Waiting ends with the condition, or reports the last status.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use berth_harness::wait;

/// The message of the panic in a task.
async fn panic_of(work: impl Future<Output = ()> + Send + 'static) -> String {
    let panic = tokio::spawn(work).await.unwrap_err().into_panic();
    *panic.downcast::<String>().unwrap()
}

#[tokio::test]
async fn ends_with_the_first_look_that_finds_it() {
    let looks = AtomicUsize::new(0);
    let found = wait::until("the third look", Duration::from_secs(10), async || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        if look == 2 { Ok("found") } else { Err("not yet") }
    })
    .await;
    assert_eq!((found, looks.into_inner()), ("found", 3));
}

#[tokio::test]
async fn a_missed_deadline_tells_what_was_awaited_and_what_was_seen_last() {
    let message = panic_of(async {
        let looks = AtomicUsize::new(0);
        wait::until("claim taken", Duration::from_millis(50), async || {
            let look = looks.fetch_add(1, Ordering::Relaxed);
            Err::<(), _>(format!("publishing, look {look}"))
        })
        .await;
    })
    .await;
    assert!(message.contains("not within 50ms: claim taken"), "{message}");
    assert!(message.contains("last seen: publishing, look "), "{message}");
    assert!(!message.ends_with("look 0"), "the first status, not the last: {message}");
}

#[tokio::test]
async fn a_look_that_hangs_does_not_hang_the_test() {
    let message = panic_of(async {
        let looks = AtomicUsize::new(0);
        wait::until("an answer", Duration::from_millis(50), async || {
            if looks.fetch_add(1, Ordering::Relaxed) > 0 {
                pending::<()>().await;
            }
            Err::<(), _>("asked once")
        })
        .await;
    })
    .await;
    assert!(message.contains("a look hung; before: asked once"), "{message}");
}
