//! `volume.register` (A3, A4).
//!
//! **Promises**
//!
//! - The caller gets all faults of the document at once.
//! - A registration that is refused in any case is refused before the plugin is asked.
//! - If only one controller knows a volume, as the answers show, that controller's node is the
//!   volume's home.
//! - Claims may be created and released while the plugin is asked: only the spec is written, after
//!   a decision on the volume's state at that time.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_bus::{Call, Request, RequestError};
use berth_contract::code::Code;
use berth_contract::decode::{self, Decode, Fault};
use berth_contract::message::call::{Validate, Validated};
use berth_contract::message::many::RegisterVolumes;
use berth_contract::message::volume::{RegisterVolume, Registered};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, PluginOnNode, Verb as _};
use berth_domain::limits::LIST_MAX;
use berth_domain::plugin::{ControllerChoice, Half, Plugin, lacks_nodes};
use berth_domain::topology::reaches;
use berth_domain::volume::{Command, Context, Volume, VolumeSpec, step};
use berth_domain::{Namespace, NodeId, PluginId, SecretsId, VolumeKey};
use berth_service::projection::Instances;
use serde_json::Value;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::read::plan;
use crate::store::handle;
use crate::store::secrets::{self, SecretsChange};
use crate::store::state::State;
use crate::store::transact::Committed;

const REGISTER: &str = verb::VolumeRegister::STEP;

/// How long a second controller is asked, after one has confirmed the volume. Without its answer
/// the topologies decide.
const SECOND_OPINION: Duration = Duration::from_secs(2);

/// Decodes the document. Its faults include those that only a running system can find: an unready
/// plugin, and another namespace than the request's.
pub fn decode_document(
    state: &State,
    namespace: &Namespace,
    request: &Request,
) -> Result<RegisterVolume, Problem> {
    decode_with(state, namespace, request, |value| vec![(String::new(), value)])
}

/// Decodes many documents, with all their faults.
pub fn decode_documents(
    state: &State,
    namespace: &Namespace,
    request: &Request,
) -> Result<RegisterVolumes, Problem> {
    decode_with(state, namespace, request, |value| {
        let documents = value.get("volumes").and_then(Value::as_array);
        let documents = documents.into_iter().flatten().take(LIST_MAX).enumerate();
        documents.map(|(at, document)| (format!("volumes[{at}]."), document)).collect()
    })
}

/// Decodes a request. `documents` finds its documents, each with the beginning of its paths.
fn decode_with<T: Decode>(
    state: &State,
    namespace: &Namespace,
    request: &Request,
    documents: impl Fn(&Value) -> Vec<(String, &Value)>,
) -> Result<T, Problem> {
    let bad = |faults| request.bad_input(REGISTER, faults);
    let value = decode::json(&request.body).map_err(bad)?;
    let (mut elsewhere, mut unready) = (Vec::new(), Vec::new());
    for (at, document) in documents(&value) {
        let text = |field: &str| document.get(field).and_then(Value::as_str);
        let fault =
            |field: &str, problem| Fault { path: format!("{at}{field}"), problem, line: None };
        if let Some(other) = text("namespace").filter(|other| *other != namespace.as_str()) {
            let problem = format!("is {other}, but the request is for {namespace}");
            elsewhere.push(fault("namespace", problem));
        }
        let plugin = text("plugin").and_then(|id| PluginId::new(id).ok());
        let problem = plugin.and_then(|plugin| has_controller(state, &plugin).err());
        unready.extend(problem.map(|problem| fault("plugin", problem.message)));
    }
    let mut faults = match decode::decode(value, request.unknown) {
        Ok(decoded) if elsewhere.is_empty() => return Ok(decoded),
        Ok(_) => Vec::new(),
        Err(faults) => faults,
    };
    faults.append(&mut elsewhere);
    faults.append(&mut unready);
    Err(bad(faults))
}

