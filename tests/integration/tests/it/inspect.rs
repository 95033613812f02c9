//! Every endpoint of a running system is listed in `docs/contract.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::{service, verb};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::{Value, json};

/// A service's description of its endpoints: name and metadata.
async fn served(system: &System, service: &str) -> Result<BTreeMap<String, Value>, String> {
    let info = system.ask::<Value>(&format!("$SRV.INFO.{service}"), &json!({})).await;
    let info = info.map_err(|problem| problem.to_string())?;
    let endpoints = info["endpoints"].as_array().unwrap().iter();
    let entry = |endpoint: &Value| {
        (endpoint["name"].as_str().unwrap().to_owned(), endpoint["metadata"].clone())
    };
    Ok(endpoints.map(entry).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_that_is_served_is_in_the_reference_and_no_other() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, docker_ms: Some(110_000), ..Options::default() };
    let system = System::start(options).await;
    for service in service::ALL {
        let listed: BTreeMap<String, Value> = verb::ALL
            .iter()
            .filter(|row| row.service == service)
            .map(|row| {
                let mut metadata = row.metadata();
                metadata.insert("description".to_owned(), row.description.to_owned());
                (row.endpoint.to_owned(), json!(metadata))
            })
            .collect();
        // A collector answers once it leads, a moment after its start.
        wait::until(service.name, Duration::from_secs(20), || async {
            match served(&system, service.name).await {
                Ok(served) if served == listed => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}
