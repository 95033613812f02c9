//! Foreign drivers: other shapes, other behaviour, and processes that are no driver. Each is the
//! development driver with an option or fault. Each test ends at rest and passes the judge, or ends
//! with a refusal that names the fault.

mod changes;
mod codes;
mod crashes;
mod health;
mod limits;
mod lists;
mod not_a_driver;
mod shapes;
mod unusual_answers;

use std::time::Duration;

use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::plugin::Half;
use berth_harness::process::binary;
use berth_harness::{storage, wait};
use berth_integration::{Options, PLUGIN, System};
use serde_json::{Value, json};

/// Deadline of a step that no fault slows down.
const SOON: Duration = Duration::from_secs(60);

fn one_node() -> Options {
    Options { nodes: 1, call_timeout_ms: 5_000, ..Options::default() }
}

/// A volume's registration, with `fields` over the defaults.
fn document(id: &str, fields: Value) -> Value {
    let mut document = json!({
        "id": id, "plugin": PLUGIN, "capability": [{"access": "single-node-writer"}],
    });
    for (name, value) in fields.as_object().expect("fields are an object") {
        document[name] = value.clone();
    }
    document
}

/// Registers a volume; retried while the answer is "later".
async fn register(system: &System, id: &str, fields: Value) -> Result<Value, Problem> {
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    system.persist(&subject, &document(id, fields)).await
}

/// Registers a volume without a retry.
async fn try_register(system: &System, id: &str, fields: Value) -> Result<Value, Problem> {
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    system.ask(&subject, &document(id, fields)).await
}

/// Creates a volume on the storage, with these arguments besides its id.
fn provision(system: &System, id: &str, args: &[&str]) {
    let provisioned = std::process::Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", id, "--backend"])
        .arg(system.backend())
        .args(args)
        .output()
        .expect("the driver runs");
    assert!(provisioned.status.success(), "{provisioned:?}");
}

/// Claims, mounts and writes on a node, and releases. Nothing is left, and the judge passes.
async fn use_on(system: &System, node: usize, volume: &str) {
    let alloc = format!("user-of-{volume}");
    let mounted = system.run(&alloc, node, volume).await;
    std::fs::write(format!("{}/hello", mounted.path), "hello").expect("it can be written");
    system.stop(&alloc).await;
    await_rest(system, volume).await;
}

/// Waits until nothing is left of a volume, here or at the storage.
async fn await_rest(system: &System, volume: &str) {
    system.settle(volume).await;
    let in_use = storage::in_use(&system.backend());
    assert!(in_use.is_empty(), "still in use: {in_use:?}");
}

/// Starts a system with these options, and registers, mounts and releases a volume.
async fn use_with(options: Options) -> System {
    let system = System::start(options).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    use_on(&system, 0, "data").await;
    system
}

/// Calls of an RPC that began at the driver of a node (from 0).
fn call_count(system: &System, node: usize, rpc: &str) -> usize {
    let is_counted = |call: &&Value| {
        let id = (system.options.external_node)(node);
        call["entry"] == "begin" && call["rpc"] == rpc && call["node_id"] == id.as_str()
    };
    system.calls().iter().filter(is_counted).count()
}

/// Waits until the status of the plugin's instance on a node is as expected, and returns it.
async fn await_instance(
    system: &System,
    node: &str,
    half: Half,
    is_expected: impl Fn(&Value) -> bool,
) -> Value {
    wait::until("the instance is as expected", SOON, || async {
        let plugins: Result<Value, Problem> =
            system.ask(&verb::PluginStatus::subject(&()), &json!({"id": PLUGIN})).await;
        let plugins = plugins.map_err(|problem| problem.to_string())?;
        let instances = plugins["plugins"][0]["instances"].as_array().cloned().unwrap_or_default();
        let is_wanted =
            |instance: &&Value| instance["node"] == node && instance["half"] == half.as_str();
        let instance = instances.iter().find(is_wanted).cloned().ok_or("no such instance")?;
        if is_expected(&instance) { Ok(instance) } else { Err(instance.to_string()) }
    })
    .await
}

/// Whether people can be shown the text: one line, not too long, no control characters.
fn is_showable(text: &str) -> bool {
    text.len() < 4096 && !text.contains(char::is_control)
}
