//! The plugin's name, version and capabilities.
//!
//! Owns: the work of the identity service. Promises: the capabilities are those that the instance
//! was started with. Never: depends on a volume.

use std::collections::BTreeMap;

use berth_csi::v1::plugin_capability::service::Type;
use berth_csi::v1::plugin_capability::volume_expansion::Type as Expansion;
use berth_csi::v1::{
    GetPluginCapabilitiesResponse, GetPluginInfoResponse, PluginCapability, plugin_capability,
};

use super::Driver;
use crate::ability::Ability;

pub(super) fn plugin_info(driver: &Driver) -> GetPluginInfoResponse {
    let name = driver.profile.driver_name.clone();
    let vendor_version = driver.profile.vendor_version.clone();
    GetPluginInfoResponse { name, vendor_version, manifest: BTreeMap::new() }
}

pub(super) fn capabilities(driver: &Driver) -> GetPluginCapabilitiesResponse {
    let services = [
        (Ability::Controller, Type::ControllerService),
        (Ability::Topology, Type::VolumeAccessibilityConstraints),
        (Ability::GroupSnapshot, Type::GroupControllerService),
    ];
    let service = |kind: Type| {
        plugin_capability::Type::Service(plugin_capability::Service { r#type: kind.into() })
    };
    let enabled = services.into_iter().filter(|(ability, _)| driver.has(*ability));
    let mut kinds: Vec<_> = enabled.map(|(_, kind)| service(kind)).collect();
    if !driver.profile.snapshots_from().is_empty() {
        kinds.push(service(Type::SnapshotAccessibilityConstraints));
    }
    if driver.has(Ability::Expand) || driver.has(Ability::ExpandNode) {
        let online = driver.has(Ability::OnlineExpand);
        let kind = if online { Expansion::Online } else { Expansion::Offline };
        kinds.push(plugin_capability::Type::VolumeExpansion(plugin_capability::VolumeExpansion {
            r#type: kind.into(),
        }));
    }
    let capabilities = kinds.into_iter().map(|kind| PluginCapability { r#type: Some(kind) });
    GetPluginCapabilitiesResponse { capabilities: capabilities.collect() }
}
