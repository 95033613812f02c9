//! Calls to a controller, made by the executor's rules.

use std::collections::BTreeMap;
use std::future::Future;

use berth_bus::{Bus, Request};
use berth_contract::code::Code;
use berth_contract::hint::volume_argument;
use berth_contract::message::call::{Called, ClaimCall, Validate, Validated};
use berth_contract::message::secret::Secrets;
use berth_contract::problem::Problem;
use berth_csi::capability::volume_capability;
use berth_csi::redact::Secrets as SecretValues;
use berth_csi::{CallError, Code as CsiCode, Failure, v1};
use berth_domain::access::Capability;
use berth_domain::volume::{CallKind, SecretCall};
use berth_domain::{NodeId, SecretsId, Timestamp, VolumeKey};
use berth_service::clock;
use tokio::time::Instant;

use super::confirm::{read_confirmation, read_refusal};
use crate::executor::{ExecutorWork, PluginVolume, VolumeExecutor, WorkTurn, check_deadline};
use crate::fleet::events::{EventPublisher, ExecutedCall};
use crate::fleet::secret::{SealingKey, SecretsReader};
use crate::plugins::{self, Plugin};

/// Makes calls to one plugin's controller.
#[derive(Debug, Clone)]
pub(super) struct ControllerExecutor {
    pub(super) plugin: Plugin,
    pub(super) node: NodeId,
    pub(super) executor: VolumeExecutor,
    pub(super) bus: Bus,
    pub(super) events: EventPublisher,
    pub(super) sealing: SealingKey,
    pub(super) answers: super::CreationAnswers,
}

impl ControllerExecutor {
    /// `ControllerPublishVolume`.
    pub(super) async fn publish(
        self,
        call: ClaimCall,
        request: Request,
    ) -> Result<Called, Problem> {
        let (attempts, attempt) = (self.executor.attempts.clone(), call.attempt.clone());
        attempts.once(&attempt, Box::pin(self.make_publish(call, request))).await
    }

    async fn make_publish(self, call: ClaimCall, request: Request) -> Result<Called, Problem> {
        let locate = |problem: Problem| self.locate_problem(problem, &call);
        self.check_addressee(&call, CallKind::ControllerPublish).map_err(locate)?;
        let plugin = self.plugin.with_trace(request.trace);
        let mut wanted = publish_request(&call, &plugin)?;
        let secrets = self.secrets_of_call(&call, &request);
        let asked = plugin.clone();
        let work = async move {
            wanted.secrets = Secrets(secrets.await?).for_call(SecretCall::Publish).0;
            let answer = asked.call(wanted).await;
            let answer = answer.map_err(|error| plugins::problem_from_call(&error))?;
            Ok(Called { publish_context: answer.publish_context, answer: None })
        };
        self.run_call(&call, &request, &plugin, work).await.map_err(locate)
    }

    /// `ControllerUnpublishVolume`. That the plugin does not know the volume or the node is no
    /// success: a plugin that is sure that nothing is attached answers OK.
    pub(super) async fn unpublish(
        self,
        call: ClaimCall,
        request: Request,
    ) -> Result<Called, Problem> {
        let (attempts, attempt) = (self.executor.attempts.clone(), call.attempt.clone());
        attempts.once(&attempt, Box::pin(self.make_unpublish(call, request))).await
    }

    async fn make_unpublish(self, call: ClaimCall, request: Request) -> Result<Called, Problem> {
        let locate = |problem: Problem| self.locate_problem(problem, &call);
        self.check_addressee(&call, CallKind::ControllerUnpublish).map_err(locate)?;
        let plugin = self.plugin.with_trace(request.trace);
        let asked = plugin.clone();
        let secrets = self.secrets_of_call(&call, &request);
        let mut wanted = v1::ControllerUnpublishVolumeRequest {
            volume_id: call.external_id.clone(),
            node_id: external_node(&call).map_err(locate)?,
            ..v1::ControllerUnpublishVolumeRequest::default()
        };
        let (volume, node) = (volume_argument(&call.volume_key()), call.details.node.clone());
        let work = async move {
            wanted.secrets = Secrets(secrets.await?).for_call(SecretCall::Publish).0;
            asked.call(wanted).await.map_err(|error| not_detached(&volume, &node, &error))?;
            Ok(Called::default())
        };
        self.run_call(&call, &request, &plugin, work).await.map_err(locate)
    }

