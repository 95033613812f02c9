//! Who the plugin is.
//!
//! Owns: the identity service. Promises: capabilities as the instance was started with; ready from
//! the first answer on, since an instance serves only once it is. Never: depends on any volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_csi::v1::identity_server::Identity;
use berth_csi::v1::plugin_capability::service::Type;
use berth_csi::v1::plugin_capability::volume_expansion::Type as Expansion;
use berth_csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse, plugin_capability,
};
use tonic::{Request, Response, Status};

use super::{Driver, Profile};
use crate::ability::Ability;

/// The identity service of an instance.
#[derive(Debug)]
pub struct IdentityService(pub Arc<Driver>);

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let work = |driver: &Driver, _: &_| {
            let name = driver.profile.driver_name.clone();
            let vendor_version = driver.profile.vendor_version.clone();
            Ok(GetPluginInfoResponse { name, vendor_version, manifest: BTreeMap::new() })
        };
        self.0.serve(request, work).await
    }

    async fn get_plugin_capabilities(
        &self,
        request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let work = |driver: &Driver, _: &_| {
            Ok(GetPluginCapabilitiesResponse { capabilities: capabilities(&driver.profile) })
        };
        self.0.serve(request, work).await
    }

    async fn probe(
        &self,
        request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        self.0.serve(request, |_, _| Ok(ProbeResponse { ready: Some(true) })).await
    }
}

fn capabilities(profile: &Profile) -> Vec<PluginCapability> {
    let services = [
        (Ability::Controller, Type::ControllerService),
        (Ability::Topology, Type::VolumeAccessibilityConstraints),
        (Ability::GroupSnapshot, Type::GroupControllerService),
    ];
    let service = |kind: Type| {
        plugin_capability::Type::Service(plugin_capability::Service { r#type: kind.into() })
    };
    let on = services.into_iter().filter(|(ability, _)| profile.has(*ability));
    let mut kinds: Vec<_> = on.map(|(_, kind)| service(kind)).collect();
    if profile.has(Ability::Expand) || profile.has(Ability::ExpandNode) {
        let online = profile.has(Ability::OnlineExpand);
        let kind = if online { Expansion::Online } else { Expansion::Offline };
        kinds.push(plugin_capability::Type::VolumeExpansion(plugin_capability::VolumeExpansion {
            r#type: kind.into(),
        }));
    }
    kinds.into_iter().map(|kind| PluginCapability { r#type: Some(kind) }).collect()
}
