//! Calls to a controller, made by the executor's rules.

use std::collections::BTreeMap;
use std::future::Future;

use berth_bus::{Bus, Request};
use berth_contract::code::Code;
use berth_contract::message::call::{Call, Called, Validate, Validated};
use berth_contract::problem::Problem;
use berth_csi::capability::volume_capability;
use berth_csi::v1;
use berth_domain::access::Capability;
use berth_domain::limits::{MAP_BYTES_MAX, MAP_ENTRIES_MAX};
use berth_domain::volume::CallKind;
use berth_domain::{NodeId, SecretsId, Timestamp, VolumeKey};
use berth_service::clock;
use tokio::time::Instant;

use crate::lane::{Lane, Lanes, Turn, check_time};
use crate::plugin::{self, Plugin};
use crate::secret::Asking;
use crate::tell::{Executed, Teller};

/// Makes calls to one plugin's controller.
#[derive(Debug, Clone)]
pub(super) struct Executor {
    pub(super) plugin: Plugin,
    pub(super) node: NodeId,
    pub(super) lanes: Lanes,
    pub(super) bus: Bus,
    pub(super) tell: Teller,
}

impl Executor {
    /// `ControllerPublishVolume`.
    pub(super) async fn publish(&self, call: Call, request: &Request) -> Result<Called, Problem> {
        let told = |problem: Problem| self.place(problem, &call);
        self.check(&call, CallKind::ControllerPublish).map_err(told)?;
        let plugin = self.plugin.at_work(request.trace);
        let (asked, mut wanted) = (plugin.clone(), publish_request(&call, &self.plugin)?);
        let secrets = self.secrets(
            call.volume_key(),
            call.secrets.as_ref(),
            deadline(&call, request),
            request,
        );
        let work = async move {
            wanted.secrets = secrets.await?;
            let answer = asked.call(wanted).await.map_err(|error| plugin::problem(&error))?;
            let publish_context = answer.publish_context;
            check_context(&publish_context)?;
            Ok(Called { publish_context })
        };
        self.run(&call, request, &plugin, work).await.map_err(told)
    }

    /// `ControllerUnpublishVolume`. That the plugin does not know the volume or the node is no
    /// success: a plugin that is sure that nothing is attached answers OK.
    pub(super) async fn unpublish(&self, call: Call, request: &Request) -> Result<Called, Problem> {
        let told = |problem: Problem| self.place(problem, &call);
        self.check(&call, CallKind::ControllerUnpublish).map_err(told)?;
        let plugin = self.plugin.at_work(request.trace);
        let asked = plugin.clone();
        let secrets = self.secrets(
            call.volume_key(),
            call.secrets.as_ref(),
            deadline(&call, request),
            request,
        );
        let mut wanted = v1::ControllerUnpublishVolumeRequest {
            volume_id: call.external_id.clone(),
            node_id: external_node(&call).map_err(told)?,
            ..v1::ControllerUnpublishVolumeRequest::default()
        };
        let work = async move {
            wanted.secrets = secrets.await?;
            asked.call(wanted).await.map_err(|error| plugin::problem(&error))?;
            Ok(Called::default())
        };
        self.run(&call, request, &plugin, work).await.map_err(told)
    }

    /// `ValidateVolumeCapabilities` (A3).
    pub(super) async fn validate(
        &self,
        asked: Validate,
        request: &Request,
    ) -> Result<Validated, Problem> {
        let told = |problem: Problem| {
            problem.at("controller.validate").plugin(&self.plugin.id).node(&self.node)
        };
        if asked.plugin != self.plugin.id {
            return Err(told(self.misdirected(&asked.plugin)));
        }
        let turn = Turn {
            lane: self.lane(&asked.external_id),
            order: None,
            deadline: clock::now().after(request.remaining()),
        };
        let volume = VolumeKey::new(asked.namespace.clone(), asked.volume.clone());
        let secrets = self.secrets(volume, asked.secrets.as_ref(), turn.deadline, request);
        let plugin = self.plugin.at_work(request.trace);
        let mut wanted = self.validate_request(&asked);
        let work = async move {
            wanted.secrets = secrets.await?;
            let capabilities = wanted.volume_capabilities.clone();
            let answer = plugin.call(wanted).await.map_err(|error| plugin::problem(&error))?;
            Ok(validated(&capabilities, answer))
        };
        self.lanes.run(turn, work).await.map_err(told)
    }

