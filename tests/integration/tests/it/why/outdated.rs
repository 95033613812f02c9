//! Requests that an executor of Berth refuses because it has seen a newer one (rule 4). After a
//! bucket begins anew, its revisions are lower than those that the executors have seen.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_access::Role;
use berth_bus::Call as Request;
use berth_contract::actor::Actor;
use berth_contract::message::call::{Call, ClaimDetails};
use berth_contract::service::VOLUMEWATCHER;
use berth_contract::verb::{self, PluginOnNode, Verb as _};
use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::volume::storage::Stage;
use berth_domain::volume::{CallKind, MountOptions};
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, PluginId, VolumeId};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use berth_service::clock;
use serde_json::json;

use super::{NOBODY, tells};

/// How long the executors remember the newer call, at least.
const REMEMBERED: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn why_says_that_berth_refused_an_older_request_and_blames_no_plugin() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { call_timeout_ms: 1_500, patience_ms: 2_500, ..Options::default() };
    let system = System::start(options).await;
    for volume in ["joins", "leaves"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.run("of-leaves", 0, "leaves").await;
    for node in 0..2 {
        for volume in ["joins", "grows"] {
            see_newer(&system, CallKind::ControllerUnpublish, node, volume).await;
        }
    }
    see_newer(&system, CallKind::NodeDetach, 0, "leaves").await;

    system.alloc("of-joins", 0, "joins", false).await;
    system.create("grows", json!({"size": "1MiB"})).await.unwrap();
    system.stop("of-leaves").await;
    let refused = "the agent of n… refused the request, because it knows of a newer one for the \
                   volume; plugin dev.berth was not called";
    let findings = async {
        for (volume, prefix) in [("joins", ""), ("leaves", ""), ("grows", "creating: ")] {
            let sentence = format!("{prefix}{refused}");
            let finding = tells(&system, volume, "request-outdated", NOBODY, &sentence).await;
            assert!(finding["evidence"].to_string().contains("BERTH0208"), "{finding:#}");
        }
    };
    // The requests succeed later, without help.
    let (mounted, ()) = tokio::join!(system.mount_in_turn("of-joins", 0, "joins"), findings);
    mounted.unwrap();
    system.freed("leaves").await;
    system.staged_as("grows", Stage::Ready).await;
    system.stop("of-joins").await;
    system.settle("joins").await;
}

/// Shows the executors of a node a call for the volume with a much higher revision.
async fn see_newer(system: &System, call: CallKind, node: usize, volume: &str) {
    let node = NodeId::new(format!("n{}", node + 1)).unwrap();
    let plugin = PluginId::new("dev.berth").unwrap();
    let newer = Call {
        call,
        attempt: AttemptId::new(format!("newer-{node}-{volume}")).unwrap(),
        revision: 1_000_000,
        deadline: clock::now().after(REMEMBERED),
        namespace: Namespace::default(),
        volume: VolumeId::new(volume).unwrap(),
        external_id: "another".to_owned(),
        plugin: plugin.clone(),
        ask_first: Vec::new(),
        secrets: None,
        details: ClaimDetails {
            alloc: AllocId::new("another").unwrap(),
            epoch: 1,
            node: node.clone(),
            external_node: Some(format!("external-{node}")),
            controller: None,
            claims_beside: None,
            claims_beside_digest: None,
            unstaged_by: None,
            by: None,
            access: AccessMode::SingleNodeWriter,
            mode: Mode::Write,
            attachment: AttachmentMode::FileSystem,
            mount: MountOptions::default(),
            context: BTreeMap::new(),
            span: None,
        },
    };
    let subject = match call {
        CallKind::NodeDetach => verb::AgentDetach::subject(&node),
        _ => verb::ControllerUnpublishOnNode::subject(&PluginOnNode { plugin, node }),
    };
    let watcher = system.connect_as(&Role::Volumewatcher, Actor::service(VOLUMEWATCHER)).await;
    let request = Request::within(clock::begin_trace(), REMEMBERED);
    let answer = watcher.request::<serde_json::Value>(&subject, &newer, &request).await;
    answer.unwrap();
}
