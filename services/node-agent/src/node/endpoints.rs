//! What the agent of a node answers.

use berth_bus::serve::ServeError;
use berth_bus::{Bus, EndpointSpec, Request, Service, ServiceSpec};
use berth_contract::message::agent::{Mount, Republish, Status, Unmount};
use berth_contract::message::call::Call;
use berth_contract::problem::Problem;
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
        .service(ServiceSpec::of(NODE_AGENT, env!("CARGO_PKG_VERSION"), &[("node", node.as_str())]))
        .await?;
    let spec = |verb: AgentVerb| EndpointSpec::of(verb, verb.subject(node), MAX_IN_FLIGHT);

    let on = mounter.clone();
    let mount = spec(AgentVerb::Mount);
    service
        .endpoint(mount, move |request| {
            let mounter = on.clone();
            async move {
                let answer = async {
                    let asked: Mount = request.decode("agent.mount")?;
                    mounter.mount(asked, request_deadline(&request), request.trace).await
                };
                report_refusal(&mounter, "agent.mount", &request, answer.await)
            }
        })
        .await?;
    let on = mounter.clone();
    let detach = spec(AgentVerb::Detach);
    service
        .endpoint(detach, move |request| {
            let mounter = on.clone();
            async move {
                let call: Call = request.decode("agent.detach")?;
                mounter.detach(call, request_deadline(&request), request.trace).await
            }
        })
        .await?;
    let on = mounter.clone();
    let republish = spec(AgentVerb::Republish);
    service
        .endpoint(republish, move |request| {
            let mounter = on.clone();
            async move {
                let answer = async {
                    let asked: Republish = request.decode("agent.republish")?;
                    mounter.republish(asked, request_deadline(&request), request.trace).await
                };
                report_refusal(&mounter, "agent.republish", &request, answer.await)
            }
        })
        .await?;
    let on = mounter.clone();
    let unmount = spec(AgentVerb::Unmount);
    service
        .endpoint(unmount, move |request| {
            let mounter = on.clone();
            async move {
                let answer = async {
                    let asked: Unmount = request.decode("agent.unmount")?;
                    mounter
                        .unmount_unclaimed(asked, request_deadline(&request), request.trace)
                        .await
                };
                report_refusal(&mounter, "agent.unmount", &request, answer.await)
            }
        })
        .await?;
    let on = mounter.clone();
    let status = spec(AgentVerb::Status);
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

/// The answer; if it is a refusal, an event tells it.
fn report_refusal<T>(
    mounter: &Mounter,
    step: &str,
    request: &Request,
    answer: Result<T, Problem>,
) -> Result<T, Problem> {
    answer.map_err(|problem| {
        let problem = problem.at(step);
        mounter.parts.tell.refused(step, &request.body, &problem, request.trace);
        problem
    })
}

/// When the caller stops waiting, by the clock that crosses hosts.
fn request_deadline(request: &Request) -> Timestamp {
    clock::now().after(request.remaining())
}
