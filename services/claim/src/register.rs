//! `volume.register` and `volume.deregister` (A3 to A5).

use std::time::Duration;

use berth_bus::{Call, RequestError};
use berth_contract::code::Code;
use berth_contract::message::call::{Validate, Validated};
use berth_contract::message::volume::{Deregister, Deregistered, Register, Registered};
use berth_contract::problem::Problem;
use berth_contract::subject::ControllerRpc;
use berth_contract::trace::TraceContext;
use berth_domain::plugin::Half;
use berth_domain::volume::{Command, Refusal, Volume, VolumeSpec, Write};
use berth_domain::{AllocId, Namespace, SecretsId, VolumeKey};
use tokio::time::Instant;

use crate::plan;
use crate::secrets::{self, Wanted};
use crate::state::State;
use crate::transact::{Committed, TransactError};

const REGISTER: &str = "volume.register";
const DEREGISTER: &str = "volume.deregister";

/// Registers a volume that its plugin knows, or updates it. The plugin is asked first and may take
/// its time: the write that follows is of the spec alone, so no claim made meanwhile is lost.
pub async fn register(
    state: &State,
    namespace: Namespace,
    request: Register,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Registered, Problem> {
    let volume = VolumeKey::new(namespace, request.id.clone());
    if let Some(other) = request.namespace.filter(|other| *other != volume.namespace) {
        return Err(Problem::new(
            Code::BadInput,
            format!("`namespace` is {other}, but the request is for {}", volume.namespace),
        )
        .at(REGISTER)
        .volume(&volume));
    }
    let plugin = request.spec.plugin.clone();
    let place = |problem: Problem| problem.at(REGISTER).volume(&volume).plugin(&plugin);
    let before = secrets::current(state, &volume);
    let wanted = secrets::wanted(state, &volume, request.secrets, trace).await.map_err(place)?;
    let registered = with_secrets(state, &volume, request.spec, &wanted, trace, deadline).await;
    // Whichever secrets are in use now, the others are nobody's.
    let kept = secrets::current(state, &volume);
    let unused = match (&registered, &wanted) {
        (Err(RegisterError::NotWritten(_)), Wanted::New(id)) => Some(id),
        (Ok(_), Wanted::New(_) | Wanted::Removed) => before.as_ref(),
        _ => None,
    };
    if let Some(unused) = unused.filter(|unused| kept.as_ref() != Some(unused)) {
        state.vault.remove(&volume, unused, trace).await;
    }
    let done = registered.map_err(|error| match error {
        RegisterError::NotWritten(problem) | RegisterError::Unknown(problem) => place(problem),
    })?;
    Ok(Registered {
        id: volume.volume.clone(),
        namespace: volume.namespace.clone(),
        changed: done.step.write.is_some(),
        index: done.revision,
    })
}

/// Why a volume is not registered, as far as is known.
enum RegisterError {
    /// It is as it was.
    NotWritten(Problem),
    /// It may be registered.
    Unknown(Problem),
}

/// Asks the plugin and writes the spec, both with the secrets that are wanted.
async fn with_secrets(
    state: &State,
    volume: &VolumeKey,
    spec: VolumeSpec,
    wanted: &Wanted,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Committed, RegisterError> {
    let with = |kept: Option<SecretsId>| VolumeSpec {
        secrets: match wanted {
            Wanted::Kept => kept,
            Wanted::Removed => None,
            Wanted::Same(id) | Wanted::New(id) => Some(id.clone()),
        },
        ..spec.clone()
    };
    let asked = with(secrets::current(state, volume));
    if !known_so(state, volume, &asked) {
        let valid = validate(state, volume, &asked, trace, deadline).await;
        valid.map_err(RegisterError::NotWritten)?;
    }
    let command = |now: &Volume| {
        let kept = now.spec.as_ref().and_then(|spec| spec.secrets.clone());
        if let Wanted::Same(id) = wanted
            && kept.as_ref() != Some(id)
        {
            // Others were given meanwhile, and these are removed: a spec must not name them.
            let said = "the volume's secrets were changed at the same time";
            return Err(Problem::new(Code::Busy, said).retryable().next("register it again"));
        }
        Ok(Command::Register(with(kept)))
    };
    state.transact(volume, trace, command).await.map_err(|error| {
        let known = matches!(error, TransactError::Refused(_) | TransactError::Problem(_));
        let problem = state.problem(error, REGISTER, volume);
        if known { RegisterError::NotWritten(problem) } else { RegisterError::Unknown(problem) }
    })
}

fn known_so(state: &State, volume: &VolumeKey, spec: &VolumeSpec) -> bool {
    state.volume_mirror.read(|volumes| {
        let known = volumes.get(volume).and_then(|subtree| subtree.volume.spec.as_ref());
        known.is_some_and(|known| known.same_as(spec))
    })
}

/// Asks the plugin whether the volume exists and can be used so.
async fn validate(
    state: &State,
    volume: &VolumeKey,
    spec: &VolumeSpec,
    trace: TraceContext,
    deadline: Instant,
) -> Result<(), Problem> {
    let has_controller = state.nodes.read(|nodes| {
        state.plugins.read(|plugins| {
            let Some(plugin) = plugins.get(&spec.plugin) else {
                return Err(Problem::new(
                    Code::NoSuchPlugin,
                    format!("no agent has reported plugin {}", spec.plugin),
                )
                .retryable());
            };
            if plugin.count(Half::Node, |node| nodes.is_ready(node)).healthy == 0 {
                return Err(Problem::new(
                    Code::PluginUnhealthy,
                    format!("plugin {} has no healthy instance on any node", spec.plugin),
                )
                .retryable());
            }
            Ok(plugin.has_controller())
        })
    })?;
    if !has_controller {
        // A plugin without a controller has nobody to ask; its node service refuses at the mount.
        return Ok(());
    }
    let question = Validate {
        namespace: volume.namespace.clone(),
        volume: volume.volume.clone(),
        external_id: plan::external_id(volume, spec),
        plugin: spec.plugin.clone(),
        capabilities: spec.capabilities.clone(),
        mount: spec.mount.clone(),
        context: spec.context.clone(),
        parameters: spec.parameters.clone(),
        secrets: spec.secrets.clone(),
    };
    let left = deadline.saturating_duration_since(Instant::now());
    let within = left.mul_f64(0.9).max(Duration::from_millis(100));
    let subject = ControllerRpc::Validate.subject(&spec.plugin);
    match state.bus.request::<Validated>(&subject, &question, &Call::within(trace, within)).await {
        Ok(Validated { confirmed: true, .. }) => Ok(()),
        Ok(Validated { message, .. }) => Err(Problem::new(
            Code::PluginRefused,
            format!(
                "the plugin does not confirm that the volume can be used so: {}",
                message.as_deref().unwrap_or("it gave no reason")
            ),
        )),
        Err(RequestError::NoResponder { .. }) => Err(Problem::new(
            Code::PluginUnhealthy,
            format!("plugin {} has no healthy controller", spec.plugin),
        )
        .retryable()),
        Err(error) => Err(error.into_problem("controller.validate")),
    }
}

/// Deregisters a volume; by force, once its claims are gone.
pub async fn deregister(
    state: &State,
    namespace: Namespace,
    request: Deregister,
    trace: TraceContext,
) -> Result<Deregistered, Problem> {
    let volume = VolumeKey::new(namespace, request.id.clone());
    let reason = match request.reason.as_str() {
        "" => "deregistered by force",
        reason => reason,
    };
    let secrets = secrets::current(state, &volume);
    let command = |now: &Volume| {
        let registered = now.spec.as_ref().map(|spec| spec.create_index);
        if let (Some(meant), Some(registered)) = (request.create_index, registered)
            && meant != registered
        {
            let said = format!("it was registered anew at {registered}, and {meant} was meant");
            return Err(Problem::new(Code::NoSuchVolume, said));
        }
        let running = now.claims.keys().filter(|id| state.is_wanted(&volume.namespace, id));
        Ok(Command::Deregister {
            force: request.force,
            reason: reason.to_owned(),
            running: running.cloned().collect(),
        })
    };
    match state.transact(&volume, trace, command).await {
        Ok(done) => forget_secrets(state, &volume, &done, secrets.as_ref(), trace).await,
        // What is gone is deregistered, when the caller said by force that it shall be gone.
        Err(TransactError::Refused(Refusal::NoSuchVolume)) if request.force => {}
        Err(error) => return Err(state.problem(error, DEREGISTER, &volume)),
    }
    let releasing: Vec<AllocId> = state.volume_mirror.read(|volumes| {
        let claims = volumes.get(&volume).map(|subtree| &subtree.volume.claims);
        claims.map(|claims| claims.keys().cloned().collect()).unwrap_or_default()
    });
    Ok(Deregistered { id: request.id, gone: releasing.is_empty(), releasing })
}

/// Deregisters a volume that is closing once its last claim is gone. The collector does the same
/// for one that was missed.
pub async fn finish_closing(state: &State, volume: &VolumeKey, trace: TraceContext) {
    let due = state.volume_mirror.read(|volumes| {
        let now = volumes.get(volume).map(|subtree| &subtree.volume);
        now.is_some_and(|now| {
            now.claims.is_empty() && now.spec.as_ref().is_some_and(|spec| spec.closing.is_some())
        })
    });
    if !due {
        return;
    }
    let secrets = secrets::current(state, volume);
    let command = |now: &Volume| match &now.spec {
        Some(VolumeSpec { closing: Some(closing), .. }) => Ok(Command::Deregister {
            force: true,
            reason: closing.reason.clone(),
            running: Vec::new(),
        }),
        _ => Err(Problem::new(Code::NotDue, "the volume is not closing")),
    };
    match state.transact(volume, trace, command).await {
        Ok(done) => forget_secrets(state, volume, &done, secrets.as_ref(), trace).await,
        Err(error) => {
            tracing::warn!(%volume, %error, "a closing volume was left to the collector");
        }
    }
}

/// A volume that is gone has no secrets.
async fn forget_secrets(
    state: &State,
    volume: &VolumeKey,
    done: &Committed,
    secrets: Option<&SecretsId>,
    trace: TraceContext,
) {
    if let (Some(Write::DeleteSpec), Some(secrets)) = (&done.step.write, secrets) {
        state.vault.remove(volume, secrets, trace).await;
    }
}
