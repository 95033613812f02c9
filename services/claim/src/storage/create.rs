//! `volume.create` (A12, A15).
//!
//! **Owns** how class and request become the spec of a volume that does not exist yet: its size,
//! its topology, its secrets, and its name for the plugin.
//!
//! **Promises** that a request is refused before anything is stored if the class, the source or the
//! plugin's abilities do not allow it; and that a name is never given to a plugin twice.
//!
//! **Never** calls the plugin.

use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::message::secret::Secrets;
use berth_contract::message::storage::{Create, SecretsOrigin, SentSecrets, StorageChanged};
use berth_contract::message::volume::GivenSecrets;
use berth_contract::problem::Problem;
use berth_contract::record::SCHEMA_STORAGE;
use berth_contract::trace::TraceContext;
use berth_domain::class::{Class, TopologyPolicy};
use berth_domain::size::{Size, describe_bytes};
use berth_domain::topology::{common_places, reached_first, reaches, segments};
use berth_domain::volume::storage::{
    CopyGrowth, Origin, Provision, Reclaim, SnapshotState, Stage, StorageLife, Topology,
};
use berth_domain::volume::{Command, Volume, VolumeSpec};
use berth_domain::{ClassId, Namespace, NodeId, PluginId, SecretsId, VolumeKey};

use super::ability::Ability;
use super::{changed, of_plugin};
use crate::caller::Caller;
use crate::store::class_guard::refuse_by_class;
use crate::store::secrets::{self, SecretsChange};
use crate::store::state::State;
use crate::store::transact::TransactError;

/// Longest part of a name that comes from the volume's own names, in bytes. CSI allows 128 bytes
/// for all of it.
const READABLE_BYTES_MAX: usize = 80;

/// Stores a volume that is to be created. The volumewatcher makes the call.
pub async fn create(
    state: &State,
    namespace: &Namespace,
    request: Create,
    caller: &Caller,
) -> Result<StorageChanged, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.id.clone());
    let with_volume = |problem: Problem| problem.volume(&volume);
    if let Some(other) = request.namespace.as_ref().filter(|other| **other != volume.namespace) {
        let problem = format!("is {other}, but the request is for {}", volume.namespace);
        let fault = Fault { path: "namespace".to_owned(), problem, line: None };
        return Err(Problem::bad_input(vec![fault]));
    }
    let class = match &request.class {
        Some(id) => Some(find_class(state, id, &volume.namespace).await.map_err(with_volume)?),
        None => None,
    };
    let source = find_source(state, &volume, &request).await.map_err(with_volume)?;
    let template = Template { class: class.as_ref(), source: source.as_ref() };
    let spec = build_spec(state, &request, caller.by(), &volume, template);
    let spec = spec.map_err(with_volume)?;
    require_abilities(state, &spec).map_err(with_volume)?;
    state.check_readable(&volume).map_err(|error| state.problem(error, &volume))?;
    // Checked before the secrets are stored.
    let level = state.volumes.mirror.read(|all| state.level.check(all, SCHEMA_STORAGE));
    level.map_err(with_volume)?;
    let (sent_secrets, secrets_origin) =
        given_secrets(state, &request, template).await.map_err(with_volume)?;
    let wanted = secrets::prepare_secrets(state, &volume, sent_secrets, trace).await;
    let wanted = wanted.map_err(with_volume)?;
    let command = |now: &Volume| {
        let current = now.spec.as_ref().and_then(|spec| spec.secrets.clone());
        let secrets = match &wanted {
            SecretsChange::Kept | SecretsChange::Removed => None,
            SecretsChange::Same(id) if current.as_ref() != Some(id) => {
                let message = "the volume's secrets were changed at the same time";
                return Err(Problem::new(Code::Busy, message).retryable().next("ask again"));
            }
            SecretsChange::Same(id) | SecretsChange::New(id) => Some(id.clone()),
        };
        Ok(Command::Create(VolumeSpec { secrets, ..spec.clone() }))
    };
    let done = state.transact_until(&volume, trace, deadline, command).await;
    // A write without an answer may be stored; then its volume needs the secrets.
    if let SecretsChange::New(id) = &wanted
        && done.as_ref().err().is_none_or(TransactError::is_not_written)
    {
        drop_unused(state, &volume, id, trace).await;
    }
    let done = done.map_err(|error| of_plugin(error, state, &volume, &spec.plugin))?;
    Ok(StorageChanged { secrets: secrets_origin, ..changed(state, &volume, &done) })
}

