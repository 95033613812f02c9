//! The secrets of a plugin call, asked for just before it is made (A9).
//!
//! **Promises** that they are sealed for a key of this one asking, live no longer than the call,
//! and stand in no journal, log or error.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_contract::code::Code;
use berth_contract::message::secret::Open;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{NodeId, SecretsId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::seal::Keys;

/// How long the claim service may take to answer; the call it is for has a deadline of its own.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who asks for the secrets of which call.
#[derive(Debug, Clone)]
pub struct SecretsQuery {
    pub bus: Bus,
    /// The node that is to make the call.
    pub node: NodeId,
    /// Past this the call is not made.
    pub deadline: Timestamp,
    pub trace: TraceContext,
}

impl SecretsQuery {
    /// The secrets of a volume, as the plugin wants them; none for a volume without.
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
        let step = verb::SecretOpen::STEP;
        let within = self.deadline.since(clock::now()).min(PATIENCE);
        let call = Call::within(self.trace.child(&mut rand::rng()), within);
        let sealed = self.bus.ask_service::<verb::SecretOpen>(&self.node, &request, &call).await;
        let sealed = sealed.map_err(|error| error.into_problem(step))?;
        keys.open(volume, &sealed).map(|secrets| secrets.0).map_err(|error| {
            let said = format!("the volume's secrets cannot be opened here: {error}");
            Problem::new(Code::SecretsUnavailable, said).at_step(step)
        })
    }
}
