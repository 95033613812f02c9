//! Lists: complete, of one moment, and with the head for a guard.

use std::sync::atomic::{AtomicBool, Ordering};

use berth_bus::ReadError;
use futures_util::future::join_all;

use crate::support::{Flag, STATE, one, one_bucket, put, set, text, unset};

#[tokio::test]
async fn a_list_has_the_live_keys_below_the_filter_and_their_head() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    assert_eq!(
        bucket.list("v.>").await.unwrap(),
        berth_bus::List { settled: true, ..Default::default() }
    );
    set(&bucket, "v.b", "1").await;
    set(&bucket, "v.a", "2").await;
    set(&bucket, "v.b", "3").await;
    set(&bucket, "v.c", "gone").await;
    set(&bucket, "w.a", "other").await;
    let marker = unset(&bucket, "v.c").await;
    let list = bucket.list("v.>").await.unwrap();
    let listed: Vec<_> =
        list.entries.iter().map(|entry| (entry.key.as_str(), text(entry))).collect();
    assert_eq!(listed, [("v.a", "2"), ("v.b", "3")]);
    assert_eq!((list.head, list.settled), (marker, true));
    assert_eq!(list.entries[1], bucket.get("v.b").await.unwrap().unwrap());
    assert!(bucket.commit(put("v.d", "d", "v.>", list.head)).await.is_ok(), "the head is a guard");
    assert_eq!(bucket.list("v.a").await.unwrap().entries.len(), 1);
    assert!(matches!(bucket.list("v a").await, Err(ReadError::Filter { .. })));
}

#[tokio::test]
async fn a_list_of_more_keys_than_a_batch_carries_is_whole() {
    let (_server, bus) = one().await;
    let bucket = bus.bucket(&STATE, 1).await.unwrap();
    let keys: Vec<String> = (0..1500).map(|count| format!("many.{count:04}")).collect();
    for some in keys.chunks(100) {
        let writes = some.iter().map(|key| bucket.commit(put(key, key, key, 0)));
        assert!(join_all(writes).await.iter().all(Result::is_ok));
    }
    let marker = unset(&bucket, "many.0003").await;
    let list = bucket.list("many.>").await.unwrap();
    assert_eq!((list.entries.len(), list.head, list.settled), (1499, marker, true));
    assert!(list.entries.is_sorted_by_key(|entry| entry.key.clone()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settled_list_is_of_one_moment_while_others_write() {
    let (_server, _bus, bucket) = one_bucket(&STATE).await;
    // One writer raises both keys in turn: at every moment `a` is equal to `b` or one more.
    set(&bucket, "v.a", "0").await;
    set(&bucket, "v.b", "0").await;
    let stop = Flag::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (bucket, stop) = (bucket.clone(), Flag::clone(&stop));
        async move {
            for count in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                set(&bucket, "v.a", &count.to_string()).await;
                set(&bucket, "v.b", &count.to_string()).await;
            }
        }
    });
    let mut settled = 0;
    for _ in 0..100 {
        let list = bucket.list("v.>").await.unwrap();
        if list.settled {
            settled += 1;
            let values: Vec<u64> =
                list.entries.iter().map(|entry| text(entry).parse().unwrap()).collect();
            assert!(values[0] == values[1] || values[0] == values[1] + 1, "{values:?}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert!(settled > 0, "a list settles between two writes");
    assert!(bucket.list("v.>").await.unwrap().settled);
}
