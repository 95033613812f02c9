//! Secrets are served for a call that is due at the requester, and sealed for its reported key.

use std::sync::{Arc, Mutex};

use berth_bus::{EndpointSpec, Service, ServiceSpec};
use berth_contract::code::Code;
use berth_contract::message::secret::Sealed;
use berth_contract::problem::Problem;
use berth_contract::subject::controller_queue;
use berth_contract::verb::{self, PluginOnNode, Verb as _};
use berth_domain::plugin::Half;
use berth_domain::{Namespace, PluginId, VolumeId, VolumeKey};
use berth_service::seal::Keys;
use serde_json::{Value, json};

use crate::secrets_site::{Site, node_id, open};

/// What the controller and a node without one were answered during a call.
#[derive(Debug)]
struct During {
    step: String,
    secrets: String,
    host: Result<Sealed, Problem>,
    other: Result<Sealed, Problem>,
}

type Seen = Arc<Mutex<Vec<During>>>;

/// A controller on node `n2`. While it is called, it asks for the secrets; so does node `n3`.
async fn host_controller(site: &Site, plugin: &PluginId, key: &str, seen: &Seen) -> Service {
    let spec = ServiceSpec {
        name: "test-controller".to_owned(),
        version: "1.0.0".to_owned(),
        ..ServiceSpec::default()
    };
    let service = site.bus.service(spec).await.unwrap();
    let own = PluginOnNode { plugin: plugin.clone(), node: node_id("n2") };
    let group = || Some(controller_queue(plugin));
    for (step, subject, queue_group, reply) in [
        (
            "validate",
            verb::ControllerValidate::subject(plugin),
            group(),
            json!({"confirmed": true}),
        ),
        ("publish", verb::ControllerPublish::subject(plugin), group(), json!({})),
        ("publish", verb::ControllerPublishOnNode::subject(&own), None, json!({})),
    ] {
        let endpoint =
            EndpointSpec { name: step.to_owned(), subject, queue_group, ..EndpointSpec::default() };
        let (bus, key, seen) = (site.bus.clone(), key.to_owned(), Arc::clone(seen));
        let answer = move |request: berth_bus::Request| {
            let (bus, key, seen) = (bus.clone(), key.clone(), Arc::clone(&seen));
            let reply = reply.clone();
            async move {
                let call: Value = serde_json::from_slice(&request.body).unwrap();
                let text = |field: &str| call[field].as_str().unwrap_or_default().to_owned();
                let (volume, secrets) = (text("volume"), text("secrets"));
                let host = open(&bus, "n2", &volume, &secrets, &key).await;
                let other = open(&bus, "n3", &volume, &secrets, &key).await;
                let step = step.to_owned();
                seen.lock().unwrap().push(During { step, secrets, host, other });
                Ok::<_, Problem>(reply)
            }
        };
        service.endpoint(endpoint, answer).await.unwrap();
    }
    service
}

fn password(keys: &Keys, volume: &str, sealed: &Sealed) -> String {
    let volume = VolumeKey::new(Namespace::default(), VolumeId::new(volume).unwrap());
    keys.open(&volume, sealed).unwrap().0["password"].clone()
}

/// A refusal without the names that the requester gave itself.
fn told(problem: &Problem, volume: &str) -> String {
    format!("{} {} {}", problem.code, problem.message, problem.next).replace(volume, "VOLUME")
}

