//! Events are read by request, and only those of the namespace that the subject names.

use berth_contract::code::Code;
use berth_contract::event::{Event, EventName as E};
use berth_contract::message::history::{EventKind, ListEvents};
use berth_contract::message::query::Page;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId, limits};
use berth_harness::nats::raw;
use berth_harness::wait;
use berth_service::clock;
use serde_json::{Value, json};

use crate::site::{PATIENCE, Site, claim_event, events_of, node_event};

/// Requests that differ in each filter.
fn queries() -> Vec<ListEvents> {
    let volumes = |ids: &[&str]| ids.iter().map(|id| VolumeId::new(*id).unwrap()).collect();
    let allocs = |ids: &[&str]| ids.iter().map(|id| AllocId::new(*id).unwrap()).collect();
    let all = ListEvents::default;
    let mut queries = vec![
        all(),
        ListEvents { volumes: volumes(&["data"]), ..all() },
        ListEvents { volumes: volumes(&["data", "team-b", "*", ">"]), ..all() },
        ListEvents { allocs: allocs(&["web-1"]), ..all() },
        ListEvents { allocs: allocs(&["web-1", "*", ">"]), ..all() },
        ListEvents { volumes: volumes(&["data"]), allocs: allocs(&["web-1"]), ..all() },
        ListEvents { node: Some(NodeId::new("n1").unwrap()), ..all() },
        ListEvents { plugin: Some(PluginId::new("dev.berth").unwrap()), ..all() },
        ListEvents { trace: Some("a".repeat(32)), ..all() },
        ListEvents { since: Some(berth_domain::Timestamp::default()), ..all() },
        ListEvents { page: page(None, "older.1000000"), ..all() },
        ListEvents { page: page(None, "newer.0.0"), ..all() },
        ListEvents { page: page(None, "newer.1.0"), ..all() },
    ];
    for kind in [EventKind::Volume, EventKind::Claim, EventKind::Call, EventKind::Alloc] {
        queries.push(ListEvents { kinds: vec![kind], ..all() });
    }
    for kind in [EventKind::Request, EventKind::Plugin, EventKind::Node] {
        queries.push(ListEvents { kinds: vec![kind], ..all() });
        queries.push(ListEvents { kinds: vec![kind], volumes: volumes(&["data"]), ..all() });
        queries.push(ListEvents { kinds: vec![kind], allocs: allocs(&["web-1"]), ..all() });
    }
    queries
}

fn page(limit: Option<u32>, after: &str) -> Page {
    Page { limit, after: Some(after.to_owned()) }
}

