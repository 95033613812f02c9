//! Schedulers' allocs: they are owned, guarded, mounted as a whole, and waited for.

mod guards;
mod owners;
mod volumes;
mod waits;
mod whole;

use std::time::Duration;

use berth_access::{Grants, Role};
use berth_bus::Call;
use berth_client::Client;
use berth_client::scheduler::{Alloc, Scheduler};
use berth_contract::actor::Actor;
use berth_contract::message::alloc::RegisterAlloc;
use berth_contract::problem::Problem;
use berth_contract::verb::Verb;
use berth_domain::alloc::VolumeRequest;
use berth_domain::{AllocId, Namespace, NodeId, OwnerId, VolumeId};
use berth_integration::System;
use berth_service::clock;

/// The TTL of an owner's lease.
const TTL: Duration = Duration::from_secs(3);
/// How long a step may take that should happen at once.
const SOON: Duration = Duration::from_secs(30);

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn alloc_id(id: &str) -> AllocId {
    AllocId::new(id).unwrap()
}

/// An identity with the rights of a scheduler.
fn identity(name: &str) -> Role {
    let grants = Grants::parse_namespaces(&["default=read,mount"]).unwrap();
    Role::User { name: name.to_owned(), grants }
}

/// An instance of a scheduler with this identity.
async fn scheduler(system: &System, user: &str, name: &str) -> Scheduler {
    let bus = system.connect_as(&identity(user), Actor::user(user)).await;
    Scheduler::on(bus, Namespace::default(), owner(name), TTL).await.unwrap()
}

/// An alloc on a node (from 0) with these volumes.
fn register(id: &str, node: usize, volumes: &[&str]) -> RegisterAlloc {
    let node = NodeId::new(format!("n{}", node + 1)).unwrap();
    let request = |id: &&str| VolumeRequest::for_volume(VolumeId::new(*id).unwrap());
    RegisterAlloc::new(alloc_id(id), node, volumes.iter().map(request).collect())
}

async fn place(scheduler: &Scheduler, id: &str, node: usize, volumes: &[&str]) -> Alloc {
    scheduler.register(register(id, node, volumes)).await.unwrap()
}

/// Sends a request as an operator.
async fn ask<V: Verb<To = Namespace>>(
    system: &System,
    request: &V::Request,
) -> Result<V::Reply, Problem> {
    let call = Call::within(clock::begin_trace(), SOON);
    Client::new(system.bus.clone()).once::<V>(&Namespace::default(), request, &call).await
}