    /// The secrets of a call, once it is in its turn; nothing is called past the deadline.
    fn secrets(
        &self,
        volume: VolumeKey,
        id: Option<&SecretsId>,
        deadline: Timestamp,
        request: &Request,
    ) -> impl Future<Output = Result<BTreeMap<String, String>, Problem>> + Send + use<> {
        let (bus, node) = (self.bus.clone(), self.node.clone());
        let asking = Asking { bus, node, deadline, trace: request.trace };
        let id = id.cloned();
        async move {
            // Boxed: most calls have no secrets, and need not carry the room for asking.
            let secrets = Box::pin(asking.secrets(&volume, id.as_ref())).await?;
            check_time(deadline)?;
            Ok(secrets)
        }
    }

    async fn run(
        &self,
        call: &Call,
        request: &Request,
        plugin: &Plugin,
        work: impl Future<Output = Result<Called, Problem>> + Send + 'static,
    ) -> Result<Called, Problem> {
        let began = Instant::now();
        let turn = Turn {
            lane: self.lane(&call.external_id),
            order: Some((call.volume_key(), call.revision)),
            deadline: deadline(call, request),
        };
        let done = self.lanes.run(turn, work).await;
        let outcome = done.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        tracing::info!(
            call = %call.call,
            volume = %call.volume_key(),
            alloc = %call.alloc,
            attempt = %call.attempt,
            plugin = %call.plugin,
            trace = request.trace.trace_id(),
            outcome,
            "executed"
        );
        let told = Executed { call, took: began.elapsed(), calls: plugin.made() };
        self.tell.executed(told, done.as_ref().err(), request.trace);
        done
    }

    fn lane(&self, external_id: &str) -> Lane {
        Lane { plugin: self.plugin.id.clone(), external_id: external_id.to_owned() }
    }

    /// A call that came to the wrong subject does nothing.
    fn check(&self, call: &Call, kind: CallKind) -> Result<(), Problem> {
        if call.plugin != self.plugin.id {
            return Err(self.misdirected(&call.plugin));
        }
        if call.call != kind {
            let message = format!("a call of {} came to the subject of {kind}", call.call);
            return Err(Problem::new(Code::BadInput, message));
        }
        Ok(())
    }

    fn misdirected(&self, plugin: &berth_domain::PluginId) -> Problem {
        let message = format!("a call for plugin {plugin} came to plugin {}", self.plugin.id);
        Problem::new(Code::BadInput, message)
    }