/// Removes secrets that the volume did not take, as far as this replica knows. The sweep removes
/// the rest.
async fn drop_unused(state: &State, volume: &VolumeKey, id: &SecretsId, trace: TraceContext) {
    let exists = state.volumes.mirror.read(|volumes| volumes.get(volume).is_some());
    if exists && !secrets::is_named(state, volume, id) {
        state.vault.remove(volume, id, trace).await;
    }
}

/// The class, if the namespace may use it.
async fn find_class(state: &State, id: &ClassId, namespace: &Namespace) -> Result<Class, Problem> {
    let class = find_any_class(state, id).await?;
    // A class that is closed to the namespace looks like one that does not exist.
    if class.is_open_to(namespace) { Ok(class) } else { Err(no_class(id)) }
}

/// The class, for whatever namespaces. A class that this replica does not have is read at the
/// leader.
pub async fn find_any_class(state: &State, id: &ClassId) -> Result<Class, Problem> {
    let find = || state.volumes.mirror.read(|volumes| volumes.classes().get(id).cloned());
    let mut stored = find();
    if stored.is_none() {
        let caught_up = state.catch_up_with_all().await;
        let error = |error: TransactError| {
            Problem::new(Code::BusUnavailable, berth_service::process::chain(&error)).retryable()
        };
        caught_up.map_err(error)?;
        stored = find();
    }
    match stored.ok_or_else(|| no_class(id))?.class {
        Ok(class) => Ok(*class),
        Err(record) => Err(record.problem()),
    }
}

fn no_class(id: &ClassId) -> Problem {
    Problem::new(Code::NoSuchClass, format!("no class {id}"))
}

/// What decides of a new volume besides its request.
#[derive(Clone, Copy)]
struct Template<'a> {
    class: Option<&'a Class>,
    source: Option<&'a Source>,
}

/// What a new volume is a copy of.
struct Source {
    origin: Origin,
    /// The volume, or what is known of that of the snapshot.
    spec: VolumeSpec,
    /// Where the plugin says that a copy can be. Empty if it says nothing of it.
    usable_from: Vec<Topology>,
    /// Whether its file system may be smaller than it is itself: it grows, or did when it was cut.
    growing: bool,
    /// The least size of a copy: an expansion under way counts.
    bytes: Option<u64>,
    /// The size of a copy that says none.
    default_bytes: Option<u64>,
    /// The key under which its secrets are.
    key: VolumeKey,
    secrets: Option<SecretsId>,
}

