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

use crate::Fatal;
use crate::load;

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

/// Ends an alloc, so that its volumes are released.
pub async fn stop_alloc(bus: &Bus, namespace: &Namespace, id: &str) -> Result<(), Fatal> {
    let stop = json!({"id": id, "state": "complete"});
    about::<verb::AllocStop>(bus, namespace, &stop).await.map(drop)
}

/// Calls `each` with every number below `many`, [`FILL_AT_ONCE`] at once. Returns the results in
/// the order of the numbers.
pub async fn fill<T, F>(
    many: usize,
    each: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Result<Vec<T>, Fatal>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Fatal>> + Send + 'static,
{
    let (next, each) = (Arc::new(AtomicUsize::new(0)), Arc::new(each));
    let tasks = load::callers(FILL_AT_ONCE.min(many), |_| {
        let (next, each) = (Arc::clone(&next), Arc::clone(&each));
        async move {
            let mut results = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= many {
                    return Ok(results);
                }
                results.push((number, each(number).await?));
            }
        }
    });
    let mut results: Vec<(usize, T)> = tasks.await?.into_iter().flatten().collect();
    results.sort_unstable_by_key(|(number, _)| *number);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
