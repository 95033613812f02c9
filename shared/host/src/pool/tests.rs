//! Operations hang at a gate in these tests: a lock that the test holds.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(20);

/// Operations hang while it is held.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<()>>);

impl Gate {
    fn shut(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap()
    }

    fn pass(&self) -> impl FnOnce() + Send + 'static {
        let gate = self.clone();
        move || drop(gate.shut())
    }
}

fn operation(share: &str, place: usize) -> HostOperation {
    HostOperation::new("look", share, format!("/{share}/{place}"))
}

/// Waits until no operation runs.
async fn idle(pool: &HostPool) {
    let end = Instant::now() + LONG;
    while !pool.lock().running.is_empty() {
        assert!(Instant::now() < end, "{:?}", pool.lock().running);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[expect(clippy::await_holding_lock, reason = "what the held lock keeps waiting is no task")]
#[tokio::test]
async fn a_share_that_hangs_is_refused_at_once_and_delays_no_other_share() {
    let (pool, gate) = (HostPool::default(), Gate::default());
    let shut = gate.shut();
    let mut looks = tokio::task::JoinSet::new();
    for place in 0..SHARE_MAX {
        let (pool, pass) = (pool.clone(), gate.pass());
        looks.spawn(async move { pool.run(operation("dead", place), SHORT, pass).await });
    }
    for late in looks.join_all().await {
        assert!(matches!(late, Err(HostPoolError::Late { .. })), "{late:?}");
    }
    let began = Instant::now();
    let refused = pool.run(operation("dead", SHARE_MAX), LONG, || ()).await.unwrap_err();
    assert!(began.elapsed() < LONG / 2, "it waited for what hangs");
    let HostPoolError::Hung { hung, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((hung.count, hung.oldest.share.as_ref()), (SHARE_MAX, "dead"));
    let text = refused.to_string();
    assert!(text.contains("32 host operations hang") && text.contains("/dead/"), "{text}");
    pool.run(operation("well", 0), LONG, || ()).await.unwrap();
    assert_eq!(pool.hung().unwrap().count, SHARE_MAX);
    drop(shut);
    idle(&pool).await;
    assert_eq!(pool.hung(), None);
    pool.run(operation("dead", SHARE_MAX), LONG, || ()).await.unwrap();
}

#[expect(clippy::await_holding_lock, reason = "what the held lock keeps waiting is no task")]
#[tokio::test]
async fn a_place_has_one_operation_also_when_its_caller_gave_up() {
    let (pool, gate) = (HostPool::default(), Gate::default());
    let shut = gate.shut();
    let late = pool.run(operation("p", 1), SHORT, gate.pass()).await.unwrap_err();
    assert!(matches!(late, HostPoolError::Late { .. }), "{late}");
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let second = pool.run(operation("p", 1), LONG, move || count.fetch_add(1, Ordering::SeqCst));
    let second = second.await.unwrap_err();
    assert!(matches!(&second, HostPoolError::Hung { hung, .. } if hung.count == 1), "{second}");
    pool.run(operation("p", 2), LONG, || ()).await.unwrap();
    drop(shut);
    idle(&pool).await;
    assert_eq!(begun.load(Ordering::SeqCst), 0, "what was refused is not begun later");
}

#[tokio::test]
async fn callers_wait_while_the_operations_before_them_end_in_time() {
    let pool = HostPool::default();
    let most_running = Arc::new(AtomicUsize::new(0));
    let running = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for place in 0..SHARE_MAX * 8 {
        let (pool, most_running, running) =
            (pool.clone(), Arc::clone(&most_running), Arc::clone(&running));
        tasks.spawn(async move {
            let work = move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                most_running.fetch_max(now, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                running.fetch_sub(1, Ordering::SeqCst);
            };
            pool.run(operation("p", place), LONG, work).await
        });
    }
    for result in tasks.join_all().await {
        result.unwrap();
    }
    assert!(most_running.load(Ordering::SeqCst) <= SHARE_MAX);
    idle(&pool).await;
    assert!(pool.lock().waiting.is_empty() && pool.lock().idle.len() <= IDLE_MAX);
}

#[expect(clippy::await_holding_lock, reason = "what the held lock keeps waiting is no task")]
#[tokio::test]
async fn callers_that_give_up_are_forgotten() {
    let (pool, gate) = (HostPool::default(), Gate::default());
    let shut = gate.shut();
    let first = tokio::spawn({
        let (pool, pass) = (pool.clone(), gate.pass());
        async move { pool.run(operation("p", 1), LONG, pass).await }
    });
    while pool.lock().running.is_empty() {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        let waits = pool.run(operation("p", 1), LONG, || ());
        assert!(tokio::time::timeout(Duration::from_millis(1), waits).await.is_err());
    }
    assert!(pool.lock().waiting.is_empty());
    let busy = pool.run(operation("p", 1), SHORT, || ()).await.unwrap_err();
    assert!(matches!(busy, HostPoolError::Busy { running: 1, .. }), "{busy}");
    drop(shut);
    first.await.unwrap().unwrap();
}

#[expect(clippy::await_holding_lock, reason = "what the held lock keeps waiting is no task")]
#[tokio::test]
async fn all_shares_together_have_a_bound() {
    let (pool, gate) = (HostPool::default(), Gate::default());
    let mut looks = tokio::task::JoinSet::new();
    {
        let _shut = gate.shut();
        for at in 0..OPERATIONS_MAX {
            let (pool, pass) = (pool.clone(), gate.pass());
            let share = format!("share {}", at % (OPERATIONS_MAX / SHARE_MAX));
            looks.spawn(async move { pool.run(operation(&share, at), SHORT, pass).await });
        }
        while looks.join_next().await.is_some() {}
        let refused = pool.run(operation("one more", 0), LONG, || ()).await.unwrap_err();
        let HostPoolError::Hung { hung, .. } = &refused else { panic!("{refused}") };
        assert_eq!(hung.count, OPERATIONS_MAX);
    }
    idle(&pool).await;
    pool.run(operation("one more", 0), LONG, || ()).await.unwrap();
}

#[tokio::test]
async fn an_operation_that_panics_gives_its_place_back() {
    let pool = HostPool::default();
    let work = || -> () { panic!("on purpose") };
    let failed = pool.run(operation("p", 1), LONG, work).await.unwrap_err();
    assert!(matches!(failed, HostPoolError::Panicked { .. }), "{failed}");
    pool.run(operation("p", 1), LONG, || ()).await.unwrap();
}