/// The source of the new volume's copy, as far as this replica knows. It guards the write
/// ([`super::guard`]).
async fn find_source(
    state: &State,
    volume: &VolumeKey,
    request: &Create,
) -> Result<Option<Source>, Problem> {
    let Some(from) = &request.origin else { return Ok(None) };
    let source = VolumeKey::new(volume.namespace.clone(), from.volume.clone());
    if from.snapshot.is_none() && source == *volume {
        let problem = "is the volume itself".to_owned();
        let fault = Fault { path: "from.volume".to_owned(), problem, line: None };
        return Err(Problem::bad_input(vec![fault]));
    }
    let caught_up = state.catch_up(&source).await;
    caught_up.map_err(|error| state.problem(error, &source))?;
    state.volumes.mirror.read(|volumes| {
        let no_such_volume = |what: String| Problem::new(Code::NoSuchVolume, what).volume(&source);
        let source_volume = volumes.get(&source).map(|subtree| &subtree.volume);
        let source_volume =
            source_volume.ok_or_else(|| no_such_volume(format!("no volume {source}")))?;
        let Some(id) = &from.snapshot else {
            let spec = source_volume
                .spec
                .as_ref()
                .ok_or_else(|| no_such_volume(format!("no volume {source}")))?;
            if spec.stage() != Stage::Ready {
                let message = format!("volume {source}, the source, is {}", spec.stage());
                return Err(Problem::new(Code::VolumeNotReady, message).retryable());
            }
            let external_id = spec.external_id(&source.volume);
            let origin = Origin { volume: from.volume.clone(), snapshot: None, external_id };
            return Ok(Some(Source {
                origin,
                usable_from: Vec::new(),
                growing: spec.pending_expansion().is_some(),
                bytes: spec.bytes_after_expansion(),
                default_bytes: spec.bytes_after_expansion(),
                key: source.clone(),
                secrets: spec.secrets.clone(),
                spec: spec.clone(),
            }));
        };
        let name = format!("{source}@{id}");
        let unknown = || Problem::new(Code::NoSuchSnapshot, format!("no snapshot {name}"));
        let snapshot = source_volume.snapshots.get(id).ok_or_else(unknown)?;
        let ready = (snapshot.state == SnapshotState::Ready).then_some(());
        let Some(external_id) = snapshot.external_id.clone().filter(|_| ready.is_some()) else {
            let message = format!("snapshot {name}, the source, is {}", snapshot.state);
            return Err(Problem::new(Code::StorageInUse, message).retryable());
        };
        let origin =
            Origin { volume: from.volume.clone(), snapshot: Some(id.clone()), external_id };
        // A plugin need not say how large a snapshot is.
        let of_volume = source_volume.spec.as_ref().filter(|spec| {
            spec.plugin == snapshot.plugin && spec.external_id(&source.volume) == snapshot.source
        });
        let bytes = snapshot.size_bytes;
        let default_bytes = bytes.or_else(|| of_volume?.bytes_after_expansion());
        let of_source =
            source_volume.spec.clone().unwrap_or_else(|| VolumeSpec::empty(&snapshot.plugin));
        // A volume may have been created since under that name, elsewhere or at another plugin.
        let of_source = VolumeSpec {
            plugin: snapshot.plugin.clone(),
            topologies: match &snapshot.usable_from[..] {
                [] => snapshot.topologies.clone(),
                said => said.to_vec(),
            }
            .into(),
            ..of_source
        };
        let (key, secrets) = (source.clone(), snapshot.secrets.clone());
        Ok(Some(Source {
            origin,
            spec: of_source,
            usable_from: snapshot.usable_from.clone(),
            growing: snapshot.growing
                || of_volume.is_some_and(|spec| spec.pending_expansion().is_some()),
            bytes,
            default_bytes,
            key,
            secrets,
        }))
    })
}