    fn place(&self, problem: Problem, call: &Call) -> Problem {
        let volume = call.volume_key();
        problem.at(call.call).volume(volume).plugin(&self.plugin.id).node(&self.node)
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

/// The earlier of what the attempt and what the caller allow.
fn deadline(call: &Call, request: &Request) -> Timestamp {
    call.deadline.min(clock::now().after(request.remaining()))
}

fn publish_request(
    call: &Call,
    plugin: &Plugin,
) -> Result<v1::ControllerPublishVolumeRequest, Problem> {
    let capability = Capability { access: call.access, attachment: call.attachment };
    let later_modes = knows_later_modes(plugin);
    let knows_readonly = plugin.controller().is_some_and(|can| can.publish_readonly);
    Ok(v1::ControllerPublishVolumeRequest {
        volume_id: call.external_id.clone(),
        node_id: external_node(call)?,
        volume_capability: Some(volume_capability(capability, &call.mount, later_modes)),
        // Plugins without `PUBLISH_READONLY` must not be asked for it (CSI,
        // `ControllerPublishVolume`).
        readonly: knows_readonly && call.access.attaches_read_only(call.mode),
        volume_context: call.context.clone(),
        ..v1::ControllerPublishVolumeRequest::default()
    })
}

fn knows_later_modes(plugin: &Plugin) -> bool {
    plugin.controller().is_some_and(|can| can.single_node_multi_writer)
}

/// What the plugin calls the node. An empty name would mean "all nodes" to an unpublish.
fn external_node(call: &Call) -> Result<String, Problem> {
    call.external_node.clone().filter(|node| !node.is_empty()).ok_or_else(|| {
        let message = format!("the call does not say what the plugin calls node {}", call.node);
        Problem::new(Code::BadInput, message)
            .next("see `berth node status`: the plugin's node service must say its node id")
    })
}

/// It goes into a record, and from there into every mount.
fn check_context(context: &BTreeMap<String, String>) -> Result<(), Problem> {
    let bytes: usize = context.iter().map(|(key, value)| key.len() + value.len()).sum();
    if context.len() <= MAP_ENTRIES_MAX && bytes <= MAP_BYTES_MAX {
        return Ok(());
    }
    let message = format!(
        "the plugin attached the volume, and answered with a publish_context of {} entries and \
         {bytes} bytes; at most {MAP_ENTRIES_MAX} and {MAP_BYTES_MAX} are taken",
        context.len()
    );
    Err(Problem::new(Code::PluginFailed, message).retryable())
}

/// Confirmed, when every capability asked for is among those confirmed: older plugins ignore fields
/// that they do not know, and confirm the rest.
fn validated(
    asked: &[v1::VolumeCapability],
    answer: v1::ValidateVolumeCapabilitiesResponse,
) -> Validated {
    let confirmed = answer.confirmed.is_some_and(|confirmed| {
        asked.iter().all(|capability| confirmed.volume_capabilities.contains(capability))
    });
    let message = match answer.message.as_str() {
        _ if confirmed => None,
        "" => Some("the plugin did not confirm each of them, and does not say why".to_owned()),
        _ => Some(answer.message),
    };
    Validated { confirmed, message }
}

#[cfg(test)]
mod tests {
    use berth_domain::access::{AccessMode, AttachmentMode};
    use berth_domain::volume::MountOptions;

    use super::*;

    #[test]
    fn a_confirmation_counts_when_it_repeats_what_was_asked() {
        let one = |access| {
            let capability = Capability { access, attachment: AttachmentMode::FileSystem };
            volume_capability(capability, &MountOptions::default(), false)
        };
        let (writer, reader) =
            (one(AccessMode::SingleNodeWriter), one(AccessMode::MultiNodeReaderOnly));
        let answer = |confirmed: Option<Vec<v1::VolumeCapability>>, message: &str| {
            let confirmed = confirmed.map(|volume_capabilities| {
                v1::validate_volume_capabilities_response::Confirmed {
                    volume_capabilities,
                    ..Default::default()
                }
            });
            v1::ValidateVolumeCapabilitiesResponse { confirmed, message: message.to_owned() }
        };
        let asked = [writer.clone(), reader.clone()];
        let all = validated(&asked, answer(Some(vec![reader, writer.clone()]), ""));
        assert_eq!(all, Validated { confirmed: true, message: None });
        let some = validated(&asked, answer(Some(vec![writer]), ""));
        assert!(!some.confirmed && some.message.is_some());
        let no = validated(&asked, answer(None, "not for several nodes"));
        let message = Some("not for several nodes".to_owned());
        assert_eq!(no, Validated { confirmed: false, message });
    }

    #[test]
    fn a_context_too_large_for_a_record_is_not_taken() {
        let small = [("device".to_owned(), "/dev/x".to_owned())].into();
        assert!(check_context(&small).is_ok());
        let large = [("device".to_owned(), "x".repeat(MAP_BYTES_MAX))].into();
        assert_eq!(check_context(&large).unwrap_err().code, Code::PluginFailed);
    }
}