/// Refuses documents whose plugin would have to be asked and cannot serve any volume: names all of
/// them.
pub fn check_plugins(
    state: &State,
    namespace: &Namespace,
    documents: &[RegisterVolume],
) -> Result<(), Problem> {
    let mut code = None;
    let unready = documents.iter().enumerate().filter_map(|(at, document)| {
        let volume = VolumeKey::new(namespace.clone(), document.id.clone());
        let secrets = secrets::current_secrets(state, &volume);
        if is_validated(state, &volume, &VolumeSpec { secrets, ..document.spec.clone() }) {
            return None;
        }
        let problem = has_controller(state, &document.spec.plugin).err()?;
        code.get_or_insert(problem.code);
        let path = format!("volumes[{at}].plugin");
        Some(Fault { path, problem: problem.message, line: None })
    });
    let faults: Vec<Fault> = unready.collect();
    let Some(code) = code else { return Ok(()) };
    let message = Problem::bad_input(faults.clone()).message;
    Err(Problem { faults, ..Problem::new(code, message).retryable() })
}

/// Registers a volume that its plugin knows, or updates its spec.
pub async fn register(
    state: &State,
    namespace: &Namespace,
    request: RegisterVolume,
    caller: &Caller,
) -> Result<Registered, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.id.clone());
    let plugin = request.spec.plugin.clone();
    let with_volume_and_plugin = |problem: Problem| problem.volume(&volume).plugin(&plugin);
    // Checked before secrets are stored and the plugin is asked, because nothing could be written.
    state.check_readable(&volume).map_err(|error| state.problem(error, &volume))?;
    let before = secrets::current_secrets(state, &volume);
    let wanted = secrets::prepare_secrets(state, &volume, request.secrets, trace).await;
    let wanted = wanted.map_err(with_volume_and_plugin)?;
    let registered =
        validate_and_write(state, &volume, request.spec, &wanted, trace, deadline).await;
    // Of the old and the new secrets, those that neither the spec nor a snapshot names are removed.
    let unused = match (&registered, &wanted) {
        (Err(RegisterError::NotWritten(_)), SecretsChange::New(id)) => Some(id),
        (Ok(_), SecretsChange::New(_) | SecretsChange::Removed) => before.as_ref(),
        _ => None,
    };
    if let Some(unused) = unused.filter(|unused| !secrets::is_named(state, &volume, unused)) {
        state.vault.remove(&volume, unused, trace).await;
    }
    let done = registered.map_err(|error| match error {
        RegisterError::NotWritten(problem) | RegisterError::Unknown(problem) => {
            with_volume_and_plugin(problem)
        }
    })?;
    Ok(Registered {
        id: volume.volume.clone(),
        namespace: volume.namespace.clone(),
        changed: done.step.write.is_some(),
        index: done.revision,
    })
}

/// Why a registration failed, and whether the spec may have been written.
enum RegisterError {
    /// The spec is unchanged.
    NotWritten(Problem),
    /// The spec may have been written.
    Unknown(Problem),
}

