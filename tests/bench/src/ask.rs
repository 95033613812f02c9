//! Requests to the services, as any client sends them.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use berth_bus::{Bus, Call, RequestError};
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb};
use berth_domain::Namespace;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Fatal;

/// Deadline of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Most calls of [`fill`] that run at once.
const FILL_AT_ONCE: usize = 128;

/// The node of every alloc, unless a driver runs.
pub const NODE: &str = "n1";

/// A trace that begins here.
pub fn trace() -> TraceContext {
    TraceContext::begin(&mut rand::rng())
}

/// Sends one request.
pub async fn ask(bus: &Bus, subject: &str, body: &Value) -> Result<Value, RequestError> {
    bus.request(subject, body, &Call::within(trace(), REQUEST_TIMEOUT)).await
}

/// Sends one request of a verb that is addressed to a namespace.
pub async fn about<V: Verb<To = Namespace>>(
    bus: &Bus,
    namespace: &Namespace,
    body: &Value,
) -> Result<Value, Fatal> {
    let reply = ask(bus, &V::subject(namespace), body).await;
    reply.map_err(|error| format!("{}: {error}", V::STEP).into())
}

/// Takes a volume for an alloc on [`NODE`].
pub async fn take(
    bus: &Bus,
    namespace: &Namespace,
    alloc: &str,
    volume: &str,
) -> Result<Value, Fatal> {
    let take = json!({"alloc": alloc, "volume": volume, "node": NODE, "mode": "write"});
    about::<verb::ClaimTake>(bus, namespace, &take).await
}

/// Registers a volume.
pub async fn register_volume(
    bus: &Bus,
    namespace: &Namespace,
    id: &str,
    plugin: &str,
    access: &str,
) -> Result<(), Fatal> {
    let document = json!({"id": id, "plugin": plugin, "capability": [{"access": access}]});
    about::<verb::VolumeRegister>(bus, namespace, &document).await.map(drop)
}

/// Registers an alloc that asks for a volume.
pub async fn register_alloc(
    bus: &Bus,
    namespace: &Namespace,
    id: &str,
    volume: &str,
) -> Result<(), Fatal> {
    let alloc = json!({"id": id, "node": NODE, "volumes": [{"source": volume}]});
    about::<verb::AllocRegister>(bus, namespace, &alloc).await.map(drop)
}

/// Calls `each` with every number below `many`, [`FILL_AT_ONCE`] at once.
pub async fn fill<F>(
    many: usize,
    each: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Result<(), Fatal>
where
    F: Future<Output = Result<(), Fatal>> + Send,
{
    let (next, each) = (Arc::new(AtomicUsize::new(0)), Arc::new(each));
    let mut tasks = JoinSet::new();
    for _ in 0..FILL_AT_ONCE.min(many) {
        let (next, each) = (Arc::clone(&next), Arc::clone(&each));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= many {
                    return Ok::<(), Fatal>(());
                }
                each(number).await?;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}
