//! The rules of an executor, over the bus and with a plugin that takes its time: rule 4.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::call::{Called, Validate, Validated};
use berth_contract::verb::{self, Verb as _};
use berth_domain::access::{AccessMode, AttachmentMode, Capability};
use berth_domain::volume::CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
use berth_domain::volume::MountOptions;
use berth_domain::{Namespace, Timestamp, VolumeId};
use berth_harness::wait;
use berth_service::clock;
use serde_json::json;

use crate::world::{PATIENCE, World, call, hold, plugin};

/// Safety 8: a command of an old attempt does nothing.
#[tokio::test]
async fn late_and_old_calls_do_nothing() {
    let world = World::start().await;
    let attached = world.attach(10).await;
    for kind in [ControllerPublish, ControllerUnpublish, NodeDetach] {
        let mut late = call(kind, "a", 1, 20);
        late.deadline = Timestamp::from_unix_ms(clock::now().unix_ms() - 1);
        assert_eq!(world.call(late).await.unwrap_err().code, Code::Late, "{kind}");
    }
    for kind in [ControllerPublish, ControllerUnpublish] {
        let old = world.call(call(kind, "a", 1, 9)).await.unwrap_err();
        assert_eq!((old.code, old.retryable), (Code::OldCall, false), "{kind}");
    }
    assert_eq!(world.calls(), ["ControllerPublishVolume OK"]);
    // The same attempt again is the same call, and is answered the same.
    assert_eq!(world.attach(10).await, attached);
    world.judge();
}

/// Safety 4: one controller call in flight per volume, also when its caller has given up.
#[tokio::test]
async fn the_next_call_waits_until_the_plugin_has_answered_the_one_before() {
    let world = World::start().await;
    world.plant(&hold("ControllerPublishVolume"));
    let mut first = call(ControllerPublish, "a", 1, 10);
    first.deadline = clock::now().after(Duration::from_millis(200));
    let unanswered = world.call(first).await.unwrap_err();
    assert_eq!((unanswered.code, unanswered.retryable), (Code::NoAnswer, true), "{unanswered}");
    let mut next = call(ControllerUnpublish, "a", 1, 11);
    next.deadline = clock::now().after(Duration::from_millis(200));
    let busy = world.call(next).await.unwrap_err();
    assert_eq!((busy.code, busy.retryable), (Code::StillBusy, true), "{busy}");
    assert!(world.calls().is_empty(), "the plugin still works on the first");
    // With time to wait, it comes in its turn.
    let next = world.call(call(ControllerUnpublish, "a", 1, 12));
    tokio::join!(next, world.let_go()).0.unwrap();
    assert_eq!(world.calls(), ["ControllerPublishVolume OK", "ControllerUnpublishVolume OK"]);
    world.judge();
}

#[tokio::test]
async fn a_plugins_no_is_told_apart_from_its_failure() {
    let world = World::start().await;
    for (revision, code, expected, retryable) in [
        (10, "INVALID_ARGUMENT", Code::PluginRefused, false),
        (11, "INTERNAL", Code::PluginFailed, true),
        (12, "NOT_FOUND", Code::PluginFailed, true),
    ] {
        world.plant(&json!([{"rpc": "ControllerUnpublishVolume", "code": code}]));
        let problem = world.call(call(ControllerUnpublish, "a", 1, revision)).await.unwrap_err();
        assert_eq!((problem.code, problem.retryable), (expected, retryable), "{problem}");
        assert!(problem.message.contains(code), "{problem}");
        assert_eq!(problem.step.as_deref(), Some("controller.unpublish"));
        assert_eq!(problem.volume.as_deref(), Some("default/data"));
        assert_eq!(problem.node.as_deref(), Some("n.1"));
        assert!(problem.trace.is_some());
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_meant_does_nothing() {
    let world = World::start().await;
    let mut nowhere = call(ControllerUnpublish, "a", 1, 10);
    nowhere.details.external_node = None;
    // To the plugin, no node means every node.
    assert_eq!(world.call(nowhere).await.unwrap_err().code, Code::BadInput);
    let astray = call(ControllerUnpublish, "a", 1, 10);
    let publish = verb::ControllerPublish::subject(&plugin());
    let refused = world.ask::<Called>(&publish, &astray, PATIENCE).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput);
    assert!(world.calls().is_empty());
}

#[tokio::test]
async fn a_controller_is_asked_how_a_volume_can_be_used() {
    let world = World::start().await;
    let validate = async |external_id: &str| {
        let capability = |access| Capability { access, attachment: AttachmentMode::FileSystem };
        let asked = Validate {
            namespace: Namespace::default(),
            volume: VolumeId::new("data").unwrap(),
            external_id: external_id.to_owned(),
            plugin: plugin(),
            capabilities: vec![
                capability(AccessMode::SingleNodeWriter),
                capability(AccessMode::SingleNodeMultiWriter),
            ],
            mount: MountOptions::default(),
            context: BTreeMap::new(),
            parameters: BTreeMap::new(),
            secrets: None,
        };
        let subject = verb::ControllerValidate::subject(&plugin());
        world.ask::<Validated>(&subject, &asked, PATIENCE).await
    };
    assert_eq!(
        validate("vol/1").await.unwrap(),
        Validated { confirmed: true, unknown: false, message: None }
    );
    let unknown = validate("vol/2").await.unwrap();
    assert!(unknown.unknown && !unknown.confirmed, "{unknown:?}");
    assert!(unknown.message.as_ref().unwrap().contains("NOT_FOUND"), "{unknown:?}");
    wait::until("it is logged", PATIENCE, async || {
        let logged = world.count("ValidateVolumeCapabilities OK") == 1;
        if logged { Ok(()) } else { Err(format!("{:?}", world.calls())) }
    })
    .await;
}