/// Asks the plugin, which may take long, and writes the spec; both with the requested secrets.
async fn validate_and_write(
    state: &State,
    volume: &VolumeKey,
    spec: VolumeSpec,
    wanted: &SecretsChange,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Committed, RegisterError> {
    let with = |current: Option<SecretsId>| VolumeSpec {
        secrets: match wanted {
            SecretsChange::Kept => current,
            SecretsChange::Removed => None,
            SecretsChange::Same(id) | SecretsChange::New(id) => Some(id.clone()),
        },
        ..spec.clone()
    };
    let validated = with(secrets::current_secrets(state, volume));
    let mut home = None;
    if !is_validated(state, volume, &validated) {
        check_not_refused(state, volume, &validated).await.map_err(RegisterError::NotWritten)?;
        let valid = validate(state, volume, &validated, trace, deadline).await;
        home = valid.map_err(RegisterError::NotWritten)?.filter(|_| state.may_store_homes());
    }
    let command = |now: &Volume| {
        let current = now.spec.as_ref().and_then(|spec| spec.secrets.clone());
        if let SecretsChange::Same(id) = wanted
            && current.as_ref() != Some(id)
        {
            // The secrets were changed meanwhile, and these are removed: no spec may name them.
            let message = "the volume's secrets were changed at the same time";
            return Err(Problem::new(Code::Busy, message).retryable().next("register it again"));
        }
        Ok(Command::Register(with(current).at_home(home.clone())))
    };
    let caught_up = state.catch_up_with_nodes().await;
    let fail = |error| RegisterError::NotWritten(state.problem(error, volume));
    caught_up.map_err(fail)?;
    state.transact_until(volume, trace, deadline, command).await.map_err(|error| {
        let is_not_written = error.is_not_written();
        let problem = state.problem(error, volume);
        if is_not_written {
            RegisterError::NotWritten(problem)
        } else {
            RegisterError::Unknown(problem)
        }
    })
}

/// Whether the plugin has confirmed the spec before.
fn is_validated(state: &State, volume: &VolumeKey, spec: &VolumeSpec) -> bool {
    state.volumes.mirror.read(|volumes| {
        let spec_on_record = volumes.get(volume).and_then(|subtree| subtree.volume.spec.as_ref());
        spec_on_record.is_some_and(|spec_on_record| spec_on_record.is_the_same_to_its_plugin(spec))
    })
}

/// Refuses a spec that is refused whatever the plugin answers. The write decides again.
async fn check_not_refused(
    state: &State,
    volume: &VolumeKey,
    spec: &VolumeSpec,
) -> Result<(), Problem> {
    let refused = || {
        state.volumes.mirror.read(|volumes| {
            let unknown = Volume::default();
            let now = volumes.get(volume).map_or(&unknown, |subtree| &subtree.volume);
            let command = Command::Register(spec.clone());
            let handle = handle::handle_use(volumes, volume, &command);
            step(now, &command, &Context { handle, ..state.decision_context() }).err()
        })
    };
    if refused().is_none() {
        return Ok(());
    }
    let fail = |error| state.problem(error, volume);
    // All volumes, because another volume that has this handle may be deregistered by now.
    state.catch_up_with_all().await.map_err(fail)?;
    refused().map_or(Ok(()), |refusal| Err(fail(refusal.into())))
}

/// Whether the plugin has a controller. Fails if it can serve no volume at all.
fn has_controller(state: &State, plugin: &PluginId) -> Result<bool, Problem> {
    state.nodes.mirror.read(|nodes| {
        state.plugins.mirror.read(|plugins| {
            let Some(plugin_state) = plugins.get(plugin) else {
                let message = format!("no agent has reported plugin {plugin}");
                return Err(Problem::new(Code::NoSuchPlugin, message).retryable());
            };
            let count = |half| plugin_state.count(half, |node| nodes.is_ready(node));
            let has_controller = plugin_state.has_controller();
            let controllers = has_controller.then(|| count(Half::Controller));
            if lacks_nodes(controllers, count(Half::Node)) {
                let message = format!("plugin {plugin} has no healthy instance on any node");
                return Err(Problem::new(Code::PluginUnhealthy, message).retryable());
            }
            Ok(has_controller)
        })
    })
}

/// Asks the plugin whether the volume exists and can be used as the spec says. Returns the node
/// whose controller alone knows it, as far as the answers show.
async fn validate(
    state: &State,
    volume: &VolumeKey,
    spec: &VolumeSpec,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Option<NodeId>, Problem> {
    if !has_controller(state, &spec.plugin)? {
        // A plugin without a controller cannot be asked. Its node service refuses at the mount.
        return Ok(None);
    }
    let ask = ask_controllers(state, volume, spec, trace, deadline);
    secrets::while_validating(state, volume, spec, (trace, deadline), ask).await
}

/// Asks the plugin's controllers, one after the other, until one knows the volume. If each may have
/// its own storage, one more is asked: if it does not know the volume, the first one's node is the
/// home.
async fn ask_controllers(
    state: &State,
    volume: &VolumeKey,
    spec: &VolumeSpec,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Option<NodeId>, Problem> {
    let question = Validate {
        namespace: volume.namespace.clone(),
        volume: volume.volume.clone(),
        external_id: plan::external_id(volume, spec),
        plugin: spec.plugin.clone(),
        capabilities: spec.capabilities.to_value(),
        mount: spec.mount.to_value(),
        context: spec.context.to_value(),
        parameters: spec.parameters.to_value(),
        secrets: spec.secrets.clone(),
    };
    let controllers = ready_controllers(state, spec);
    let mut message = String::new();
    // The topology is compared with the nodes whose controllers know the volume, so each is asked
    // by its node.
    let may_be_apart = !spec.topologies.is_empty() || has_local_hosts(state, &spec.plugin);
    if controllers.len() < 2 || !may_be_apart {
        match ask_controller(state, &question, None, trace, deadline).await? {
            ControllerAnswer::Confirmed => return Ok(only_in_place(state, spec)),
            ControllerAnswer::Unknown(first) => message = first,
        }
    }
    let asked_count = controllers.len().min(LIST_MAX);
    let mut summary = ValidationSummary::default();
    for (at, controller) in
        controllers.iter().filter(|_| controllers.len() > 1).take(LIST_MAX).enumerate()
    {
        match ask_controller(state, &question, Some(&controller.node), trace, deadline).await {
            Ok(ControllerAnswer::Confirmed) => {
                summary.check_topology(controller, spec)?;
                if let Some(next) = controllers.get(at + 1).filter(|_| summary.unknown.is_empty()) {
                    let until = deadline.min(Instant::now() + SECOND_OPINION);
                    let node = Some(&next.node);
                    let second = ask_controller(state, &question, node, trace, until).await;
                    summary
                        .unknown
                        .extend(second.is_ok_and(|answer| answer.is_unknown()).then_some(next));
                }
                return Ok(summary.home(controller).or_else(|| only_in_place(state, spec)));
            }
            Ok(ControllerAnswer::Unknown(again)) => {
                message = again;
                summary.unknown.push(controller);
            }
            // One of several controllers is away.
            Err(problem) if problem.code == Code::PluginUnhealthy => {
                summary.is_complete &= !controller.is_within;
            }
            Err(problem) => return Err(problem),
        }
    }
    let message = match controllers.len() {
        0 | 1 => message,
        all => {
            format!("{asked_count} of {all} controllers of the plugin were asked, and {message}")
        }
    };
    Err(Problem::new(Code::PluginFailed, message).retryable().next(
        "check that the volume's id at the plugin is right and that it still exists; where each of \
         the plugin's controllers has volumes of its own, name the volume's topology",
    ))
}

/// The only node within the volume's topology, if it hosts a controller: a creation there would get
/// the same answer (see `Plugin::controller_of`).
fn only_in_place(state: &State, spec: &VolumeSpec) -> Option<NodeId> {
    let only = |plugin: &Plugin| match plugin.controller_of(&spec.topologies) {
        ControllerChoice::Only(node) => Some(node.clone()),
        ControllerChoice::Any | ControllerChoice::Unknown => None,
    };
    state.with_plugin(&spec.plugin, |plugin, _| only(plugin)).flatten()
}

fn has_local_hosts(state: &State, plugin: &PluginId) -> bool {
    state.with_plugin(plugin, |plugin, _| !plugin.local_hosts().is_empty()) == Some(true)
}

/// A controller that can be asked.
struct Controller {
    node: NodeId,
    /// The node's topology, as the plugin reports it.
    topology: BTreeMap<String, String>,
    /// Whether the node is within the volume's topology.
    is_within: bool,
}

/// The plugin's controllers that can be asked, those within the volume's topology first.
fn ready_controllers(state: &State, spec: &VolumeSpec) -> Vec<Controller> {
    let able = |plugins: &Instances| {
        let plugin = plugins.get(&spec.plugin)?;
        let nodes = state
            .nodes
            .mirror
            .read(|nodes| plugin.controllers(&spec.topologies, |node| nodes.is_ready(node)));
        let controller = |node: NodeId| {
            let instance = plugin.instances.get(&(node.clone(), Half::Node));
            let abilities = instance.and_then(|instance| instance.node.as_ref());
            let topology = abilities.map(|abilities| abilities.topology.clone());
            let topology = topology.unwrap_or_default();
            Controller { is_within: reaches(&spec.topologies, &topology), node, topology }
        };
        Some(nodes.into_iter().map(controller).collect())
    };
    state.plugins.mirror.read(able).unwrap_or_default()
}

/// The answers of controllers that were asked by their nodes.
struct ValidationSummary<'a> {
    /// Controllers that do not know the volume.
    unknown: Vec<&'a Controller>,
    /// Whether each controller within the volume's topology has answered.
    is_complete: bool,
}

impl Default for ValidationSummary<'_> {
    fn default() -> Self {
        Self { unknown: Vec::new(), is_complete: true }
    }
}

impl ValidationSummary<'_> {
    /// The node of the controller that knows the volume, if another controller does not know it:
    /// then each has its own storage. None if that node is outside the volume's topology.
    fn home(&self, knows: &Controller) -> Option<NodeId> {
        (knows.is_within && !self.unknown.is_empty()).then(|| knows.node.clone())
    }

    /// Refuses a topology that contradicts the plugin: a controller outside it knows the volume,
    /// and no controller within it does. The plugin has the volume at the first one, so claims
    /// within the topology would fail, and all others would be refused. Controllers within the
    /// topology are asked first, so a controller that serves every node passes.
    fn check_topology(&self, knows: &Controller, spec: &VolumeSpec) -> Result<(), Problem> {
        let within: Vec<&str> = self
            .unknown
            .iter()
            .filter(|controller| controller.is_within)
            .map(|controller| controller.node.as_str())
            .collect();
        let contradicts = !spec.topologies.is_empty() && !knows.is_within && self.is_complete;
        if !contradicts || within.is_empty() || knows.topology.is_empty() {
            return Ok(());
        }
        let segments = knows.topology.iter().map(|(segment, at)| format!("{segment}={at}"));
        let problem = format!(
            "contradicts the plugin: it has the volume on node {} ({}), and does not know it on \
             node {}; name the topology where the volume is, or none",
            knows.node,
            segments.collect::<Vec<_>>().join(", "),
            within.join(", ")
        );
        let fault = Fault { path: "topology".to_owned(), problem, line: None };
        Err(Problem::bad_input(vec![fault]))
    }
}

