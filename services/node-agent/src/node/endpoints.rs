//! What the agent of a node answers.

use std::collections::BTreeMap;

use berth_bus::serve::ServeError;
use berth_bus::{Bus, EndpointSpec, Request, Service, ServiceSpec};
use berth_contract::message::agent::{Mount, Status};
use berth_contract::message::call::Call;
use berth_contract::service::NODE_AGENT;
use berth_contract::subject::AgentVerb;
use berth_domain::Timestamp;
use berth_service::clock;

use super::Mounter;

/// Requests of one kind under way at once. A mount may wait for minutes, and costs little
/// meanwhile.
const MAX_IN_FLIGHT: u32 = 512;

/// Starts answering for this node.
pub async fn serve(mounter: &Mounter, bus: &Bus) -> Result<Service, ServeError> {
    let node = &mounter.parts.host.node;
    let service = bus
        .service(ServiceSpec {
            name: NODE_AGENT.name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: NODE_AGENT.description.to_owned(),
            metadata: BTreeMap::from([("node".to_owned(), node.to_string())]),
        })
        .await?;
    let spec = |verb: AgentVerb, description: &str| EndpointSpec {
        name: verb.as_str().to_owned(),
        subject: verb.subject(node),
        description: description.to_owned(),
        max_in_flight: MAX_IN_FLIGHT,
        ..EndpointSpec::default()
    };

    let on = mounter.clone();
    let mount = spec(AgentVerb::Mount, "Claim a volume for an alloc of this node, and mount it");
    service
        .endpoint(mount, move |request| {
            let mounter = on.clone();
            async move {
                let asked: Mount = request.decode("agent.mount")?;
                mounter.mount(asked, deadline(&request), request.trace).await
            }
        })
        .await?;
    let on = mounter.clone();
    let detach = spec(AgentVerb::Detach, "Unpublish for an alloc; unstage after the last");
    service
        .endpoint(detach, move |request| {
            let mounter = on.clone();
            async move {
                let call: Call = request.decode("agent.detach")?;
                mounter.detach(call, deadline(&request), request.trace).await
            }
        })
        .await?;
    let on = mounter.clone();
    let status = spec(AgentVerb::Status, "What is mounted, journalled and hosted here");
    service
        .endpoint(status, move |request| {
            let mounter = on.clone();
            async move {
                let Status {} = request.decode("agent.status")?;
                mounter.status().await
            }
        })
        .await?;
    Ok(service)
}

/// When the caller stops waiting, by the clock that crosses hosts.
fn deadline(request: &Request) -> Timestamp {
    clock::now().after(request.remaining())
}
