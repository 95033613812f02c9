//! The requests of the bench to the fleet.
//!
//! | subject | body | answer |
//! | --- | --- | --- |
//! | `bench.fleet.change` | `agent`, `description` | `{}`, at once: flips this agent's plugin |
//! | `bench.fleet.churn` | `agents`, `per_second`, `seconds` | `{changes}`, once all are made |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, EndpointSpec, Request, Service, ServiceSpec};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::Fatal;
use crate::agent::Agent;

/// Changes the plugin of one agent.
const CHANGE: &str = "bench.fleet.change";
/// Changes the plugins of the first agents, one after another, at a rate.
const CHURN: &str = "bench.fleet.churn";

/// Answers while the returned service lives.
pub async fn serve(bus: &Bus, agents: Arc<Vec<Agent>>) -> Result<Service, Fatal> {
    let spec = ServiceSpec {
        name: "bench-fleet".to_owned(),
        version: berth_version::current().to_owned(),
        description: "Many agents in one process".to_owned(),
        metadata: BTreeMap::new(),
    };
    let service = bus.service(spec).await?;
    let fleet = Arc::clone(&agents);
    service
        .endpoint(endpoint("change", CHANGE), move |request: Request| {
            let fleet = Arc::clone(&fleet);
            async move { change(&fleet, &read(&request)?) }
        })
        .await?;
    service
        .endpoint(endpoint("churn", CHURN), move |request: Request| {
            let agents = Arc::clone(&agents);
            async move { churn(&agents, &read(&request)?).await }
        })
        .await?;
    Ok(service)
}

fn endpoint(name: &str, subject: &str) -> EndpointSpec {
    EndpointSpec {
        name: name.to_owned(),
        subject: subject.to_owned(),
        max_in_flight: 64,
        ..EndpointSpec::default()
    }
}

fn change(agents: &[Agent], order: &Value) -> Result<Value, Problem> {
    let agent = agents.get(number(order, "agent")?).ok_or_else(|| wrong("agent"))?;
    let description = order["description"].as_str().ok_or_else(|| wrong("description"))?;
    agent.change(description.to_owned());
    Ok(json!({}))
}

async fn churn(agents: &[Agent], order: &Value) -> Result<Value, Problem> {
    let [agent_count, rate, seconds] =
        ["agents", "per_second", "seconds"].map(|name| number(order, name));
    let (agent_count, rate, seconds) = (agent_count?, rate?, seconds?);
    let agents = agents.get(..agent_count).filter(|first| !first.is_empty() && rate > 0);
    let agents = agents.ok_or_else(|| wrong("agents or per_second"))?;
    let tick_interval =
        Duration::from_secs(1) / u32::try_from(rate).map_err(|_| wrong("per_second"))?;
    let mut ticks = interval(tick_interval);
    // Late changes are made at once, so that the rate is kept.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let changes = rate * seconds;
    for (number, agent) in agents.iter().cycle().take(changes).enumerate() {
        ticks.tick().await;
        agent.change(format!("change {number}"));
    }
    Ok(json!({"changes": changes}))
}

fn read(request: &Request) -> Result<Value, Problem> {
    serde_json::from_slice(&request.body).map_err(|error| Problem::new(Code::BadInput, error))
}

fn number(order: &Value, name: &str) -> Result<usize, Problem> {
    let number = order[name].as_u64().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| wrong(name))
}

fn wrong(name: &str) -> Problem {
    Problem::new(Code::BadInput, format!("{name} is missing or wrong"))
}