/// The same things happen in each namespace.
fn told(namespace: &str) -> Vec<Event> {
    let event = |name| claim_event(name, namespace, "data", "web-1");
    vec![
        Event { volume: None, ..event(E::AllocRegistered) },
        event(E::VolumeRegistered),
        event(E::ClaimPublishing),
        Event { plugin: Some(PluginId::new("dev.berth").unwrap()), ..event(E::CallDone) },
        event(E::ClaimTaken),
        Event { code: Some(Code::Held), ..event(E::RequestRefused) },
        Event { volume: None, code: Some(Code::Held), ..event(E::RequestRefused) },
        Event { volume: Some(VolumeId::new("models").unwrap()), ..event(E::ClaimTaken) },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_for_a_namespace_shows_another() {
    let site = Site::start().await;
    let plugin = PluginId::new("dev.berth").unwrap();
    let fleet = [
        node_event(E::NodeReady, "n1"),
        Event { plugin: Some(plugin), ..node_event(E::PluginHealthy, "n1") },
        // A refused request whose namespace could not be read.
        Event { namespace: None, ..claim_event(E::RequestRefused, "x", "data", "web-1") },
    ];
    let (a, b, underscore) = (told("team-a"), told("team-b"), told("_"));
    site.tell(&[&a[..], &b, &underscore, &fleet].concat()).await;
    let mut event_count = 0;
    for query in queries() {
        for namespace in ["team-a", "_"] {
            let events = site.all(namespace, &query).await;
            let own = Some(Namespace::new(namespace).unwrap());
            let foreign = events.iter().find(|event| event.namespace != own);
            assert_eq!(foreign, None, "{namespace}: {query:?}");
            event_count += events.len();
        }
    }
    assert!(event_count > 100, "{event_count}: the filters find the namespace's own");
    // What a request may not widen.
    for only in ["team-b", "*", "_"] {
        let only_namespace = Some(Namespace::new(only).unwrap());
        let refused =
            site.list("team-a", &ListEvents { only_namespace, ..ListEvents::default() }).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, Code::BadInput, "{refused}");
        assert!(refused.message.contains("only_namespace"), "{refused}");
    }
    let only_namespace = Some(Namespace::new("team-a").unwrap());
    let query = ListEvents { only_namespace, ..ListEvents::default() };
    assert_eq!(site.all("team-a", &query).await, a);
    // All namespaces, and one of them with what is in none.
    assert_eq!(site.all("*", &query).await, [&a[..], &fleet].concat());
    let events = site.all("*", &ListEvents::default()).await;
    assert_eq!(events, [&a[..], &b, &underscore, &fleet].concat());
    assert_eq!(site.all("team-c", &ListEvents::default()).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_finds_what_it_names() {
    let site = Site::start().await;
    let a = told("team-a");
    site.tell(&a).await;
    let of = async |query: ListEvents| site.all("team-a", &query).await;
    let chosen = |places: &[usize]| places.iter().map(|at| a[*at].clone()).collect::<Vec<_>>();
    let volumes = vec![VolumeId::new("data").unwrap()];
    let allocs = vec![AllocId::new("web-1").unwrap()];
    let all = ListEvents::default;
    assert_eq!(
        of(ListEvents { volumes: volumes.clone(), ..all() }).await,
        chosen(&[1, 2, 3, 4, 5])
    );
    assert_eq!(of(ListEvents { allocs: allocs.clone(), ..all() }).await, a);
    let kinds = vec![EventKind::Claim, EventKind::Request];
    assert_eq!(of(ListEvents { kinds: kinds.clone(), ..all() }).await, chosen(&[2, 4, 5, 6, 7]));
    let query = ListEvents { kinds: kinds.clone(), volumes, ..all() };
    assert_eq!(of(query).await, chosen(&[2, 4, 5]));
    assert_eq!(of(ListEvents { kinds, allocs, ..all() }).await, chosen(&[2, 4, 5, 6, 7]));
    let plugin = PluginId::new("dev.berth").ok();
    assert_eq!(of(ListEvents { plugin, ..all() }).await, chosen(&[3]));
    assert_eq!(of(ListEvents { node: NodeId::new("n2").ok(), ..all() }).await, []);
    assert_eq!(of(ListEvents { trace: Some("a".repeat(32)), ..all() }).await, a);
    assert_eq!(of(ListEvents { trace: Some("b".repeat(32)), ..all() }).await, []);
    let of_release = Event {
        trace: Some("c".repeat(32)),
        claim_trace: Some("d".repeat(32)),
        ..claim_event(E::ClaimFreed, "team-a", "data", "web-1")
    };
    site.tell(std::slice::from_ref(&of_release)).await;
    for digit in ["c", "d"] {
        let traced = of(ListEvents { trace: Some(digit.repeat(32)), ..all() }).await;
        assert_eq!(traced, std::slice::from_ref(&of_release));
    }
    let newest = site.list("team-a", &all()).await.unwrap().events.pop().unwrap();
    wait::until("the clock goes on", PATIENCE, async || {
        if clock::now() > newest.stored { Ok(()) } else { Err("not yet") }
    })
    .await;
    let since = Some(clock::now());
    assert_eq!(of(ListEvents { since, ..all() }).await, []);
    let late = claim_event(E::ClaimWaiting, "team-a", "data", "web-2");
    site.tell(std::slice::from_ref(&late)).await;
    assert_eq!(of(ListEvents { since, ..all() }).await, [late]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_lead_back_to_the_first_event_and_on_to_those_that_come() {
    let site = Site::start().await;
    let event = |namespace: &str, count: usize| Event {
        detail: Some(count.to_string()),
        ..claim_event(E::ClaimTaken, namespace, "data", "web-1")
    };
    let a: Vec<Event> = (0..120).map(|count| event("team-a", count)).collect();
    let both: Vec<Event> = a.iter().flat_map(|own| [own.clone(), event("team-b", 0)]).collect();
    site.tell(&both).await;
    for limit in [1, 7, 50, 1000] {
        let query =
            ListEvents { page: Page { limit: Some(limit), after: None }, ..ListEvents::default() };
        assert_eq!(site.all("team-a", &query).await, a, "{limit}");
    }
    let newest = ListEvents { page: Page { limit: Some(2), after: None }, ..ListEvents::default() };
    let first = site.list("team-a", &newest).await.unwrap();
    assert_eq!(events_of(&first), a[118..]);
    assert!(first.next.is_some() && first.begins.is_none(), "{first:?}");
    let on = async |end: &str, limit| {
        let page = page(limit, end);
        site.list("team-a", &ListEvents { page, ..ListEvents::default() }).await.unwrap()
    };
    let nothing = on(&first.end, None).await;
    assert_eq!((nothing.events.len(), nothing.next, &nothing.end), (0, None, &first.end));
    let later: Vec<Event> = (120..125).map(|count| event("team-a", count)).collect();
    site.tell(&later).await;
    let (mut end, mut found) = (first.end, Vec::new());
    loop {
        let page = on(&end, Some(2)).await;
        assert!(page.events.len() <= 2, "{page:?}");
        found.extend(events_of(&page));
        end = page.end;
        if page.next.is_none() {
            break;
        }
        assert_eq!(page.next.as_ref(), Some(&end), "more is where this page ends");
    }
    assert_eq!(found, later);
    // Asked for none, the reader learns where to go on.
    let none = ListEvents { page: Page { limit: Some(0), after: None }, ..ListEvents::default() };
    let none = site.list("team-a", &none).await.unwrap();
    assert_eq!((none.events.len(), none.end), (0, end));
    for token in ["x", "newer.1", "older.", "12"] {
        let query = ListEvents { page: page(None, token), ..ListEvents::default() };
        let refused = site.list("team-a", &query).await.unwrap_err();
        assert_eq!((refused.code, refused.faults.len()), (Code::BadInput, 1), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_fits_into_a_message_whatever_is_published() {
    let site = Site::start().await;
    let big = |count: usize| Event {
        detail: Some(format!("{count:-<60000}")),
        ..claim_event(E::ClaimFailed, "team-a", "data", "web-1")
    };
    let events: Vec<Event> = (0..30).map(big).collect();
    // Strangers' messages in the namespace are no events, and are left out.
    let subject = "berth.v1.event.team-a.claim.data.user.x";
    let newer = json!({"event": "snapshot.made", "at": clock::now(), "service": "x", "size": 1});
    for body in [b"".to_vec(), b"\xff".to_vec(), b"{}".to_vec(), vec![b'['; 900_000]] {
        raw::flood(&site.server, subject, &body, 1).await.unwrap();
    }
    raw::flood(&site.server, subject, newer.to_string().as_bytes(), 1).await.unwrap();
    site.tell(&events).await;
    let mut query =
        ListEvents { page: Page { limit: Some(5000), after: None }, ..ListEvents::default() };
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = site.list("team-a", &query).await.unwrap();
        let bytes = serde_json::to_vec(&page).unwrap().len();
        assert!(bytes < limits::MESSAGE_BYTES_MAX, "{bytes}");
        found.splice(0..0, page.events.clone());
        pages += 1;
        let Some(next) = page.next else { break };
        query.page.after = Some(next);
    }
    assert!(pages > 3, "{pages}");
    assert_eq!(found.len(), events.len() + 1);
    // It was published on another connection, so its place among the others is open.
    let is_newer = |event| serde_json::to_value(event).unwrap() == newer;
    let at = found.iter().position(|entry| is_newer(&entry.event));
    let at = at.expect("of a newer version, whole");
    found.remove(at);
    let details: Vec<Value> = found.iter().map(|entry| json!(entry.event.event().detail)).collect();
    assert_eq!(details, events.iter().map(|event| json!(event.detail)).collect::<Vec<_>>());
}
