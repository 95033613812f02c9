//! Events are published without waiting, and read again.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_bus::event::{Position, Query};
use berth_bus::{Copies, Events, Listen, ServiceSpec, VerbRequest};
use berth_contract::actor::Actor;
use berth_contract::event::{self, EventName};
use berth_contract::message::node::StoredEvents;
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::stream::EVENTS;
use berth_contract::verb;
use berth_domain::Timestamp;
use berth_harness::dirs::Dir;
use berth_harness::nats::{NatsOptions, NatsServers};
use berth_harness::wait;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::support::{PATIENCE, connect, one, plain, trace};

fn subject(kind: &str) -> String {
    format!("berth.v1.event.default.{kind}.v1")
}

/// The filter of this kind's events of every actor.
fn of(kind: &str) -> String {
    format!("{}.*.*", subject(kind))
}

#[tokio::test]
async fn events_are_read_in_order_with_their_trace() {
    let (_server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    assert_eq!(events.drift(), []);
    let mut followed = events.follow("berth.v1.event.>").await.unwrap();
    for count in 0..50 {
        let kind = if count % 10 == 0 { "rare" } else { "often" };
        events.publish(&subject(kind), &json!({ "count": count }), trace());
    }
    events.flush(PATIENCE).await;
    for count in 0..50 {
        let event = timeout(PATIENCE, followed.next()).await.unwrap();
        let body: Value = serde_json::from_slice(&event.body).unwrap();
        assert_eq!(body["count"], count);
        assert_eq!(event.trace, Some(trace()));
    }
    let last = |filter: &str, count| {
        let (events, filter) = (events.clone(), filter.to_owned());
        async move {
            let last = events.last(&filter, count, PATIENCE).await.unwrap();
            let read = last.iter().map(|event| serde_json::from_slice::<Value>(&event.body));
            read.map(|body| body.unwrap()["count"].as_u64().unwrap()).collect::<Vec<_>>()
        }
    };
    assert_eq!(last("berth.v1.event.>", 3).await, [47, 48, 49]);
    assert_eq!(last(&of("rare"), 3).await, [20, 30, 40]);
    assert_eq!(last(&of("rare"), 100).await, [0, 10, 20, 30, 40]);
    assert_eq!(last(&of("none"), 10).await, [0; 0]);
    assert_eq!(last("berth.v1.event.>", 0).await, [0; 0]);

    let log = events.log();
    let newest = log.newest(&of("*"), PATIENCE).await.unwrap().unwrap();
    assert_eq!(newest.subject, Actor::user("test").sign(&subject("often")));
    assert_eq!(newest.trace, Some(trace()));
    assert_eq!(counts(&[newest]), [49]);
    let rare = log.newest(&of("rare"), PATIENCE).await.unwrap().unwrap();
    assert_eq!(counts(std::slice::from_ref(&rare)), [40]);
    let next = log.first_after(&of("often"), rare.sequence, PATIENCE).await.unwrap();
    assert_eq!(counts(&[next.unwrap()]), [41]);
    let no_event = log.first_after(&of("rare"), rare.sequence, PATIENCE).await.unwrap();
    assert_eq!(no_event, None);
    assert_eq!(log.newest(&of("none"), PATIENCE).await.unwrap(), None);
}

/// The counts in the events.
fn counts(events: &[berth_bus::event::Event]) -> Vec<u64> {
    let body = |event: &berth_bus::event::Event| serde_json::from_slice::<Value>(&event.body);
    events.iter().map(|event| body(event).unwrap()["count"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn stored_events_are_read_by_several_filters_and_followed_without_a_gap() {
    let (_server, bus) = one().await;
    let log = bus.event_log(&EVENTS);
    let filters = [of("a"), of("b")];
    let query = Query { last: 4, ..Query::new(&filters, PATIENCE) };
    let missing = Problem::from(log.read(query, |_| true).await.unwrap_err());
    assert!(missing.retryable && missing.message.contains("stream not found"), "{missing}");

    let events = bus.events(&EVENTS, 1).await.unwrap();
    let tell = async |counts: std::ops::Range<u64>| {
        for count in counts.clone() {
            let kind = ["a", "b", "c"][usize::try_from(count % 3).unwrap()];
            events.publish(&subject(kind), &json!({ "count": count }), trace());
        }
        events.flush(PATIENCE).await;
        wait::until("they are stored", PATIENCE, async || {
            let last = events.last("berth.v1.event.>", 1, PATIENCE).await.unwrap();
            if self::counts(&last) == [counts.end - 1] { Ok(()) } else { Err("not yet") }
        })
        .await;
    };
    tell(0..600).await;
    let read = async |query| log.read(query, |_| true).await.unwrap();
    let newest = read(query).await;
    assert_eq!(counts(&newest.events), [594, 595, 597, 598]);
    assert!(newest.older.is_some(), "there are older ones");
    assert_eq!(newest.begins, None, "nothing is gone");
    // Rare events are found however far back they are, each once and in order.
    let rare =
        |event: &berth_bus::event::Event| counts(std::slice::from_ref(event))[0].is_multiple_of(90);
    let page = log.read(Query { last: 3, ..query }, rare).await.unwrap();
    assert_eq!(counts(&page.events), [360, 450, 540]);
    let page = log.read(Query { last: 50, ..query }, rare).await.unwrap();
    assert_eq!(counts(&page.events), [0, 90, 180, 270, 360, 450, 540]);
    assert_eq!(page.older, None);

    let since = Some(newest.events[3].stored);
    let recent = read(Query { since, last: 2, ..query }).await;
    assert_eq!(counts(&recent.events), [597, 598]);
    let later = Some(newest.events[3].stored.after(PATIENCE));
    assert_eq!(read(Query { since: later, ..query }).await.events, []);

    let mut feed = log.follow_from(&filters, newest.next);
    tell(600..604).await;
    for expected in [600, 601, 603] {
        let event = timeout(PATIENCE, feed.next()).await.unwrap();
        assert_eq!(counts(&[event]), [expected]);
    }
}

/// Waits until the event with this count is the newest that is stored.
async fn await_newest(events: &Events, newest: u64) {
    wait::until("the events are stored", PATIENCE, async || {
        let last = events.last("berth.v1.event.>", 1, PATIENCE).await.unwrap();
        if counts(&last) == [newest] { Ok(()) } else { Err(format!("{last:?}")) }
    })
    .await;
}

/// Pages back to the first event and on to the last, by number and by size, have each event once.
#[tokio::test]
async fn pages_in_both_directions_have_each_event_once() {
    let (_server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    for count in 0..500 {
        let kind = ["a", "b"][usize::try_from(count % 2).unwrap()];
        let more = "x".repeat(usize::try_from(count).unwrap());
        events.publish(&subject(kind), &json!({ "count": count, "more": more }), trace());
    }
    await_newest(&events, 499).await;
    let filters = [of("a")];
    let log = bus.event_log(&EVENTS);
    let expected: Vec<u64> = (0..250).map(|half| half * 2).collect();
    for (last, bytes) in [(7, usize::MAX), (1000, 2_000), (1000, 100), (1000, 1)] {
        let mut query = Query { last, bytes, ..Query::new(&filters, PATIENCE) };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = log.read(query, |_| true).await.unwrap();
            let size: usize = page.events.iter().map(|event| event.body.len()).sum();
            assert!(page.events.len() <= last && (size <= bytes || page.events.len() == 1));
            found.splice(0..0, counts(&page.events));
            pages += 1;
            let Some(older) = page.older else { break };
            query.before = Some(older);
        }
        assert_eq!(found, expected, "{last}, {bytes}");
        assert!(pages > 20, "{pages}");
        let (mut from, mut found) = (Position::default(), Vec::new());
        loop {
            let page = log.read_on(from, query, |_| true).await.unwrap();
            found.extend(counts(&page.events));
            from = page.end;
            if !page.more {
                break;
            }
        }
        assert_eq!(found, expected, "{last}, {bytes}");
        let no_more = log.read_on(from, query, |_| true).await.unwrap();
        assert_eq!((no_more.events, no_more.end, no_more.more), (Vec::new(), from, false));
    }
}

/// Reading from a time on finds the events since then, and reads no page in vain.
#[tokio::test]
async fn events_are_read_from_a_time_on() {
    let (_server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let tell = async |counts: std::ops::Range<u64>| {
        for count in counts.clone() {
            events.publish(&subject("a"), &json!({ "count": count }), trace());
        }
        await_newest(&events, counts.end - 1).await;
    };
    tell(0..300).await;
    let filters = [of("a")];
    let log = bus.event_log(&EVENTS);
    let query = Query { last: 1, ..Query::new(&filters, PATIENCE) };
    let newest = log.read(query, |_| true).await.unwrap().events.remove(0);
    // The next events are stored in a later millisecond.
    wait::until("the clock goes on", PATIENCE, async || {
        let now = unix_ms_now();
        if now > newest.stored.unix_ms() + 1 { Ok(()) } else { Err(now) }
    })
    .await;
    tell(300..303).await;
    let since = Some(newest.stored.after(Duration::from_millis(1)));
    let page = log.read(Query { since, last: 100, ..query }, |_| true).await.unwrap();
    assert_eq!((counts(&page.events), page.older), (vec![300, 301, 302], None));
    let page = log.read(Query { since, last: 2, ..query }, |_| true).await.unwrap();
    assert_eq!(counts(&page.events), [301, 302]);
    let older_query = Query { since, last: 2, before: page.older, ..query };
    let older_query = log.read(older_query, |_| true).await.unwrap();
    assert_eq!((counts(&older_query.events), older_query.older), (vec![300], None));
}

fn unix_ms_now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[tokio::test]
async fn events_removed_by_age_or_size_are_reported() {
    let (server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    for count in 0..10 {
        events.publish(&subject("a"), &json!({ "count": count }), trace());
    }
    events.flush(PATIENCE).await;
    let stream = plain(&server.url()).await.get_stream(EVENTS.name).await.unwrap();
    stream.purge().keep(4).await.unwrap();
    let filters = ["berth.v1.event.>".to_owned()];
    let query = Query::new(&filters, PATIENCE);
    let remaining = bus.event_log(&EVENTS).read(query, |_| true).await.unwrap();
    assert_eq!(counts(&remaining.events), [6, 7, 8, 9]);
    assert_eq!(remaining.begins, Some(remaining.events[0].stored));
}

#[tokio::test]
async fn an_event_log_on_one_server_is_written_without_waiting_for_the_disk() {
    let (server, bus) = one().await;
    bus.events(&EVENTS, 1).await.unwrap();
    // A second service finds the stream with the expected settings.
    assert_eq!(bus.events(&EVENTS, 1).await.unwrap().drift(), []);
    let stream = plain(&server.url()).await.get_stream(EVENTS.name).await.unwrap();
    let config = serde_json::to_value(&stream.cached_info().config).unwrap();
    assert_eq!(config["persist_mode"], "async", "{config}");
}

#[tokio::test]
async fn publishing_returns_at_once_without_a_server_and_a_full_queue_counts_lost_events() {
    let (server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    server.kill9();
    wait::until("the loss is noticed", PATIENCE, async || {
        if bus.connected() { Err("connected") } else { Ok(()) }
    })
    .await;
    let began = Instant::now();
    for count in 0..5000 {
        events.publish(&subject("many"), &json!({ "count": count }), trace());
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let lost = events.lost();
    assert!((3000..5000).contains(&lost), "{lost}");
    server.restart().await;
    events.flush(PATIENCE).await;
    let kept = usize::try_from(5000 - lost).unwrap();
    wait::until("what was kept is stored", PATIENCE, async || {
        let stored = events.last("berth.v1.event.>", 5000, PATIENCE).await.unwrap().len();
        if stored == kept { Ok(()) } else { Err(format!("{stored} of {kept}")) }
    })
    .await;
}

#[tokio::test]
async fn a_follower_goes_on_after_a_restart_without_a_gap() {
    let (server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let mut followed = events.follow("berth.v1.event.>").await.unwrap();
    for round in 0..3 {
        events.publish(&subject("k"), &json!({ "round": round }), trace());
        events.flush(PATIENCE).await;
        let event = timeout(PATIENCE, followed.next()).await.unwrap();
        let body: Value = serde_json::from_slice(&event.body).unwrap();
        assert_eq!(body["round"], round);
        server.terminate().await;
        server.restart().await;
        wait::until("the bus is back", PATIENCE, async || {
            if bus.connected() { Ok(()) } else { Err("not yet") }
        })
        .await;
    }
}

/// Copies the store of a server that is down, and puts it back.
fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success(), "{} to {}", from.display(), to.display());
}

/// A lone server writes events down a little later: killed, it forgets the newest.
#[tokio::test]
async fn a_follower_misses_nothing_new_when_a_killed_server_has_forgotten_the_newest() {
    let (server, bus) = one().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let cable = berth_harness::proxy::Proxy::start(address).await;
    let follower = connect(&cable.url()).await;
    let store = server.daemon().log_path().with_file_name("store");
    let kept = store.with_file_name("kept");
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let stored = async |counts: std::ops::Range<u64>| {
        for count in counts.clone() {
            events.publish(&subject("k"), &json!({ "count": count }), trace());
        }
        wait::until("they are stored", PATIENCE, async || {
            let last = events.last("berth.v1.event.>", 1, PATIENCE).await;
            let last = last.map_err(|error| error.to_string())?;
            if self::counts(&last) == [counts.end - 1] { Ok(()) } else { Err(format!("{last:?}")) }
        })
        .await;
    };
    stored(0..10).await;
    server.terminate().await;
    copy(&store, &kept);
    server.restart().await;

    let filters = ["berth.v1.event.>".to_owned()];
    let mut feed = follower.event_log(&EVENTS).follow_from(&filters, 1);
    stored(10..20).await;
    for expected in 0..20 {
        let event = timeout(PATIENCE, feed.next()).await.unwrap();
        assert_eq!(counts(&[event]), [expected]);
    }
    let log = follower.event_log(&EVENTS);
    let query = Query::new(&filters, PATIENCE);
    let mut read = log.read(query, |_| true).await.unwrap().end;
    // With fewer new ones than were forgotten, and then with more.
    for new in [100..105, 200..230] {
        cable.cut();
        server.kill9();
        std::fs::remove_dir_all(&store).unwrap();
        copy(&kept, &store);
        server.restart().await;
        stored(new.clone()).await;
        cable.heal();
        for expected in new.clone() {
            let event = timeout(PATIENCE, feed.next()).await.unwrap();
            assert_eq!(counts(&[event]), [expected], "of {new:?}");
        }
        let page = log.read_on(read, query, |_| true).await.unwrap();
        assert_eq!(counts(&page.events), new.collect::<Vec<_>>());
        read = page.end;
    }
    // And no event twice, when none was lost.
    cable.cut();
    stored(300..303).await;
    cable.heal();
    for expected in 300..303 {
        let event = timeout(PATIENCE, feed.next()).await.unwrap();
        assert_eq!(counts(&[event]), [expected]);
    }
}

/// Lets `u` publish on all subjects, or on all but the denied ones.
fn write_rights(file: &Path, denied: Option<&str>) {
    let deny = denied.map(|subjects| format!("publish: {{ deny: [\"{subjects}\"] }}"));
    let deny = deny.unwrap_or_default();
    let text = format!("users: [{{ user: u, password: p, permissions: {{ {deny} }} }}]");
    std::fs::write(file, format!("authorization {{ {text} }}\nno_auth_user: u\n")).unwrap();
}

/// Starts servers with the rights that the file says whenever a server starts.
async fn start_with_rights(file: &Path, servers: usize) -> NatsServers {
    // nats-server takes every path as relative to the configuration's directory.
    let extra = &format!("include \"{}{}\"", "../".repeat(16), file.display());
    NatsServers::start_with(servers, NatsOptions { extra, ..NatsOptions::default() }).await
}

async fn restart_all(servers: &NatsServers) {
    for server in servers.servers() {
        server.terminate().await;
        server.restart().await;
        servers.ready().await;
    }
}

/// Events that the server refuses are stored later, in order, and delay no others.
async fn refused_events_are_sent_with_new_rights(servers: usize) {
    let dir = Dir::new("event-rights");
    let file = dir.join("users.conf");
    write_rights(&file, Some("berth.v1.event.*.a.>"));
    let servers = start_with_rights(&file, servers).await;
    let bus = connect(&servers.url()).await;
    let events = bus.events(&EVENTS, Copies::ByCluster).await.unwrap();
    let tell = async |counts: std::ops::Range<u64>| {
        for count in counts {
            let kind = ["a", "b"][usize::try_from(count % 2).unwrap()];
            events.publish(&subject(kind), &json!({ "count": count }), trace());
        }
        events.flush(PATIENCE).await;
    };
    let stored = async |kind: &str| {
        let stored_events = events.last(&of(kind), 100, PATIENCE).await;
        stored_events.map(|stored_events| counts(&stored_events)).unwrap_or_default()
    };
    tell(0..20).await;
    let (even, odd) = (|count: &u64| count.is_multiple_of(2), |count: &u64| count % 2 == 1);
    wait::until("what is allowed is stored, and the rest is kept", PATIENCE, async || {
        let (kept, others) = (bus.kept_events().kept, stored("b").await);
        let is_so = kept == 10 && others == (0..20).filter(odd).collect::<Vec<_>>();
        if is_so { Ok(()) } else { Err(format!("{kept} kept; {others:?}")) }
    })
    .await;
    let denials = bus.counts().permission_violations;
    tell(20..40).await;
    // Allowed events are stored before the restart: they were sent without an acknowledgement.
    wait::until("more are kept", PATIENCE, async || {
        let (kept, others) = (bus.kept_events().kept, stored("b").await.len());
        if (kept, others) == (20, 20) { Ok(()) } else { Err(format!("{kept} kept, {others}")) }
    })
    .await;
    assert_eq!(bus.counts().permission_violations, denials, "they are not tried one by one");

    write_rights(&file, None);
    restart_all(&servers).await;
    wait::until("all are stored, in order", PATIENCE, async || {
        let (kept, stored_events) = (bus.kept_events(), stored("a").await);
        let is_so = kept.kept == 0 && stored_events == (0..40).filter(even).collect::<Vec<_>>();
        if is_so { Ok(()) } else { Err(format!("{kept:?}; {stored_events:?}; {:?}", bus.counts())) }
    })
    .await;
    assert_eq!((bus.kept_events().lost, events.lost()), (0, 0));
    let read = events.last(&of("a"), 100, PATIENCE).await.unwrap();
    assert!(read.iter().all(|event| event.trace == Some(trace())));
    tell(40..44).await;
    wait::until("later events are stored", PATIENCE, async || {
        let stored_events = stored("*").await;
        if stored_events.len() == 44 { Ok(()) } else { Err(format!("{stored_events:?}")) }
    })
    .await;
}

#[tokio::test]
async fn events_that_one_server_refused_are_sent_with_new_rights() {
    refused_events_are_sent_with_new_rights(1).await;
}

#[tokio::test]
async fn events_that_a_cluster_refused_are_sent_with_new_rights() {
    refused_events_are_sent_with_new_rights(3).await;
}

/// A process that may not write the stream has the registry do it, and may not ask it yet.
#[tokio::test]
async fn events_that_the_registry_may_not_be_told_are_kept_in_order_until_it_may() {
    let dir = Dir::new("event-tell-rights");
    let file = dir.join("users.conf");
    write_rights(&file, Some("berth.v1.node.tell.>"));
    let servers = start_with_rights(&file, 1).await;
    let bus = connect(&servers.url()).await;
    let events = bus.events_by_request();
    let details = ["first", "second", "third"];
    for detail in details {
        let mounted = event::Event::new(EventName::VolumeMounted, Timestamp::default(), NODE_AGENT);
        let mounted = event::Event { detail: Some(detail.to_owned()), ..mounted };
        events.publish(&subject("volume"), &mounted, trace());
    }
    let kept = || {
        let kept = bus.refused_events().into_iter();
        let read = kept.map(|kept| serde_json::from_str::<event::Event>(&kept.body).unwrap());
        read.map(|event| event.detail.unwrap()).collect::<Vec<_>>()
    };
    wait::until("all are kept", PATIENCE, async || {
        if kept() == details { Ok(()) } else { Err(format!("{:?}", kept())) }
    })
    .await;
    let denials = bus.counts().permission_violations;
    restart_all(&servers).await;
    wait::until("the next connection is refused, too", PATIENCE, async || {
        let now = bus.counts().permission_violations;
        if now > denials { Ok(()) } else { Err(now) }
    })
    .await;
    // The refusal is counted before the request ends.
    events.flush(PATIENCE).await;
    assert_eq!(kept(), details);

    write_rights(&file, None);
    restart_all(&servers).await;
    let registry = connect(&servers.url()).await;
    let (name, version) = ("registry".to_owned(), "0.0.1".to_owned());
    let service = registry.service(ServiceSpec { name, version, ..ServiceSpec::default() }).await;
    let service = service.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let tell = move |request: VerbRequest<verb::NodeTell>| {
        let heard = Arc::clone(&heard);
        async move {
            let events = request.message()?.events;
            let stored = events.len();
            heard.lock().unwrap().extend(events.into_iter().filter_map(|told| told.event.detail));
            Ok::<_, Problem>(StoredEvents { stored })
        }
    };
    service.on(Listen::All, 8, tell).await.unwrap();
    wait::until("the registry is told all", PATIENCE, async || {
        let (told, kept) = (told.lock().unwrap().clone(), bus.kept_events());
        if told.len() == 3 && kept.kept == 0 { Ok(()) } else { Err(format!("{told:?} {kept:?}")) }
    })
    .await;
    assert_eq!(*told.lock().unwrap(), details);
    assert_eq!((bus.kept_events().lost, events.lost()), (0, 0));
}
