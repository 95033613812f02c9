//! Who the plugin is.
//!
//! Owns: the identity service. Promises: capabilities as the instance was started with; ready from
//! the first answer on, since an instance serves only once it is. Never: depends on any volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_csi::v1::identity_server::Identity;
use berth_csi::v1::plugin_capability::service::Type;
use berth_csi::v1::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse, plugin_capability,
};
use tonic::{Request, Response, Status};

use super::{Driver, Profile};

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
            let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
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
    let service = |kind: Type| PluginCapability {
        r#type: Some(plugin_capability::Type::Service(plugin_capability::Service {
            r#type: kind.into(),
        })),
    };
    profile.controller.then(|| service(Type::ControllerService)).into_iter().collect()
}
