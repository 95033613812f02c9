//! The agent's report of a plugin to the registry (D2).
//!
//! **Promises** one reported instance per half of the plugin: controller, node, or both.

use berth_contract::message::registry::ReportedInstance;
use berth_csi::Fingerprint;
use berth_csi::advertised::ControllerCapabilities;
use berth_csi::failure::one_line;
use berth_domain::PluginId;
use berth_domain::plugin::{ControllerAbilities, Half, Instance, NodeAbilities, StorageTrouble};

use super::view::{InstanceView, PluginHalves};

/// What the plugin said of this node besides its capabilities.
#[derive(Debug, Default)]
pub(super) struct NodeWord {
    /// Why it takes no further volume here.
    pub(super) full: Option<String>,
    /// What is wrong with the storage.
    pub(super) storage: Vec<StorageTrouble>,
}

/// Reports each half of a plugin by the instance that its calls go to. A plugin that has never
/// answered is reported as a node instance, because its services are unknown.
pub(super) fn report_halves(
    plugin: &PluginId,
    halves: &PluginHalves,
    NodeWord { full, storage }: NodeWord,
) -> Vec<ReportedInstance> {
    let known = halves.controller.fingerprint.as_ref();
    let controller =
        known.and_then(|known| Some(controller_abilities(known, known.controller.as_ref()?)));
    let abilities = halves.node.fingerprint.as_ref().and_then(node_abilities);
    let mut of_node = half_from_view(&halves.node);
    for trouble in &storage {
        of_node.description =
            one_line(&format!("{}; its storage: {}", of_node.description, trouble.said));
    }
    let node = abilities.map(|abilities| NodeAbilities { full, storage, ..abilities });
    let reported = |half, instance| ReportedInstance { plugin: plugin.clone(), half, instance };
    let mut reports = Vec::new();
    if let Some(controller) = controller {
        let instance =
            Instance { controller: Some(controller), ..half_from_view(&halves.controller) };
        reports.push(reported(Half::Controller, instance));
    }
    if node.is_some() || reports.is_empty() {
        reports.push(reported(Half::Node, Instance { node, ..of_node }));
    }
    reports
}

/// What both halves report alike: health, provider and version.
fn half_from_view(view: &InstanceView) -> Instance {
    let known = view.fingerprint.as_ref();
    Instance {
        healthy: view.healthy,
        // The registry refuses a whole report if one text is too long.
        description: one_line(&view.description),
        provider: known.map(|known| known.name.clone()).unwrap_or_default(),
        version: known.map(|known| known.vendor_version.clone()).unwrap_or_default(),
        since: view.since,
        controller: None,
        node: None,
        id_since: None,
        process: view.process.clone(),
    }
}

fn controller_abilities(known: &Fingerprint, can: &ControllerCapabilities) -> ControllerAbilities {
    ControllerAbilities {
        publish_unpublish_volume: can.publish_unpublish_volume,
        publish_readonly: can.publish_readonly,
        create_delete_volume: can.create_delete_volume,
        list_volumes: can.list_volumes,
        create_delete_snapshot: can.create_delete_snapshot,
        clone_volume: can.clone_volume,
        expand_volume: can.expand_volume,
        single_node_multi_writer: can.single_node_multi_writer,
        get_capacity: can.get_capacity,
        list_snapshots: can.list_snapshots,
        get_snapshot: can.get_snapshot,
        get_volume: can.get_volume,
        modify_volume: can.modify_volume,
        volume_condition: can.volume_condition,
        get_volume_health: can.get_volume_health,
        list_volume_health: can.list_volume_health,
        list_published_nodes: can.list_volumes_published_nodes,
        group_snapshot: known.group_snapshots,
        topology: known.services.volume_accessibility_constraints,
        snapshot_topology: known.services.snapshot_accessibility_constraints,
        expand_offline_only: known.expansion.offline && !known.expansion.online,
    }
}

