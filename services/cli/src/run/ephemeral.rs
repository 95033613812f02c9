//! Volumes for one run: created before its alloc is registered, and gone after it.
//!
//! **Promises** that a run whose volume cannot be created leaves none.
//!
//! **Never** deletes a volume that this run did not create ([`Created`]), nor one of a run that
//! started: the volumewatcher does that, once the alloc
//! has ended and no claim is left, also if this process is killed. It deletes a volume whose alloc
//! is never registered, too.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::hint::namespace_option;
use berth_contract::message::storage::{Create, DeleteVolume, StorageChanged};
use berth_contract::message::volume::VolumeQuery;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::access::{AccessMode, AttachmentMode, Capability};
use berth_domain::limits::RUN_REGISTERED_WITHIN;
use berth_domain::volume::MountOptions;
use berth_domain::{ClassId, VolumeId};
use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;

use super::plan::{EphemeralVolume, Plan};
use crate::args::Run;
use crate::classes::read_classes;
use crate::failure::Failure;
use crate::output::print_note;
use crate::session::{Patience, Session};
use crate::size;
use crate::storage::{Change, StorageGoal};

/// The time that is left for the registration of the alloc after the creation.
const REGISTRATION_MAX: Duration = Duration::from_secs(60);
/// How long the deletion is waited for.
const GONE_PATIENCE: Duration = Duration::from_secs(60);
/// How long the deletion is waited for after a creation that failed.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(10);
/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_secs(3);

/// The volumes that this run created, each with the revision of its creation. Only a reply that
/// says that the volume was made adds one: a volume of the same name that existed before, or that
/// another run of the same alloc made, is not among them.
#[derive(Debug, Default)]
pub struct Created(Mutex<BTreeMap<VolumeId, u64>>);

impl Created {
    fn add(&self, id: &VolumeId, create_index: u64) {
        let mut created = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        created.insert(id.clone(), create_index);
    }

    fn list(&self) -> Vec<(VolumeId, u64)> {
        let created = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        created.iter().map(|(id, create_index)| (id.clone(), *create_index)).collect()
    }
}

/// Creates the volumes of the run, and waits until all of them are ready.
pub async fn create(
    session: &Session,
    plan: &Plan,
    args: &Run,
    patience: Patience,
    created: &Created,
) -> Result<(), Failure> {
    if plan.ephemeral().is_empty() {
        return Ok(());
    }
    let within = RUN_REGISTERED_WITHIN.saturating_sub(REGISTRATION_MAX);
    let until = patience.until.min(Instant::now() + within);
    let lacks_class = plan.ephemeral().iter().any(|new| new.class.is_none());
    let default = if lacks_class { Some(find_only_class(session).await?) } else { None };
    let creations = plan.ephemeral().iter().map(async |new| {
        let class = new.class.clone().or_else(|| default.clone());
        let requested = request(session, plan, args, new, class).await?;
        let index = requested.index;
        if requested.changed {
            created.add(&new.id, index);
        }
        let goal = StorageGoal::Created;
        let change =
            Change { session, namespace: &session.namespace, id: &new.id, goal: &goal, index };
        let volume = change.wait(until).await?;
        let bytes = volume.and_then(|volume| volume.capacity_bytes).unwrap_or(new.size.bytes());
        print_note(format_args!("  created {}: {} for this run", new.id, size::short(bytes)));
        Ok::<(), Failure>(())
    });
    try_join_all(creations).await.map(drop)
}

