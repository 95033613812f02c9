//! Looking: what everybody may do at any time, and what changes nothing.

use std::time::Duration;

use berth_contract::problem::Problem;
use berth_contract::subject::{AgentVerb, Global, Namespaced};
use berth_domain::Namespace;
use serde_json::{Value, json};

use super::Run;
use super::client::{node_id, volume_id};
use crate::plan::Read;

impl Run {
    pub(super) async fn look(&self, read: Read) -> String {
        self.read(read, Duration::ZERO)
            .await
            .map_or_else(|problem| problem.code.as_str().to_owned(), |_| "done".to_owned())
    }

    /// Asks for it, and again for so long as that may help.
    pub(super) async fn read(&self, read: Read, patience: Duration) -> Result<Value, Problem> {
        let namespaced = |verb: Namespaced| verb.subject(&Namespace::default());
        let nothing = json!({});
        let (subject, body) = match read {
            Read::Volume(volume) => {
                (namespaced(Namespaced::VolumeStatus), json!({"id": volume_id(volume)}))
            }
            Read::Volumes => (namespaced(Namespaced::VolumeList), nothing),
            Read::Claims => (namespaced(Namespaced::ClaimStatus), nothing),
            Read::Allocs => (namespaced(Namespaced::AllocList), nothing),
            Read::Plugins => (Global::PluginStatus.subject(), nothing),
            Read::Nodes => (Global::NodeStatus.subject(), nothing),
            Read::Agent(node) => (AgentVerb::Status.subject(&node_id(node)), nothing),
        };
        self.pursue(&subject, &body, patience, |problem| problem.retryable).await
    }
}