    /// `ValidateVolumeCapabilities` (A3). It changes nothing, and is cancelled at the caller's
    /// deadline, so that a plugin that hangs does not keep the volume from being detached.
    pub(super) async fn validate(
        self,
        asked: Validate,
        request: Request,
    ) -> Result<Validated, Problem> {
        let locate = |problem: Problem| {
            problem.at_step("controller.validate").plugin(&self.plugin.id).node(&self.node)
        };
        if asked.plugin != self.plugin.id {
            return Err(locate(self.misdirected(&asked.plugin)));
        }
        let volume = PluginVolume::new(&self.plugin.id, &asked.external_id);
        let turn = WorkTurn::new(volume, clock::now().after(request.remaining()));
        let volume = VolumeKey::new(asked.namespace.clone(), asked.volume.clone());
        let secrets = self.secrets(volume, asked.secrets.as_ref(), turn.deadline, &request);
        let plugin = self.plugin.with_trace(request.trace);
        let mut wanted = self.validate_request(&asked);
        let until = request.deadline;
        let work = async move {
            wanted.secrets = Secrets(secrets.await?).for_call(None).0;
            let capabilities = wanted.volume_capabilities.clone();
            let secrets = SecretValues::values_in(&wanted);
            let left = until.saturating_duration_since(Instant::now());
            match plugin.call_within(wanted, left).await {
                Ok(answer) => Ok(read_confirmation(&capabilities, &answer, &secrets)),
                Err(error) => read_refusal(&error),
            }
        };
        self.executor.run(turn, work).await.map_err(locate)
    }

    fn secrets_of_call(
        &self,
        call: &ClaimCall,
        request: &Request,
    ) -> impl Future<Output = Result<BTreeMap<String, String>, Problem>> + Send + use<> {
        let deadline = deadline(call, request);
        self.secrets(call.volume_key(), call.secrets.as_ref(), deadline, request)
    }

    /// The secrets of a call, once it is in its turn; nothing is called past the deadline.
    pub(super) fn secrets(
        &self,
        volume: VolumeKey,
        id: Option<&SecretsId>,
        deadline: Timestamp,
        request: &Request,
    ) -> impl Future<Output = Result<BTreeMap<String, String>, Problem>> + Send + use<> {
        let (bus, node) = (self.bus.clone(), self.node.clone());
        let secrets = SecretsReader { bus, node, sealing: self.sealing.clone() };
        let (id, trace) = (id.cloned(), request.trace);
        async move {
            // Boxed: most calls have no secrets, and need not carry the room for asking.
            let secrets = Box::pin(secrets.read(&volume, id.as_ref(), deadline, trace)).await?;
            check_deadline(deadline)?;
            Ok(secrets)
        }
    }

    async fn run_call(
        &self,
        call: &ClaimCall,
        request: &Request,
        plugin: &Plugin,
        work: impl Future<Output = Result<Called, Problem>> + Send + 'static,
    ) -> Result<Called, Problem> {
        let began = Instant::now();
        let volume = PluginVolume::new(&self.plugin.id, &call.external_id);
        let turn = WorkTurn::new(volume, deadline(call, request))
            .in_order(call.volume_key(), call.revision);
        let shown = ExecutorWork {
            volume: call.volume_key(),
            alloc: call.details.alloc.clone(),
            epoch: Some(call.details.epoch),
            step: call.call.as_str(),
            calls: Some(plugin.calls().clone()),
        };
        let done = self.executor.run_shown(turn, shown, work).await;
        self.events.learn(&call.namespace, &call.details.alloc, call.details.by.as_ref());
        let executed = ExecutedCall::of_claim(call, began.elapsed(), plugin.calls().list());
        self.events.publish_call(executed, done.as_ref().err(), request.trace);
        done
    }

    /// A call that came to the wrong subject does nothing.
    fn check_addressee(&self, call: &ClaimCall, kind: CallKind) -> Result<(), Problem> {
        if call.plugin != self.plugin.id {
            return Err(self.misdirected(&call.plugin));
        }
        if call.call != kind {
            let message = format!("a call of {} came to the subject of {kind}", call.call);
            return Err(Problem::new(Code::BadInput, message));
        }
        Ok(())
    }