/// Requests one volume. The reply says whether this request created it, and the revision.
async fn request(
    session: &Session,
    plan: &Plan,
    args: &Run,
    new: &EphemeralVolume,
    class: Option<ClassId>,
) -> Result<StorageChanged, Failure> {
    let capability = Capability {
        access: args.access.unwrap_or(AccessMode::SingleNodeWriter),
        attachment: args.attachment.unwrap_or(AttachmentMode::FileSystem),
    };
    let is_given = args.access.is_some() || args.attachment.is_some();
    let body = Create {
        id: new.id.clone(),
        namespace: None,
        name: None,
        class,
        plugin: None,
        size: Some(new.size),
        limit: None,
        capabilities: is_given.then_some(capability).into_iter().collect(),
        mount: MountOptions::default(),
        parameters: BTreeMap::new(),
        mutable_parameters: BTreeMap::new(),
        topologies: Vec::new(),
        topology_policy: None,
        reclaim: None,
        origin: None,
        for_alloc: Some(plan.alloc.clone()),
        node: Some(plan.node.clone()),
        secrets: None,
    };
    let reply = session.ask_service::<verb::VolumeCreate>(&session.namespace, &body);
    reply.await
}

/// The class of a new volume that names none: the only class that the namespace may use.
async fn find_only_class(session: &Session) -> Result<ClassId, Failure> {
    let classes = read_classes(session, &session.namespace).await?;
    match classes.classes.as_slice() {
        [only] => Ok(only.id.clone()),
        [] => Err(Failure::local(
            "a new volume needs a class, and the namespace may use none",
            "define one with `berth class init` and `berth class create FILE`",
        )),
        several => {
            let ids: Vec<&str> = several.iter().map(|class| class.id.as_str()).collect();
            let message = "a new volume needs a class, and there are several";
            Err(Failure::local(message, format_args!("name it with --class: {}", ids.join(", "))))
        }
    }
}

/// Deletes the volumes of a run that does not start. The volumewatcher deletes what this misses:
/// volumes whose deletion fails, and volumes that may or may not be of this run.
pub async fn give_up(session: &Session, plan: &Plan, created: &Created) {
    let until = Instant::now() + GIVE_UP_PATIENCE;
    join_all(created.list().into_iter().map(async |(id, create_index)| {
        let body = DeleteVolume {
            id: id.clone(),
            reason: format!("the run of alloc {} did not start", plan.alloc),
            create_index: Some(create_index),
        };
        let deadline = Instant::now() + REQUEST_MAX;
        let deleted = session.once::<verb::VolumeDelete>(&session.namespace, &body, deadline).await;
        match deleted {
            Err(problem) if problem.code == Code::NoSuchVolume => {}
            Ok(deleted) if deleted.gone => {}
            _ => await_one(session, &id, until).await,
        }
    }))
    .await;
}

/// Waits until the volumes of an ended run are gone, and prints that.
pub async fn await_gone(session: &Session, plan: &Plan) {
    let until = Instant::now() + GONE_PATIENCE;
    join_all(plan.ephemeral().iter().map(|new| await_one(session, &new.id, until))).await;
}

async fn await_one(session: &Session, id: &VolumeId, until: Instant) {
    let create_index = match read_create_index(session, id).await {
        Ok(create_index) => create_index,
        Err(problem) if problem.code == Code::NoSuchVolume => {
            print_note(format_args!("  {id}: deleted"));
            return;
        }
        Err(problem) => {
            print_note(format_args!("  {id}: cannot look now: {problem}"));
            return print_how_it_goes_on(session, id);
        }
    };
    let goal = StorageGoal::Deleted { create_index };
    let change = Change { session, namespace: &session.namespace, id, goal: &goal, index: 0 };
    match change.wait(until).await {
        Ok(_) => print_note(format_args!("  {id}: deleted")),
        Err(failure) => {
            print_note(failure);
            print_how_it_goes_on(session, id);
        }
    }
}

async fn read_create_index(session: &Session, id: &VolumeId) -> Result<u64, Problem> {
    let body = VolumeQuery::current(id.clone());
    let deadline = Instant::now() + REQUEST_MAX;
    let read = session.once::<verb::VolumeStatus>(&session.namespace, &body, deadline).await;
    read.map(|volume| volume.create_index)
}

fn print_how_it_goes_on(session: &Session, id: &VolumeId) {
    print_note(format_args!(
        "volume {id} is deleted without this; watch it: berth volume status {id}{}",
        namespace_option(&session.namespace)
    ));
}
