//! Status and list requests.

use std::time::Duration;

use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use serde_json::{Value, json};

use super::Run;
use super::client::{node_id, volume_id};
use crate::plan::Read;

impl Run {
    pub(super) async fn read_once(&self, read: Read) -> String {
        self.read(read, Duration::ZERO)
            .await
            .map_or_else(|problem| problem.code.as_str().to_owned(), |_| "done".to_owned())
    }

    /// Sends the read, and repeats it for `patience` as long as a retry may help.
    pub(super) async fn read(&self, read: Read, patience: Duration) -> Result<Value, Problem> {
        let namespace = Namespace::default();
        let nothing = json!({});
        let (subject, body) = match read {
            Read::Volume(volume) => {
                (verb::VolumeStatus::subject(&namespace), json!({"id": volume_id(volume)}))
            }
            Read::Volumes => (verb::VolumeList::subject(&namespace), nothing),
            Read::Claims => (verb::ClaimStatus::subject(&namespace), nothing),
            Read::Allocs => (verb::AllocList::subject(&namespace), nothing),
            Read::Plugins => (verb::PluginStatus::subject(&()), nothing),
            Read::Nodes => (verb::NodeStatus::subject(&()), nothing),
            Read::Agent(node) => (
                verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of(node_id(node))),
                nothing,
            ),
        };
        self.pursue(&subject, &body, patience, |problem| problem.retryable).await
    }
}
