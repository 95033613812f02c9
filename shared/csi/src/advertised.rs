//! The capabilities that a plugin advertises.
//!
//! **Owns** one flag per capability of CSI 1.13, by CSI's names, for the plugin, its controller and
//! its node.
//!
//! **Promises** that capabilities of a later CSI are ignored.
//!
//! **Never** guesses: a flag is false if the plugin did not list the capability.

use crate::v1;
use crate::v1::controller_service_capability as controller;
use crate::v1::node_service_capability as node;
use crate::v1::plugin_capability as plugin;

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident of $kind:ty { $($flag:ident = $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $(#[doc = concat!("CSI's `", stringify!($variant), "`.")] pub $flag: bool,)*
        }

        impl FromIterator<$kind> for $name {
            fn from_iter<I: IntoIterator<Item = $kind>>(listed: I) -> Self {
                let mut flags = Self::default();
                for capability in listed {
                    $(flags.$flag |= capability == <$kind>::$variant;)*
                }
                flags
            }
        }
    };
}

flags! {
    /// Services and features of the plugin as a whole.
    PluginServices of plugin::service::Type {
        controller_service = ControllerService,
        volume_accessibility_constraints = VolumeAccessibilityConstraints,
        group_controller_service = GroupControllerService,
        snapshot_metadata_service = SnapshotMetadataService,
        snapshot_accessibility_constraints = SnapshotAccessibilityConstraints,
    }
}

flags! {
    /// When the plugin's volumes may grow.
    VolumeExpansion of plugin::volume_expansion::Type {
        online = Online,
        offline = Offline,
    }
}

flags! {
    /// Calls and features of a controller.
    ControllerCapabilities of controller::rpc::Type {
        create_delete_volume = CreateDeleteVolume,
        publish_unpublish_volume = PublishUnpublishVolume,
        list_volumes = ListVolumes,
        get_capacity = GetCapacity,
        create_delete_snapshot = CreateDeleteSnapshot,
        list_snapshots = ListSnapshots,
        clone_volume = CloneVolume,
        publish_readonly = PublishReadonly,
        expand_volume = ExpandVolume,
        list_volumes_published_nodes = ListVolumesPublishedNodes,
        volume_condition = VolumeCondition,
        get_volume = GetVolume,
        single_node_multi_writer = SingleNodeMultiWriter,
        modify_volume = ModifyVolume,
        get_snapshot = GetSnapshot,
        get_volume_health = GetVolumeHealth,
        list_volume_health = ListVolumeHealth,
    }
}

flags! {
    /// Calls and features of a node.
    NodeCapabilities of node::rpc::Type {
        stage_unstage_volume = StageUnstageVolume,
        get_volume_stats = GetVolumeStats,
        expand_volume = ExpandVolume,
        volume_condition = VolumeCondition,
        single_node_multi_writer = SingleNodeMultiWriter,
        volume_mount_group = VolumeMountGroup,
        get_volume_health = GetVolumeHealth,
        get_storage_health = GetStorageHealth,
    }
}

// An unknown number decodes as UNKNOWN, which has no flag.

impl From<&v1::GetPluginCapabilitiesResponse> for PluginServices {
    fn from(answer: &v1::GetPluginCapabilitiesResponse) -> Self {
        let service = |listed: &v1::PluginCapability| match &listed.r#type {
            Some(plugin::Type::Service(service)) => Some(service.r#type()),
            _ => None,
        };
        answer.capabilities.iter().filter_map(service).collect()
    }
}

impl From<&v1::GetPluginCapabilitiesResponse> for VolumeExpansion {
    fn from(answer: &v1::GetPluginCapabilitiesResponse) -> Self {
        let expansion = |listed: &v1::PluginCapability| match &listed.r#type {
            Some(plugin::Type::VolumeExpansion(expansion)) => Some(expansion.r#type()),
            _ => None,
        };
        answer.capabilities.iter().filter_map(expansion).collect()
    }
}

impl From<&v1::ControllerGetCapabilitiesResponse> for ControllerCapabilities {
    fn from(answer: &v1::ControllerGetCapabilitiesResponse) -> Self {
        let rpc = |listed: &v1::ControllerServiceCapability| {
            listed.r#type.as_ref().map(|controller::Type::Rpc(rpc)| rpc.r#type())
        };
        answer.capabilities.iter().filter_map(rpc).collect()
    }
}

impl From<&v1::NodeGetCapabilitiesResponse> for NodeCapabilities {
    fn from(answer: &v1::NodeGetCapabilitiesResponse) -> Self {
        let rpc = |listed: &v1::NodeServiceCapability| {
            listed.r#type.as_ref().map(|node::Type::Rpc(rpc)| rpc.r#type())
        };
        answer.capabilities.iter().filter_map(rpc).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities by number, as on the wire.
    fn controller(numbers: &[i32]) -> ControllerCapabilities {
        let capability = |&number: &i32| v1::ControllerServiceCapability {
            r#type: Some(controller::Type::Rpc(controller::Rpc { r#type: number })),
        };
        let capabilities = numbers.iter().map(capability).collect();
        (&v1::ControllerGetCapabilitiesResponse { capabilities }).into()
    }

    #[test]
    fn each_capability_of_a_controller_has_its_flag() {
        let every_flag = controller(&(1..=17).collect::<Vec<_>>());
        let printed = format!("{every_flag:?}");
        assert_eq!(printed.matches(": true").count(), 17, "{printed}");
        assert_eq!(printed.matches(": false").count(), 0, "{printed}");
    }

    #[test]
    fn each_capability_of_a_node_has_its_flag() {
        let listed = (1..=8).map(|number| node::rpc::Type::try_from(number).unwrap());
        let printed = format!("{:?}", listed.collect::<NodeCapabilities>());
        assert_eq!(printed.matches(": true").count(), 8, "{printed}");
        assert_eq!(printed.matches(": false").count(), 0, "{printed}");
    }

    #[test]
    fn capabilities_of_a_newer_csi_change_nothing() {
        let expected =
            ControllerCapabilities { publish_readonly: true, ..ControllerCapabilities::default() };
        assert_eq!(controller(&[8, 4711, -1, 0]), expected);
        let kind_unknown = v1::ControllerGetCapabilitiesResponse {
            capabilities: vec![v1::ControllerServiceCapability::default()],
        };
        assert_eq!(ControllerCapabilities::from(&kind_unknown), ControllerCapabilities::default());
    }

    #[test]
    fn a_plugin_lists_services_and_expansion_side_by_side() {
        let service = plugin::Service { r#type: plugin::service::Type::ControllerService.into() };
        let expansion =
            plugin::VolumeExpansion { r#type: plugin::volume_expansion::Type::Online.into() };
        let answer = v1::GetPluginCapabilitiesResponse {
            capabilities: [
                plugin::Type::Service(service),
                plugin::Type::VolumeExpansion(expansion),
            ]
            .map(|kind| v1::PluginCapability { r#type: Some(kind) })
            .into(),
        };
        let services = PluginServices::from(&answer);
        assert!(services.controller_service && !services.volume_accessibility_constraints);
        assert_eq!(
            VolumeExpansion::from(&answer),
            VolumeExpansion { online: true, offline: false }
        );
    }
}
