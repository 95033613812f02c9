//! A driver that reports what is not so is found: its kernel's mount table is in the log, too.

use std::path::Path;
use std::process::Command;

use berth_csi::Rpc;
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_csi_proxy::faults::{Fault, FaultMark, WrongAnswer};
use berth_judge::FindingKind;

use crate::request::{Context, publish, stage, unpublish, unstage};
use crate::world::{Node, World};

/// From now on the driver answers calls of `rpc` with OK, and does nothing.
fn does_nothing(node: &Node, rpc: Rpc) {
    let wrong = Some(WrongAnswer::NothingDone);
    node.plant(Fault { rpc: Some(rpc), wrong, ..Fault::default() });
}

impl World {
    /// What the judge finds against the driver, and nothing else.
    #[track_caller]
    fn reports_falsely(&self, rules: &[&str]) {
        let findings = self.findings();
        assert!(
            findings.iter().all(|finding| finding.kind == FindingKind::FalseReport),
            "{findings:?}"
        );
        let broken: Vec<_> = findings.iter().map(|finding| finding.rule.name.as_str()).collect();
        assert_eq!(broken, rules, "{findings:?}");
    }

    /// The volume published on `n1`, at `t`.
    async fn publish(&self, is_readonly: bool) -> (String, String, Context) {
        self.provision("v");
        let node = &self.n1;
        let context = self.stage(node, "v", SingleNodeWriter).await;
        let (staging, target) = (node.staging("v"), node.target("t"));
        let mut request = publish("v", (&staging, &target), SingleNodeWriter, &context);
        request.readonly = is_readonly;
        node.call(request).await.unwrap();
        (staging, target, context)
    }
}

#[tokio::test]
async fn a_stage_and_a_publication_that_were_not_made() {
    let Some(world) = World::start("kernel", &["--no-attach"]).await else { return };
    world.provision("v");
    let node = &world.n1;
    does_nothing(node, Rpc::NodeStageVolume);
    let nothing = Context::new();
    node.call(stage("v", &node.staging("v"), SingleNodeWriter, &nothing)).await.unwrap();
    assert_eq!(node.last_end().fault, Some(FaultMark::Wrong));
    world.reports_falsely(&["not-mounted"]);

    node.plant_nothing();
    node.call(stage("v", &node.staging("v"), SingleNodeWriter, &nothing)).await.unwrap();
    does_nothing(node, Rpc::NodePublishVolume);
    let (staging, target) = (node.staging("v"), node.target("t"));
    node.call(publish("v", (&staging, &target), SingleNodeWriter, &nothing)).await.unwrap();
    world.reports_falsely(&["not-mounted", "not-mounted"]);
}

#[tokio::test]
async fn a_publication_and_a_stage_that_were_not_undone() {
    let Some(world) = World::start("kernel", &[]).await else { return };
    let (staging, target, _) = world.publish(false).await;
    world.reports_falsely(&[]);
    let node = &world.n1;
    does_nothing(node, Rpc::NodeUnpublishVolume);
    node.call(unpublish("v", &target)).await.unwrap();
    world.reports_falsely(&["still-mounted"]);

    node.plant_nothing();
    node.call(unpublish("v", &target)).await.unwrap();
    does_nothing(node, Rpc::NodeUnstageVolume);
    node.call(unstage("v", &staging)).await.unwrap();
    world.reports_falsely(&["still-mounted", "still-mounted"]);
}

/// The driver goes by its notes here: it looks whether the volume is mounted, not how.
#[tokio::test]
async fn a_read_only_publication_that_became_writable() {
    let Some(world) = World::start("kernel", &[]).await else { return };
    let (staging, target, context) = world.publish(true).await;
    world.reports_falsely(&[]);
    let remounted = Command::new("mount").args(["-o", "remount,bind,rw", &target]).status();
    assert!(remounted.unwrap().success());
    let mut repeated = publish("v", (&staging, &target), SingleNodeWriter, &context);
    repeated.readonly = true;
    world.n1.call(repeated).await.unwrap();
    world.reports_falsely(&["mounted-writable"]);
}

/// What lies in the log is the kernel's word, also where the path has characters that the kernel
/// writes otherwise.
#[tokio::test]
async fn the_log_says_what_the_kernel_has() {
    let Some(world) = World::start("kernel", &[]).await else { return };
    world.publish(false).await;
    let node = &world.n1;
    let observed = node.last_end().kernel.unwrap();
    let paths: Vec<_> = observed.iter().map(|at_path| at_path.path.clone()).collect();
    assert_eq!(paths, [node.staging("v"), node.target("t")]);
    assert!(observed.iter().all(|at_path| at_path.mounts.len() == 1), "{observed:?}");
    assert_eq!(observed[0].mounts, observed[1].mounts);
    assert!(Path::new(&observed[0].mounts[0].root).ends_with("data"), "{observed:?}");

    let odd = node.target(r"t \ of three");
    let mode = berth_csi_dev::capability::AccessMode::SingleNodeMultiWriter;
    world.provision("w");
    let context = world.stage(node, "w", mode).await;
    let staging = node.staging("w");
    node.call(publish("w", (&staging, &odd), mode, &context)).await.unwrap();
    let observed = node.last_end().kernel.unwrap();
    assert_eq!(
        (observed[1].path.as_str(), observed[1].mounts.len()),
        (odd.as_str(), 1),
        "{observed:?}"
    );
    world.reports_falsely(&[]);
}
