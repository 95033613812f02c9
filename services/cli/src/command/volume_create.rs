//! `berth volume create`, `berth snapshot restore`

use std::path::Path;

use berth_contract::code::Code;
use berth_contract::message::storage::{Create, SecretsOrigin, SentSecrets, StorageChanged};
use berth_contract::message::volume::{VolumeQuery, VolumeStatus};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::access::Capability;
use berth_domain::volume::storage::Stage;
use berth_domain::{Namespace, VolumeKey};
use serde_json::{Map, Value, json};

use super::change::{Following, deadline};
use super::new_volume::{ArgFaults, Draft};
use super::spec::{Spec, seal_secrets};
use crate::args::{Global, NewVolumeArgs, SnapshotRestore, UseArgs, VolumeCreate, WaitArgs};
use crate::classes::name_classes;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::Session;
use crate::size;
use crate::storage::{StorageGoal, read_snapshot};

const HELP: &str = "volume create";

/// Creates a volume. While the command line or the document has a fault, no connection is made.
pub async fn create(args: &VolumeCreate, global: &Global) -> Result<(), Failure> {
    if is_file(&args.what) {
        return create_from_file(args, global).await;
    }
    let mut draft = Draft::new(&args.what, &args.new, HELP);
    if let Some(volume) = &args.from_volume {
        draft.copy_volume(volume);
    }
    if let Some(snapshot) = &args.from_snapshot {
        draft.copy_snapshot("--from-snapshot", snapshot);
    }
    if args.with_secrets {
        draft.with_secrets();
    }
    if let Some(alloc) = &args.for_alloc {
        draft.for_alloc(alloc);
    }
    create_from_draft(&draft, &args.new, args.wait, global).await
}

/// Creates a volume from a snapshot.
pub async fn restore(args: &SnapshotRestore, global: &Global) -> Result<(), Failure> {
    let mut draft = Draft::new(&args.volume, &args.new, "snapshot restore");
    draft.copy_snapshot("SNAPSHOT", &args.snapshot);
    if args.with_secrets {
        draft.with_secrets();
    }
    create_from_draft(&draft, &args.new, args.wait, global).await
}

/// Whether the argument is a document, and not an id.
fn is_file(what: &str) -> bool {
    let extension = Path::new(what).extension();
    what == "-" || extension.is_some_and(|its| its == "toml" || its == "json")
}

async fn create_from_file(args: &VolumeCreate, global: &Global) -> Result<(), Failure> {
    let by_option = args.from_volume.is_some() || args.from_snapshot.is_some();
    if by_option || !args.new.is_empty() || args.for_alloc.is_some() {
        let mut faults = ArgFaults::default();
        faults.add(&args.what, "is a document, which says all itself; leave the options out");
        faults.check(HELP)?;
    }
    let spec = Spec::<Create>::load(Path::new(&args.what))?;
    let namespace = spec.namespace(global.namespace.as_ref())?;
    let session = Session::open(global).await?;
    let mut request = spec.request.clone();
    if let Some(SentSecrets::Given(given)) = request.secrets.take() {
        let volume = VolumeKey::new(namespace.clone(), request.id.clone());
        let sealed = seal_secrets(&session, &volume, given).await?;
        request.secrets = Some(SentSecrets::Given(sealed));
    }
    let failed = |failure| spec.explain(failure);
    send(&session, namespace, &request, args.wait, failed).await
}

async fn create_from_draft(
    draft: &Draft,
    new: &NewVolumeArgs,
    wait: WaitArgs,
    global: &Global,
) -> Result<(), Failure> {
    let mut request = draft.check()?;
    let session = Session::open(global).await?;
    let namespace = session.namespace.clone();
    if draft.is_by_source() {
        let source = describe_source(&session, &request).await?;
        let has_own_use = new.uses.access.is_some() || new.uses.attachment.is_some();
        request = draft.like_source(source, has_own_use).check()?;
    }
    send(&session, namespace, &request, wait, |failure| failure).await
}

