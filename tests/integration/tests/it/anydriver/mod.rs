//! Foreign drivers: other shapes, other behaviour, and processes that are no driver. Each is the
//! development driver with an option or fault. Each test ends at rest and passes the judge, or ends
//! with a refusal that names the fault.

mod changes;
mod codes;
mod limits;
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

/// How long any step may take that is not slowed on purpose.
const SOON: Duration = Duration::from_secs(60);

/// Options for one node.
fn alone() -> Options {
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
    let made = std::process::Command::new(binary("berth-csi-dev"))
        .args(["provision", "--volume", id, "--backend"])
        .arg(system.backend())
        .args(args)
        .output()
        .expect("the driver runs");
    assert!(made.status.success(), "{made:?}");
}

/// Claims, mounts and writes on a node, and releases. Nothing is left, and the judge passes.
async fn used_on(system: &System, node: usize, volume: &str) {
    let alloc = format!("user-of-{volume}");
    let mounted = system.run(&alloc, node, volume).await;
    std::fs::write(format!("{}/hello", mounted.path), "hello").expect("it can be written");
    system.stop(&alloc).await;
    at_rest(system, volume).await;
}

/// Waits until nothing is left of a volume, here or at the storage.
async fn at_rest(system: &System, volume: &str) {
    system.settle(volume).await;
    let left = storage::in_use(&system.backend());
    assert!(left.is_empty(), "still in use: {left:?}");
}

/// The whole life of a volume with these options of a driver.
async fn whole_life(options: Options) -> System {
    let system = System::start(options).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    used_on(&system, 0, "data").await;
    system
}

/// Calls of an RPC that began at the driver of a node (from 0).
fn begun_at(system: &System, node: usize, rpc: &str) -> usize {
    let is_it = |call: &&Value| {
        let at = (system.options.external_node)(node);
        call["entry"] == "begin" && call["rpc"] == rpc && call["node_id"] == at.as_str()
    };
    system.calls().iter().filter(is_it).count()
}

/// Waits until the status of the plugin's instance on a node is as expected, and returns it.
async fn seen(system: &System, node: &str, half: Half, is_so: impl Fn(&Value) -> bool) -> Value {
    wait::until("the instance is seen so", SOON, || async {
        let plugins: Result<Value, Problem> =
            system.ask(&verb::PluginStatus::subject(&()), &json!({"id": PLUGIN})).await;
        let plugins = plugins.map_err(|problem| problem.to_string())?;
        let instances = plugins["plugins"][0]["instances"].as_array().cloned().unwrap_or_default();
        let wanted = |one: &&Value| one["node"] == node && one["half"] == half.as_str();
        let instance = instances.iter().find(wanted).cloned().ok_or("there is none yet")?;
        if is_so(&instance) { Ok(instance) } else { Err(instance.to_string()) }
    })
    .await
}

/// Whether people can be shown the text: one line, not too long, no control characters.
fn is_showable(text: &str) -> bool {
    text.len() < 4096 && !text.contains(char::is_control)
}
