//! Reads a volume's secrets from the claim service just before the agent makes a plugin call (A9).
//!
//! **Owns** the agent's sealing key. It is made when the agent starts, and is in memory only.
//!
//! **Promises** that the claim service seals secrets for no other key than the one that this agent
//! reported. The secrets are dropped with the call.
//!
//! **Never** writes secrets or the key to a journal, a log or an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::{Client, FailedTry, Retry};
use berth_contract::code::Code;
use berth_contract::message::secret::Open;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{NodeId, SecretsId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::seal::Keys;
use tokio::sync::watch;
use tokio::time::Instant;

/// Largest time for the claim service's answer. The plugin call has a deadline of its own.
const SECRETS_TIMEOUT: Duration = Duration::from_secs(5);
/// Shortest time between two reports that only repeat the key: an older registry never takes it,
/// and many calls may wait for it.
const REPORT_SPACING: Duration = Duration::from_secs(1);

/// The key that secrets for this node are sealed for. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SealingKey {
    keys: Arc<Keys>,
    /// When the claim service last missed the key on the node's record.
    missed: watch::Sender<Option<Instant>>,
}

impl SealingKey {
    /// A new key, for the life of this process.
    pub fn generate() -> Self {
        Self { keys: Arc::new(Keys::once()), missed: watch::Sender::new(None) }
    }

    /// The public half, for the report.
    pub fn public(&self) -> String {
        self.keys.public()
    }

    /// Changes when the key is to be reported again.
    pub fn follow_missed(&self) -> watch::Receiver<Option<Instant>> {
        self.missed.subscribe()
    }

    fn request_report(&self) {
        self.missed.send_if_modified(|last| {
            let is_due = last.is_none_or(|last| last.elapsed() >= REPORT_SPACING);
            if is_due {
                *last = Some(Instant::now());
            }
            is_due
        });
    }
}

/// Reads the secrets of volumes for plugin calls. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SecretsReader {
    /// The bus.
    pub bus: Bus,
    /// The node whose agent makes the plugin calls.
    pub node: NodeId,
    /// The key that the answers are sealed for.
    pub sealing: SealingKey,
}

impl SecretsReader {
    /// The secrets in the form that the plugin takes, for a call with this deadline and trace.
    /// Empty if the volume has no secrets.
    pub async fn read(
        &self,
        volume: &VolumeKey,
        id: Option<&SecretsId>,
        deadline: Timestamp,
        trace: TraceContext,
    ) -> Result<BTreeMap<String, String>, Problem> {
        let Some(id) = id else { return Ok(BTreeMap::new()) };
        let request = Open {
            namespace: volume.namespace.clone(),
            volume: volume.volume.clone(),
            secrets: id.clone(),
            to: self.sealing.public(),
        };
        let within = deadline.since(clock::now()).min(SECRETS_TIMEOUT);
        let call = Call::within(trace, within);
        let client = Client::new(self.bus.clone());
        let again = |failed: &FailedTry<'_>| match failed.problem.code {
            // The registry has no record of this agent's start yet, or lost it since.
            Code::SealingKeyUnknown => {
                self.sealing.request_report();
                true
            }
            Code::NoAnswer => true,
            _ => false,
        };
        let asked = client
            .persist::<verb::SecretOpen>(&self.node, &request, &call, Retry::USUAL, again)
            .await;
        self.sealing.keys.open(volume, &asked?).map(|secrets| secrets.0).map_err(|error| {
            let message = format!("the volume's secrets cannot be opened here: {error}");
            Problem::new(Code::SecretsUnavailable, message).at_step(verb::SecretOpen::STEP)
        })
    }
}