/// Reads what the source of a copy was made of: its class, or else its plugin and its capabilities.
async fn describe_source(
    session: &Session,
    request: &Create,
) -> Result<Map<String, Value>, Failure> {
    let Some(from) = &request.origin else { return Ok(Map::new()) };
    let body = VolumeQuery::current(from.volume.clone());
    let read = session.ask_service::<verb::VolumeStatus>(&session.namespace, &body).await;
    let fields = match (read, &from.snapshot) {
        (Ok(volume), _) => match volume.storage.as_ref().and_then(|storage| storage.class.as_ref())
        {
            Some(class) => json!({ "class": class }),
            None => json!({
                "plugin": volume.plugin, "capability": of_one_attachment(&volume.capabilities),
                "mount": { "fs_type": volume.fs_type, "group": volume.mount_group },
                "parameters": volume.parameters,
            }),
        },
        // A snapshot outlives its volume.
        (Err(failure), Some(id)) if failure.code() == Some(Code::NoSuchVolume) => {
            let Some(snapshot) = read_snapshot(session, &from.volume, id).await? else {
                let message = format!("no snapshot {}@{id}", from.volume);
                return Err(Problem::new(Code::NoSuchSnapshot, message).into());
            };
            let uses = super::new_volume::capability(&UseArgs::default());
            json!({ "plugin": snapshot.plugin, "capability": [uses] })
        }
        (Err(failure), _) => return Err(failure),
    };
    let mut fields = fields.as_object().cloned().unwrap_or_default();
    fields.retain(|_, value| {
        value.as_object().is_none_or(|object| object.values().any(|v| !v.is_null()))
    });
    Ok(fields)
}

/// Those for the attachment that comes first: many plugins make no volume for both.
fn of_one_attachment(offered: &[Capability]) -> Vec<Capability> {
    let first = offered.first().map(|first| first.attachment);
    offered.iter().filter(|one| Some(one.attachment) == first).copied().collect()
}

async fn send(
    session: &Session,
    namespace: Namespace,
    request: &Create,
    wait: WaitArgs,
    failed: impl FnOnce(Failure) -> Failure,
) -> Result<(), Failure> {
    let until = deadline(session);
    let reply = session.ask_service::<verb::VolumeCreate>(&namespace, request).await;
    let changed = match reply {
        Ok(changed) => changed,
        Err(failure) => return Err(failed(name_classes(session, &namespace, failure).await)),
    };
    let goal = StorageGoal::Created;
    let following = Following { session, namespace: &namespace, goal: &goal, wait, until };
    let lacks_secrets = changed.secrets == Some(SecretsOrigin::NoneOfSource);
    let done = following.finish(&request.id, changed, created_text).await;
    if lacks_secrets && done.is_ok() {
        print_note("its source has secrets: --with-secrets copies them, at its creation only");
    }
    done
}

/// `volume default/data is created: 10GiB at plugin dev.berth, which calls it vol-0a1b2c3d`
pub fn created_text(changed: &StorageChanged, volume: Option<&VolumeStatus>) -> String {
    let StorageChanged { id, namespace, changed, secrets: changed_secrets, .. } = changed;
    let name = format!("volume {namespace}/{id}");
    let Some(volume) = volume else { return format!("{name} is being created") };
    let stage = volume.storage.as_ref().map(|storage| storage.stage);
    if stage == Some(Stage::Unused) {
        return format!("{name} is created when its first claim says where");
    }
    let outcome = if *changed { "is created" } else { "was created so already" };
    let secrets = match changed_secrets {
        Some(SecretsOrigin::Source) => ", with the secrets of its source",
        Some(SecretsOrigin::NoneOfSource) => ", without the secrets of its source",
        Some(SecretsOrigin::Class) => ", with the secrets of its class",
        Some(SecretsOrigin::Given) => ", with its own secrets",
        None => "",
    };
    format!("{name} {outcome}: {}{secrets}", place_text(volume))
}

/// `10GiB at plugin dev.berth, which calls it vol-0a1b2c3d`
pub fn place_text(volume: &VolumeStatus) -> String {
    let size = volume.capacity_bytes.map(|bytes| format!("{} ", size::short(bytes)));
    let calls = match &volume.external_id {
        Some(id) if id.as_str() != volume.id.as_str() => format!(", which calls it {id}"),
        _ => String::new(),
    };
    format!("{}at plugin {}{calls}", size.unwrap_or_default(), volume.plugin)
}