#[tokio::test]
async fn a_node_gets_secrets_while_its_claim_is_taken_and_for_its_reported_key_alone() {
    let site = Site::start().await;
    let (plugin, keys, other) = (PluginId::new("p").unwrap(), Keys::once(), Keys::once());
    site.node("n1", Some(&keys.public())).await;
    site.node("n2", Some(&other.public())).await;
    for node in ["n1", "n2"] {
        site.instance(&plugin, node, Half::Node, false).await;
    }
    site.volume("data", &plugin, "n1", "hunter2").await;
    let grant = site.take("data", "n1").await;
    let secrets = grant.secrets.unwrap().to_string();

    let sealed = open(&site.bus, "n1", "data", &secrets, &keys.public()).await.unwrap();
    assert_eq!(password(&keys, "data", &sealed), "hunter2");

    // A node without a call learns nothing, not even whether the volume exists.
    let refused = open(&site.bus, "n2", "data", &secrets, &other.public()).await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::SecretsUnavailable, true), "{refused}");
    assert_eq!(refused.step.as_deref(), Some("secret.open"));
    assert_eq!(refused.volume.as_deref(), Some("default/data"));
    assert_eq!((refused.node.as_deref(), refused.plugin.as_deref()), (Some("n2"), None));
    assert!(refused.next.contains("berth volume status"), "{refused}");
    let unknown = open(&site.bus, "n2", "none", &secrets, &other.public()).await.unwrap_err();
    assert_eq!(told(&refused, "data"), told(&unknown, "none"));

    // A key of the requester's choice, and one that the registry does not have.
    let foreign = open(&site.bus, "n1", "data", &secrets, &other.public()).await.unwrap_err();
    assert_eq!((foreign.code, foreign.retryable), (Code::SealingKeyUnknown, true), "{foreign}");
    site.node("n1", None).await;
    let missing = open(&site.bus, "n1", "data", &secrets, &keys.public()).await.unwrap_err();
    assert_eq!(missing.code, Code::SealingKeyUnknown, "{missing}");
    // The agent started again: its new key counts at once, and its old one no longer.
    let renewed = Keys::once();
    site.node("n1", Some(&renewed.public())).await;
    let sealed = open(&site.bus, "n1", "data", &secrets, &renewed.public()).await.unwrap();
    assert_eq!(password(&renewed, "data", &sealed), "hunter2");

    // Other secrets than the volume's.
    let guess = open(&site.bus, "n1", "data", "guess", &renewed.public()).await.unwrap_err();
    assert_eq!((guess.code, guess.retryable), (Code::SecretsUnavailable, true), "{guess}");

    // Its calls from here on take no secrets.
    let release = verb::ClaimRelease::subject(&Namespace::default());
    let body = json!({"volume": "data", "alloc": "data", "reason": "no longer needed"});
    site.persist::<Value>(&release, &body).await;
    let over = open(&site.bus, "n1", "data", &secrets, &renewed.public()).await.unwrap_err();
    assert_eq!(told(&over, "data").replace("n1", "n2"), told(&refused, "data"));
    assert!(!site.claim.log().contains("hunter2"));
}

#[tokio::test]
async fn a_controller_gets_secrets_during_a_call_and_no_longer() {
    let site = Site::start().await;
    let (plugin, keys) = (PluginId::new("attaches").unwrap(), Keys::once());
    for node in ["n1", "n2", "n3"] {
        site.node(node, Some(&keys.public())).await;
        site.instance(&plugin, node, Half::Node, true).await;
    }
    site.instance(&plugin, "n2", Half::Controller, true).await;
    // Its controller has no part in a volume of another plugin.
    site.instance(&PluginId::new("another").unwrap(), "n3", Half::Controller, true).await;
    let seen_calls = Seen::default();
    let _controller = host_controller(&site, &plugin, &keys.public(), &seen_calls).await;

    site.volume("data", &plugin, "n1", "hunter2").await;
    // Registered otherwise, with the secrets that it has: the plugin is asked again.
    let again = json!({"id": "data", "plugin": plugin, "context": {"a": "b"},
        "capability": [{"access": "single-node-writer"}]});
    site.persist::<Value>(&verb::VolumeRegister::subject(&Namespace::default()), &again).await;
    let grant = site.take("data", "n1").await;
    let id = grant.secrets.unwrap().to_string();
    let during: Vec<During> = std::mem::take(&mut *seen_calls.lock().unwrap());
    let steps: Vec<&str> = during.iter().map(|call| call.step.as_str()).collect();
    assert_eq!(steps, ["validate", "validate", "publish"]);
    for call in &during {
        let sealed =
            call.host.as_ref().unwrap_or_else(|refused| panic!("{}: {refused}", call.step));
        assert_eq!(password(&keys, "data", sealed), "hunter2");
        let refused = call.other.as_ref().unwrap_err();
        assert_eq!(refused.code, Code::SecretsUnavailable, "{}: {refused}", call.step);
        assert!(refused.plugin.is_none(), "{refused}");
    }
    assert_eq!(during.last().unwrap().secrets, id);

    // Neither call is under way any more.
    let over = open(&site.bus, "n2", "data", &id, &keys.public()).await.unwrap_err();
    assert_eq!(over.code, Code::SecretsUnavailable, "{over}");
}
