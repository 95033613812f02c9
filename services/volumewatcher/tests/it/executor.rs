//! The executors: a node's agent and controllers whose answers the test chooses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_bus::{Bus, EndpointSpec, Service, ServiceSpec};
use berth_contract::code::Code;
use berth_contract::message::call::{Called, ClaimCall};
use berth_contract::problem::Problem;
use berth_contract::subject::controller_queue;
use berth_contract::verb::{self, NodeAndNamespace, PluginOnNode, Verb as _};
use berth_domain::volume::CallKind;
use berth_domain::{NodeId, PluginId, Timestamp};
use berth_service::clock;
use serde_json::json;

/// The answer to the calls of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    After(Duration),
    Never,
    Error,
}

/// One call.
#[derive(Debug, Clone)]
pub struct Seen {
    pub call: ClaimCall,
    pub began: Timestamp,
    pub answered: bool,
}

/// Node `n1` and the controllers of its plugins.
#[derive(Clone)]
pub struct Executor {
    seen: Arc<Mutex<Vec<Seen>>>,
    answers: Arc<Mutex<BTreeMap<(String, &'static str), Answer>>>,
    service: Arc<Service>,
    node: NodeId,
}

impl Executor {
    pub async fn start(bus: &Bus, node: &str) -> Self {
        let spec = ServiceSpec {
            name: "test-executor".to_owned(),
            version: "1.0.0".to_owned(),
            description: "answers as it is told".to_owned(),
            metadata: BTreeMap::new(),
        };
        let service = Arc::new(bus.service(spec).await.unwrap());
        let node = NodeId::new(node).unwrap();
        let detach = verb::AgentDetach::subject(&node);
        let executor = Self { seen: Arc::default(), answers: Arc::default(), service, node };
        executor.serve("detach", detach, None).await;
        executor
    }

    /// Hosts the controller of the plugin from now on.
    pub async fn host(&self, plugin: &str) {
        let plugin = PluginId::new(plugin).unwrap();
        let group = || Some(controller_queue(&plugin));
        let own = PluginOnNode { plugin: plugin.clone(), node: self.node.clone() };
        for (subject, group) in [
            (verb::ControllerPublish::subject(&plugin), group()),
            (verb::ControllerPublishOnNode::subject(&own), None),
            (verb::ControllerUnpublish::subject(&plugin), group()),
            (verb::ControllerUnpublishOnNode::subject(&own), None),
        ] {
            self.serve("controller", subject, group).await;
        }
        let spec = EndpointSpec {
            name: "validate".to_owned(),
            subject: verb::ControllerValidate::subject(&plugin),
            description: "always".to_owned(),
            queue_group: group(),
            ..EndpointSpec::default()
        };
        let yes = |_| std::future::ready(Ok::<_, Problem>(json!({"confirmed": true})));
        self.service.endpoint(spec, yes).await.unwrap();
    }

    /// From now on the node's agent answers that it works on no call.
    pub async fn answer_idle(&self) {
        let spec = EndpointSpec {
            name: "status".to_owned(),
            subject: verb::AgentStatus::subject(&NodeAndNamespace::any_of(self.node.clone())),
            description: "at nothing".to_owned(),
            ..EndpointSpec::default()
        };
        let idle = json!({"node": self.node, "mounts": [], "controllers": []});
        let answer = move |_| std::future::ready(Ok::<_, Problem>(idle.clone()));
        self.service.endpoint(spec, answer).await.unwrap();
    }

    async fn serve(&self, name: &str, subject: String, queue_group: Option<String>) {
        let spec = EndpointSpec {
            name: name.to_owned(),
            subject,
            description: "as it is told".to_owned(),
            queue_group,
            max_in_flight: 4096,
            ..EndpointSpec::default()
        };
        let executor = self.clone();
        let answer = move |request: berth_bus::Request| {
            let executor = executor.clone();
            async move { executor.answer(request.decode::<ClaimCall>("test")?).await }
        };
        self.service.endpoint(spec, answer).await.unwrap();
    }

    async fn answer(&self, call: ClaimCall) -> Result<Called, Problem> {
        let answer = self.answer_to(&call);
        let at = {
            let mut seen_calls = self.seen.lock().unwrap();
            seen_calls.push(Seen { call, began: clock::now(), answered: false });
            seen_calls.len() - 1
        };
        match answer {
            Answer::After(wait) => tokio::time::sleep(wait).await,
            Answer::Never => std::future::pending().await,
            Answer::Error => {
                return Err(Problem::new(Code::PluginFailed, "as it was told").retryable());
            }
        }
        self.seen.lock().unwrap()[at].answered = true;
        Ok(Called::default())
    }

    fn answer_to(&self, call: &ClaimCall) -> Answer {
        let answers = self.answers.lock().unwrap();
        let to = |of: &str| answers.get(&(of.to_owned(), call.call.as_str())).copied();
        let answer = to(call.volume.as_str()).or_else(|| to(call.plugin.as_str()));
        answer.unwrap_or(Answer::After(Duration::ZERO))
    }

    /// Answers calls of this kind for the plugin, or for the volume, in this way from now on.
    pub fn tell(&self, of: &str, call: CallKind, answer: Answer) {
        self.answers.lock().unwrap().insert((of.to_owned(), call.as_str()), answer);
    }

    /// The calls of a kind to a plugin so far.
    pub fn seen(&self, plugin: &str, call: CallKind) -> Vec<Seen> {
        let seen_calls = self.seen.lock().unwrap();
        let is_meant = |seen: &&Seen| seen.call.plugin.as_str() == plugin && seen.call.call == call;
        seen_calls.iter().filter(is_meant).cloned().collect()
    }
}
