//! A node whose plugins do nothing: it holds the node's lease, reports two plugins, and answers
//! every call at once.
//!
//! With it a rate shows what the services cost, and not what a plugin does. It reports and answers
//! as an agent would, over the same subjects.

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

/// A plugin without a controller.
pub const PLAIN: &str = "plain";
/// A plugin whose controller attaches.
pub const ATTACHING: &str = "attaching";

const LEASE: Duration = Duration::from_secs(10);
const MAX_IN_FLIGHT: u32 = 1024;

/// How it is started.
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
    let (done, yes) = (json!({}), json!({"confirmed": true}));
    let own = PluginOnNode { plugin: plugin.clone(), node: node.clone() };
    let answers = [
        (verb::ControllerPublish::subject(&plugin), true, &done),
        (verb::ControllerPublishOnNode::subject(&own), false, &done),
        (verb::ControllerUnpublish::subject(&plugin), true, &done),
        (verb::ControllerUnpublishOnNode::subject(&own), false, &done),
        (verb::ControllerValidate::subject(&plugin), true, &yes),
        (verb::ControllerValidateOnNode::subject(&own), false, &yes),
    ];
    for (subject, is_shared, says) in answers {
        let group = is_shared.then(|| controller_queue(&plugin));
        answer(&service, subject, group, says.clone()).await?;
    }
    let host = verb::NodeHost::subject(&own);
    loop {
        // An earlier version of the registry knows no such right.
        let _ = ask::ask(&bus, &host, &json!({})).await;
        let told = ask::ask(&bus, &verb::NodeReport::subject(&()), &report()).await;
        if told.as_ref().is_ok_and(|told| told["unproven"].is_null()) {
            break;
        }
        crate::tell(&format!("the node could not be reported yet: {told:?}"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lease.lost().await;
    Err("the stand-in's lease was lost".into())
}

async fn answer(
    service: &Service,
    subject: String,
    group: Option<String>,
    says: Value,
) -> Result<(), Fatal> {
    let spec = EndpointSpec {
        name: subject.rsplit('.').next().unwrap_or_default().to_owned(),
        subject,
        description: "Yes, at once".to_owned(),
        queue_group: group,
        max_in_flight: MAX_IN_FLIGHT,
        ..EndpointSpec::default()
    };
    let says = move |_| std::future::ready(Ok::<Value, Problem>(says.clone()));
    service.endpoint(spec, says).await?;
    Ok(())
}

fn report() -> Value {
    let now = since_1970();
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

fn since_1970() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ms = since.unwrap_or_default().as_millis();
    Timestamp::from_unix_ms(u64::try_from(ms).unwrap_or(u64::MAX))
}