fn node_abilities(known: &Fingerprint) -> Option<NodeAbilities> {
    let node = known.node.as_ref()?;
    let can = node.capabilities;
    Some(NodeAbilities {
        external_node: node.node_id.clone().unwrap_or_default(),
        controller_service: known.services.controller_service,
        stage_unstage_volume: can.stage_unstage_volume,
        get_volume_stats: can.get_volume_stats,
        expand_volume: can.expand_volume,
        volume_condition: can.volume_condition,
        single_node_multi_writer: can.single_node_multi_writer,
        volume_mount_group: can.volume_mount_group,
        get_volume_health: can.get_volume_health,
        get_storage_health: can.get_storage_health,
        max_volumes: node.max_volumes,
        full: None,
        storage: Vec::new(),
        topology: node.topology.clone(),
    })
}

#[cfg(test)]
mod tests {
    use berth_csi::advertised::{NodeCapabilities, PluginServices, VolumeExpansion};
    use berth_csi::fingerprint::NodeFingerprint;
    use berth_domain::Timestamp;
    use berth_domain::volume::HoldingProcess;

    use super::*;

    fn process() -> HoldingProcess {
        HoldingProcess { pid: 4712, command: "ebs-plugin".to_owned() }
    }

    fn view(controller: bool, node: bool) -> InstanceView {
        let services = PluginServices { controller_service: true, ..PluginServices::default() };
        let fingerprint = Fingerprint {
            name: "csi.example".to_owned(),
            vendor_version: "1.2".to_owned(),
            services,
            expansion: VolumeExpansion::default(),
            group_snapshots: false,
            controller: controller.then(|| ControllerCapabilities {
                publish_unpublish_volume: true,
                ..ControllerCapabilities::default()
            }),
            node: node.then(|| NodeFingerprint {
                node_id: Some("i-7".to_owned()),
                max_volumes: Some(3),
                topology: [("zone".to_owned(), "a".to_owned())].into(),
                capabilities: NodeCapabilities {
                    stage_unstage_volume: true,
                    ..NodeCapabilities::default()
                },
            }),
        };
        InstanceView {
            healthy: true,
            description: "well".to_owned(),
            since: Timestamp::from_unix_ms(7),
            fingerprint: Some(fingerprint),
            process: Some(process()),
        }
    }

    fn halves(view: &InstanceView) -> Vec<(Half, Instance)> {
        let halves = PluginHalves { controller: view.clone(), node: view.clone() };
        let reported = report_halves(&PluginId::new("p").unwrap(), &halves, NodeWord::default());
        reported.into_iter().map(|reported| (reported.half, reported.instance)).collect()
    }

    #[test]
    fn a_monolith_is_two_instances_each_with_its_own_abilities() {
        let both = halves(&view(true, true));
        let [(Half::Controller, controller), (Half::Node, node)] = &both[..] else {
            panic!("{both:?}")
        };
        assert!(controller.controller.unwrap().publish_unpublish_volume);
        assert_eq!(controller.node, None);
        assert_eq!([&controller.process, &node.process], [&Some(process()); 2]);
        assert_eq!((node.provider.as_str(), node.version.as_str()), ("csi.example", "1.2"));
        let abilities = node.node.as_ref().unwrap();
        assert!(abilities.controller_service && abilities.stage_unstage_volume);
        assert_eq!((abilities.external_node.as_str(), abilities.max_volumes), ("i-7", Some(3)));
    }

    #[test]
    fn a_half_is_reported_as_that_half_alone() {
        let only =
            |view: &InstanceView| halves(view).iter().map(|(half, _)| *half).collect::<Vec<_>>();
        assert_eq!(only(&view(true, false)), [Half::Controller]);
        assert_eq!(only(&view(false, true)), [Half::Node]);
    }

    #[test]
    fn a_plugin_that_never_answered_is_unhealthy_with_its_reason_and_no_abilities() {
        let unknown = InstanceView {
            healthy: false,
            description: "there is no such file".to_owned(),
            since: Timestamp::from_unix_ms(7),
            fingerprint: None,
            process: None,
        };
        let all = halves(&unknown);
        let [(Half::Node, instance)] = &all[..] else { panic!("{all:?}") };
        assert!(!instance.healthy && instance.node.is_none());
        assert_eq!(instance.description, "there is no such file");
    }
}
