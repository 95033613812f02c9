//! Reads a volume's secrets from the claim service just before the agent makes a plugin call (A9).
//!
//! **Promises** that each request has a key of its own, for which the claim service seals the
//! secrets. The secrets are dropped with the call.
//!
//! **Never** writes secrets to a journal, a log or an error.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::Client;
use berth_contract::code::Code;
use berth_contract::message::secret::Open;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{NodeId, SecretsId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::seal::Keys;

/// Largest time for the claim service's answer. The plugin call has a deadline of its own.
const SECRETS_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the secrets for one plugin call.
#[derive(Debug, Clone)]
pub struct SecretsQuery {
    pub bus: Bus,
    /// The node whose agent makes the plugin call.
    pub node: NodeId,
    /// The deadline of the plugin call.
    pub deadline: Timestamp,
    pub trace: TraceContext,
}

impl SecretsQuery {
    /// The secrets in the form that the plugin takes. Empty if the volume has no secrets.
    pub async fn read_secrets(
        &self,
        volume: &VolumeKey,
        id: Option<&SecretsId>,
    ) -> Result<BTreeMap<String, String>, Problem> {
        let Some(id) = id else { return Ok(BTreeMap::new()) };
        let keys = Keys::once();
        let request = Open {
            namespace: volume.namespace.clone(),
            volume: volume.volume.clone(),
            secrets: id.clone(),
            to: keys.public(),
        };
        let within = self.deadline.since(clock::now()).min(SECRETS_TIMEOUT);
        let call = Call::within(self.trace.child(&mut rand::rng()), within);
        let client = Client::new(self.bus.clone());
        let sealed = client.once::<verb::SecretOpen>(&self.node, &request, &call).await?;
        keys.open(volume, &sealed).map(|secrets| secrets.0).map_err(|error| {
            let message = format!("the volume's secrets cannot be opened here: {error}");
            Problem::new(Code::SecretsUnavailable, message).at_step(verb::SecretOpen::STEP)
        })
    }
}