    pub(super) fn misdirected(&self, plugin: &berth_domain::PluginId) -> Problem {
        let message = format!("a call for plugin {plugin} came to plugin {}", self.plugin.id);
        Problem::new(Code::BadInput, message)
    }

    fn locate_problem(&self, problem: Problem, call: &ClaimCall) -> Problem {
        let volume = call.volume_key();
        problem.at_step(call.call).volume(volume).plugin(&self.plugin.id).node(&self.node)
    }

    fn validate_request(&self, asked: &Validate) -> v1::ValidateVolumeCapabilitiesRequest {
        let later_modes = knows_later_modes(&self.plugin);
        let capability =
            |capability: &Capability| volume_capability(*capability, &asked.mount, later_modes);
        v1::ValidateVolumeCapabilitiesRequest {
            volume_id: asked.external_id.clone(),
            volume_context: asked.context.clone(),
            volume_capabilities: asked.capabilities.iter().map(capability).collect(),
            parameters: asked.parameters.clone(),
            ..v1::ValidateVolumeCapabilitiesRequest::default()
        }
    }
}

/// What a failed detach leaves its claim with. What stays for as long as the plugin knows nothing
/// says so itself, and what ends it; the volume is written as an argument.
fn not_detached(volume: &str, node: &NodeId, error: &CallError) -> Problem {
    let problem = plugins::problem_from_call(error);
    if may_be_at_work(error) {
        return Problem { code: Code::StillBusy, ..problem };
    }
    if error.code() != Some(CsiCode::NotFound) {
        return problem;
    }
    let message = format!(
        "{}; by CSI that is not to say that the volume is detached: it ends when the plugin \
         answers OK, or somebody who has looked at the storage says it with `berth volume detach \
         {volume} {node} --detached-at-storage --yes`",
        problem.message
    );
    Problem { message, ..problem }
}

/// Whether the plugin may still work on this call or an earlier one for the volume: it says so, or
/// its answer is missing. Until then no operator can confirm in its place (rule 16).
pub(crate) fn may_be_at_work(error: &CallError) -> bool {
    use CsiCode::{Aborted, Cancelled, DeadlineExceeded};
    match &error.failure {
        Failure::Unreachable { .. } => false,
        _ => error.code().is_none_or(|code| matches!(code, Aborted | Cancelled | DeadlineExceeded)),
    }
}

/// The earlier of what the attempt and what the caller allow.
fn deadline(call: &ClaimCall, request: &Request) -> Timestamp {
    call.deadline.min(clock::now().after(request.remaining()))
}

fn publish_request(
    call: &ClaimCall,
    plugin: &Plugin,
) -> Result<v1::ControllerPublishVolumeRequest, Problem> {
    let capability =
        Capability { access: call.details.access, attachment: call.details.attachment };
    let later_modes = knows_later_modes(plugin);
    let knows_readonly = plugin.controller().is_some_and(|can| can.publish_readonly);
    Ok(v1::ControllerPublishVolumeRequest {
        volume_id: call.external_id.clone(),
        node_id: external_node(call)?,
        volume_capability: Some(volume_capability(capability, &call.details.mount, later_modes)),
        // Plugins without `PUBLISH_READONLY` must not be asked for it (CSI,
        // `ControllerPublishVolume`).
        readonly: knows_readonly && call.details.access.attaches_read_only(call.details.mode),
        volume_context: call.details.context.clone(),
        ..v1::ControllerPublishVolumeRequest::default()
    })
}

fn knows_later_modes(plugin: &Plugin) -> bool {
    plugin.controller().is_some_and(|can| can.single_node_multi_writer)
}

/// What the plugin calls the node. An empty name would mean "all nodes" to an unpublish.
fn external_node(call: &ClaimCall) -> Result<String, Problem> {
    call.details.external_node.clone().filter(|node| !node.is_empty()).ok_or_else(|| {
        let message =
            format!("the call does not say what the plugin calls node {}", call.details.node);
        Problem::new(Code::BadInput, message)
            .next("see `berth node status`: the plugin's node service must say its node id")
    })
}
