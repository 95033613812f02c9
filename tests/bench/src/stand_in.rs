//! A node whose plugins do nothing: it holds the node's lease, reports two plugins, and answers
//! every call at once.
//!
//! So a rate shows the cost of the services without that of a plugin. It reports and answers over
//! the same subjects as an agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use berth_bus::{Bus, EndpointSpec, Service, ServiceSpec};
use berth_contract::problem::Problem;
use berth_contract::subject::controller_queue;
use berth_contract::verb::{self, PluginOnNode, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::{NodeId, PluginId, Timestamp};
use serde_json::{Value, json};

use crate::Fatal;
use crate::ask::{self, NODE};
use crate::identity;
use crate::machine::ms_since_1970;

/// A plugin without a controller.
pub const PLAIN: &str = "plain";
/// A plugin whose controller attaches.
pub const ATTACHING: &str = "attaching";

/// The TTL of the node's lease.
const LEASE: Duration = Duration::from_secs(10);
const MAX_IN_FLIGHT: u32 = 1024;

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    nats: String,
    /// The directory of the identities
    #[arg(long)]
    access: PathBuf,
    #[arg(long)]
    replicas: u8,
}

/// Stands in until it is killed.
pub async fn serve(args: Args) -> Result<(), Fatal> {
    let node = NodeId::new(NODE)?;
    let name = format!("stand-in/bench/{}", std::process::id());
    let bus = Bus::connect(identity::config(&args.access, args.nats, "stand-in")?).await?;
    let leases = bus.bucket(&bucket::LEASES, args.replicas).await?;
    let since = Timestamp::from_unix_ms(0);
    let pid = std::process::id();
    let holder = json!({"node": node, "agent": name, "pid": pid, "since": since}).to_string();
    let lease = leases.acquire(&key::node_lease(&node), holder.into(), LEASE, ask::trace()).await?;
    let lease = lease.keep();
    let spec = ServiceSpec {
        name: "bench-stand-in".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        description: "A node whose plugins do nothing".to_owned(),
        metadata: BTreeMap::new(),
    };
    let service = bus.service(spec).await?;
    answer(&service, verb::AgentDetach::subject(&node), None, json!({})).await?;
    let plugin = PluginId::new(ATTACHING)?;
    let (done, confirmed) = (json!({}), json!({"confirmed": true}));
    let on_node = PluginOnNode { plugin: plugin.clone(), node: node.clone() };
    let answers = [
        (verb::ControllerPublish::subject(&plugin), true, &done),
        (verb::ControllerPublishOnNode::subject(&on_node), false, &done),
        (verb::ControllerUnpublish::subject(&plugin), true, &done),
        (verb::ControllerUnpublishOnNode::subject(&on_node), false, &done),
        (verb::ControllerValidate::subject(&plugin), true, &confirmed),
        (verb::ControllerValidateOnNode::subject(&on_node), false, &confirmed),
    ];
    for (subject, is_shared, reply) in answers {
        let group = is_shared.then(|| controller_queue(&plugin));
        answer(&service, subject, group, reply.clone()).await?;
    }
    let host = verb::NodeHost::subject(&on_node);
    loop {
        // An earlier version of the registry does not have this verb.
        let _ = ask::ask(&bus, &host, &json!({})).await;
        let reported = ask::ask(&bus, &verb::NodeReport::subject(&()), &report()).await;
        if reported.as_ref().is_ok_and(|reported| reported["unproven"].is_null()) {
            break;
        }
        crate::tell(&format!("the node could not be reported yet: {reported:?}"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lease.lost().await;
    Err("the stand-in's lease was lost".into())
}

async fn answer(
    service: &Service,
    subject: String,
    group: Option<String>,
    reply: Value,
) -> Result<(), Fatal> {
    let spec = EndpointSpec {
        name: subject.rsplit('.').next().unwrap_or_default().to_owned(),
        subject,
        description: "Yes, at once".to_owned(),
        queue_group: group,
        max_in_flight: MAX_IN_FLIGHT,
        ..EndpointSpec::default()
    };
    let handler = move |_| std::future::ready(Ok::<Value, Problem>(reply.clone()));
    service.endpoint(spec, handler).await?;
    Ok(())
}

fn report() -> Value {
    let now = Timestamp::from_unix_ms(ms_since_1970());
    let instance = |half: &str, abilities: Value| {
        let mut instance = json!({
            "healthy": true, "description": "well", "provider": "bench", "version": "1",
            "since": now,
        });
        instance[half] = abilities;
        instance
    };
    let node = |controller: bool| {
        let abilities = json!({
            "external_node": NODE, "controller_service": controller, "stage_unstage_volume": true,
        });
        instance("node", abilities)
    };
    let attaches = instance("controller", json!({"publish_unpublish_volume": true}));
    json!({
        "node": NODE, "version": "bench", "boot_id": "bench", "clock": now,
        "instances": [
            {"plugin": PLAIN, "half": "node", "instance": node(false)},
            {"plugin": ATTACHING, "half": "node", "instance": node(true)},
            {"plugin": ATTACHING, "half": "controller", "instance": attaches},
        ],
    })
}