/// A controller's answer about a volume.
enum ControllerAnswer {
    /// The volume can be used as the spec says.
    Confirmed,
    /// The controller does not know the volume, in its own words.
    Unknown(String),
}

impl ControllerAnswer {
    const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// Asks the controller on this node, or any controller of the plugin.
async fn ask_controller(
    state: &State,
    question: &Validate,
    node: Option<&NodeId>,
    trace: TraceContext,
    deadline: Instant,
) -> Result<ControllerAnswer, Problem> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let within = remaining.mul_f64(0.9).max(Duration::from_millis(100));
    let (bus, call) = (&state.bus, Call::within(trace, within));
    let plugin = question.plugin.clone();
    let answer = match node.cloned() {
        None => bus.ask_service::<verb::ControllerValidate>(&plugin, question, &call).await,
        Some(node) => {
            let target = PluginOnNode { plugin, node };
            bus.ask_service::<verb::ControllerValidateOnNode>(&target, question, &call).await
        }
    };
    match answer {
        Ok(Validated { confirmed: true, .. }) => Ok(ControllerAnswer::Confirmed),
        Ok(Validated { unknown: true, message, .. }) => Ok(ControllerAnswer::Unknown(
            message.unwrap_or_else(|| "the volume is not known".to_owned()),
        )),
        Ok(Validated { message, .. }) => Err(Problem::new(
            Code::PluginRefused,
            format!(
                "the plugin does not confirm that the volume can be used so: {}",
                message.as_deref().unwrap_or("it gave no reason")
            ),
        )),
        Err(RequestError::NoResponder { .. }) => Err(Problem::new(
            Code::PluginUnhealthy,
            format!("plugin {} has no healthy controller", question.plugin),
        )
        .retryable()),
        Err(error) => Err(error.into_problem(verb::ControllerValidate::STEP)),
    }
}
