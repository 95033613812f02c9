//! Lists of several pages, from a claim service that fails in the middle of one.

use std::sync::{Arc, Mutex};

use berth_bus::{EndpointSpec, Service, ServiceSpec};
use berth_contract::code::Code;
use berth_contract::message::alloc::{Allocs, Forgotten};
use berth_contract::message::claim::{Claims, ListClaims, Release, Released};
use berth_contract::message::volume::Volumes;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_harness::wait;
use serde_json::json;

use crate::site::{ON_DEMAND, PATIENCE, Pace, Site};

/// What the claim service was asked.
#[derive(Default)]
struct ClaimRequests {
    /// `after` of each page of leaving claims, the earliest first.
    pages: Vec<Option<String>>,
    /// The allocs whose claims are to be released, the earliest first.
    released: Vec<String>,
}

impl ClaimRequests {
    /// Page by page: a list of two, and then one whose second page fails once. Each page has a
    /// claim of an alloc that is gone. Later lists are empty.
    fn answer(&mut self, list: ListClaims) -> Result<Claims, Problem> {
        self.pages.push(list.page.after);
        let number = self.pages.len();
        let next = matches!(number, 1 | 3).then_some("behind the first page");
        let claim = json!({
            "namespace": "team/a", "volume": "v", "alloc": format!("a{number}"), "node": "n1",
            "mode": "write", "state": "taken", "since": "2026-01-01T00:00:00.000Z", "epoch": number,
        });
        let claims = match number {
            4 => return Err(Problem::new(Code::Overloaded, "too much to do").retryable()),
            1..=5 => vec![claim],
            _ => Vec::new(),
        };
        let page = json!({"index": 1, "claims": claims, "next": next});
        Ok(serde_json::from_value(page).unwrap())
    }
}

/// Stands in for the claim service.
async fn serve(site: &Site, asked: &Arc<Mutex<ClaimRequests>>) -> Service {
    let (name, version) = ("berth-test".to_owned(), "0.0.1".to_owned());
    let spec = ServiceSpec { name, version, ..ServiceSpec::default() };
    let service = site.bus.service(spec).await.unwrap();
    let endpoint = |name: &str, subject: String| EndpointSpec {
        name: name.to_owned(),
        subject,
        max_in_flight: 8,
        ..EndpointSpec::default()
    };
    let of_lists = Arc::clone(asked);
    let status = endpoint("claim-status", verb::ClaimStatus::wildcard_subject());
    let status = service.endpoint(status, move |request| {
        let asked = Arc::clone(&of_lists);
        async move { asked.lock().unwrap().answer(request.decode("claim.status")?) }
    });
    status.await.unwrap();
    let of_releases = Arc::clone(asked);
    let release = endpoint("claim-release", verb::ClaimRelease::wildcard_subject());
    let release = service.endpoint(release, move |request| {
        let asked = Arc::clone(&of_releases);
        async move {
            let release: Release = request.decode("claim.release")?;
            asked.lock().unwrap().released.push(release.alloc.to_string());
            Ok(Released { state: None })
        }
    });
    release.await.unwrap();
    let forget = endpoint("alloc-forget", verb::AllocForget::wildcard_subject());
    let forget = service.endpoint(forget, |_| async { Ok(Forgotten { known: false }) });
    forget.await.unwrap();
    let volumes = endpoint("volume-list", verb::VolumeList::wildcard_subject());
    let volumes = service.endpoint(volumes, |_| async {
        Ok(serde_json::from_value::<Volumes>(json!({"index": 1, "volumes": []})).unwrap())
    });
    volumes.await.unwrap();
    let allocs = endpoint("alloc-list", verb::AllocList::wildcard_subject());
    let allocs = service.endpoint(allocs, |_| async {
        Ok(serde_json::from_value::<Allocs>(json!({"index": 1, "allocs": []})).unwrap())
    });
    allocs.await.unwrap();
    service
}

#[tokio::test]
async fn a_sweep_goes_on_where_the_last_one_failed_and_loses_nothing_that_it_had_found() {
    let asked = Arc::new(Mutex::new(ClaimRequests::default()));
    let mut site = Site::new().await;
    let service = serve(&site, &asked).await;
    site.start_collectors(1, Pace { interval_ms: 200, grace_ms: 0, ..ON_DEMAND });
    wait::until("the list is read to its end again", PATIENCE, async || {
        let asked = asked.lock().unwrap();
        if asked.pages.len() > 5 { Ok(()) } else { Err(format!("{:?}", asked.pages)) }
    })
    .await;
    let asked = asked.lock().unwrap();
    let second = || Some("behind the first page".to_owned());
    assert_eq!(asked.pages[..6], [None, second(), None, second(), second(), None]);
    assert_eq!(asked.released, ["a1", "a2", "a3", "a5"]);
    drop((service, site));
}