/// The spec of the volume before the plugin is called.
fn build_spec(
    state: &State,
    request: &Create,
    by: Option<String>,
    volume: &VolumeKey,
    Template { class, source }: Template<'_>,
) -> Result<VolumeSpec, Problem> {
    let fault = |path: &str, problem: String| {
        let fault = Fault { path: path.to_owned(), problem, line: None };
        Problem::bad_input(vec![fault])
    };
    let plugin = match (class, &request.plugin) {
        (Some(class), _) => class.plugin.clone(),
        (None, Some(plugin)) => plugin.clone(),
        (None, None) => return Err(fault("plugin", "is missing".to_owned())),
    };
    if let Some(source) = source.filter(|source| source.spec.plugin != plugin) {
        let theirs = &source.spec.plugin;
        let problem = format!("is at plugin {theirs}, and the volume is to be at {plugin}");
        return Err(fault("from", problem));
    }
    let requested = request.size.map(Size::bytes);
    // A copy is at least as large as its source.
    let smallest = source.and_then(|source| source.bytes);
    let default_bytes = source.and_then(|source| source.default_bytes);
    if let (Some(requested), Some(smallest)) = (requested, smallest)
        && requested < smallest
    {
        let (requested, smallest) = (describe_bytes(requested), describe_bytes(smallest));
        let problem = format!("is {requested}, and the source has {smallest}");
        return Err(fault("size", problem));
    }
    let required_bytes = match request.class.as_ref().zip(class) {
        Some((id, class)) => class
            .size(requested.or(default_bytes))
            .map_err(|refusal| refuse_by_class(id, &volume.namespace, &refusal))?,
        None => requested.or(default_bytes).unwrap_or_default(),
    };
    let limit_bytes = request.limit.map(Size::bytes);
    if let Some(limit) = limit_bytes.filter(|limit| *limit < required_bytes) {
        let (limit, required) = (describe_bytes(limit), describe_bytes(required_bytes));
        let problem = format!("is {limit}, and at least {required} is needed");
        return Err(fault("limit", problem));
    }
    // One of those that the class offers: many plugins refuse to make a volume for file systems and
    // for block devices at once.
    let capabilities = match class {
        Some(class) if request.capabilities.is_empty() => {
            class.capabilities.iter().take(1).copied().collect()
        }
        _ => request.capabilities.clone(),
    };
    let mut mutable = class.map(|class| class.mutable_parameters.clone()).unwrap_or_default();
    mutable.extend(request.mutable_parameters.clone());
    let policy = class.map_or(request.topology_policy, |class| Some(class.topology_policy));
    let allowed = class.map_or(&request.topologies, |class| &class.topologies);
    let requisite = requested_places(source, allowed).map_err(|why| fault("from", why))?;
    let first_use = policy == Some(TopologyPolicy::FirstUse);
    // A volume that is there already is where it is.
    let is_there =
        state.volumes.mirror.read(|all| all.get(volume).is_some_and(|it| it.volume.spec.is_some()));
    let places = match request.node.as_ref().filter(|_| !first_use && !is_there) {
        Some(node) => {
            let is_choice = source.is_some_and(|source| !source.usable_from.is_empty());
            places_for(state, &plugin, node, &requisite, is_choice)?
        }
        None => None,
    };
    let node = request.node.clone().filter(|_| places.is_some());
    let requisite = places.unwrap_or(requisite);
    let mount = match class {
        Some(class) => class.mount.merged_with(&request.mount),
        None => request.mount.clone(),
    };
    if request.for_alloc.is_some() && request.reclaim == Some(Reclaim::Retain) {
        let problem = "is `retain`, and a volume for one run is deleted after it".to_owned();
        return Err(fault("reclaim", problem));
    }
    let by_class = class.map(|class| class.reclaim).unwrap_or_default();
    let reclaim = if request.for_alloc.is_some() { Reclaim::Delete } else { by_class };
    let provision = Provision {
        name: plugin_name(request),
        requested: berth_service::clock::now(),
        by,
        required_bytes,
        limit_bytes,
        class: request.class.clone(),
        reclaim: request.reclaim.unwrap_or(reclaim),
        first_use,
        requisite,
        node,
        first_claim: None,
        growth: source.and_then(|source| growth_of_copy(state, &plugin, source)),
        origin: source.map(|source| source.origin.clone()),
        for_alloc: request.for_alloc.clone(),
    };
    Ok(VolumeSpec {
        name: request.name.clone().unwrap_or_default().into(),
        capabilities: capabilities.into(),
        mount: mount.into(),
        parameters: class.map_or(&request.parameters, |class| &class.parameters).clone().into(),
        storage: Some(Box::new(StorageLife {
            provision: Some(provision),
            mutable,
            ..StorageLife::default()
        })),
        ..VolumeSpec::empty(&plugin)
    })
}

/// Where a volume for this node may be, the node's own place first; none if the plugin tells of no
/// places. Refused if the volume may not be there, and while it is not known where the node is.
/// `is_choice`: one of the places will do.
fn places_for(
    state: &State,
    plugin: &PluginId,
    node: &NodeId,
    allowed: &[Topology],
    is_choice: bool,
) -> Result<Option<Vec<Topology>>, Problem> {
    let told = state.with_plugin(plugin, |plugin, _| {
        let mut controllers = plugin.instances.values().filter_map(|it| it.controller);
        let is_local = plugin.local_hosts().contains(node);
        controllers.any(|can| can.topology).then(|| (plugin.topology_of(node).cloned(), is_local))
    });
    let Some((place, is_local)) = told.flatten() else { return Ok(None) };
    let Some(place) = place else {
        let message = format!("plugin {plugin} has not said yet where node {node} is");
        let problem = Problem::new(Code::PluginUnhealthy, message).retryable();
        return Err(problem.plugin(plugin).node(node));
    };
    if place.is_empty() {
        return Ok(None);
    }
    if !reaches(allowed, &place) {
        let message = format!(
            "the volume may be in {}, and node {node} is in {}",
            allowed.iter().map(segments).collect::<Vec<_>>().join(" or "),
            segments(&place)
        );
        return Err(Problem::new(Code::OutOfReach, message).plugin(plugin).node(node));
    }
    // A disk in several zones needs them all.
    let places = reached_first(allowed, &place);
    let is_spread = places.iter().any(|one| !reaches(std::slice::from_ref(one), &place));
    Ok(Some(if is_spread && !is_local && !is_choice { places } else { vec![place] }))
}

/// Where the volume may be: within what is allowed, and what the plugin says of a copy's source. A
/// copy is where its source is, if nothing is said.
fn requested_places(
    source: Option<&Source>,
    allowed: &[Topology],
) -> Result<Vec<Topology>, String> {
    let Some(source) = source else { return Ok(allowed.to_vec()) };
    match (allowed, &source.usable_from[..]) {
        ([], _) => Ok(source.spec.topologies.to_value()),
        (_, []) => Ok(allowed.to_vec()),
        (_, usable) => {
            let common = common_places(usable, allowed);
            let named =
                |places: &[Topology]| places.iter().map(segments).collect::<Vec<_>>().join(" or ");
            let (usable, allowed) = (named(usable), named(allowed));
            let why = format!("can be used in {usable} only, and the volume is to be in {allowed}");
            if common.is_empty() { Err(why) } else { Ok(common) }
        }
    }
}

/// What the plugin may leave to be done of a larger copy, and can do.
fn growth_of_copy(state: &State, plugin: &PluginId, source: &Source) -> Option<CopyGrowth> {
    let by_controller = state.require(plugin, Ability::ExpandVolume).is_ok();
    let by_nodes = state.expands_on_nodes(plugin);
    // The file system may be as small as any.
    let from_bytes = source.bytes.filter(|_| !source.growing).unwrap_or_default();
    (by_controller || by_nodes).then_some(CopyGrowth { from_bytes, by_controller, by_nodes })
}

/// A name that the plugin never got before: `berth-default-data-<random>`.
fn plugin_name(request: &Create) -> String {
    let plain = |text: &str| {
        let plain = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
        plain.collect::<String>().to_ascii_lowercase()
    };
    let mut name = plain(&format!("berth-{}", request.id));
    name.truncate(READABLE_BYTES_MAX);
    format!("{name}-{}", berth_service::clock::new_secrets_id())
}

fn require_abilities(state: &State, spec: &VolumeSpec) -> Result<(), Problem> {
    let plugin = &spec.plugin;
    state.require(plugin, Ability::CreateDeleteVolume)?;
    let Some(provision) = spec.provision() else { return Ok(()) };
    match &provision.origin {
        Some(Origin { snapshot: None, .. }) => {
            state.require(plugin, Ability::CloneVolume)?;
        }
        Some(Origin { snapshot: Some(_), .. }) => {
            state.require(plugin, Ability::CreateDeleteSnapshot)?;
        }
        None => {}
    }
    // A copy takes its source's topology, if the plugin has topologies.
    if provision.origin.is_none() && (provision.first_use || !provision.requisite.is_empty()) {
        state.require(plugin, Ability::Topology)?;
    }
    let mutable = spec.storage.as_ref().is_some_and(|storage| !storage.mutable.is_empty());
    if mutable {
        state.require(plugin, Ability::ModifyVolume)?;
    }
    Ok(())
}

/// The secrets of the request, or those of its class, or of its source if it asks for them.
async fn given_secrets(
    state: &State,
    request: &Create,
    Template { class, source }: Template<'_>,
) -> Result<(Option<GivenSecrets>, Option<SecretsOrigin>), Problem> {
    if let Some(SentSecrets::Given(given)) = &request.secrets {
        return Ok((Some(given.clone()), Some(SecretsOrigin::Given)));
    }
    let of_class = request.class.as_ref().zip(class.and_then(|class| class.secrets.as_ref()));
    let of_source = source.and_then(|source| Some((&source.key, source.secrets.as_ref()?)));
    let takes = request.origin.as_ref().is_some_and(|from| from.with_secrets);
    let (key, id, whose) = match (of_class, of_source) {
        (_, Some((key, id))) if takes => (key.clone(), id, SecretsOrigin::Source),
        (Some((class, id)), _) => (class.to_secrets_key(), id, SecretsOrigin::Class),
        (None, Some(_)) => return Ok((None, Some(SecretsOrigin::NoneOfSource))),
        (None, None) => return Ok((None, None)),
    };
    let secrets_found: Option<Secrets> = state.vault.load(&key, id).await?;
    let missing = || {
        let holder = match (whose, &request.class) {
            (SecretsOrigin::Class, Some(class)) => format!("class {class}"),
            _ => format!("volume {key}"),
        };
        let message = format!("those of {holder} were replaced meanwhile");
        crate::store::vault::unavailable(message).retryable()
    };
    let secrets = secrets_found.map(GivenSecrets::Plain).ok_or_else(missing)?;
    Ok((Some(secrets), Some(whose)))
}
