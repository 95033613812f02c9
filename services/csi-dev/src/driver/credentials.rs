//! A plugin that wants credentials.
//!
//! Owns: which calls bring secrets along, and that they are refused without the right one.
//! Promises: the answer says nothing of what was brought, nor of what was wanted.

use berth_csi::Code;
use berth_csi::Rpc;
use berth_csi::rpc::Unary;

use super::Driver;
use super::refusal::Refusal;

/// The calls whose request has a field `secrets` (CSI 1.12).
const TAKES_SECRETS: [Rpc; 15] = [
    Rpc::CreateVolume,
    Rpc::DeleteVolume,
    Rpc::ControllerPublishVolume,
    Rpc::ControllerUnpublishVolume,
    Rpc::ValidateVolumeCapabilities,
    Rpc::ControllerModifyVolume,
    Rpc::CreateSnapshot,
    Rpc::DeleteSnapshot,
    Rpc::ListSnapshots,
    Rpc::ControllerExpandVolume,
    Rpc::NodeStageVolume,
    Rpc::NodePublishVolume,
    Rpc::NodeExpandVolume,
    Rpc::CreateVolumeGroupSnapshot,
    Rpc::DeleteVolumeGroupSnapshot,
];

impl Driver {
    /// Refuses a call that ought to bring the secret along and does not.
    pub(super) fn check_secret<R: Unary>(&self, request: &R) -> Result<(), Refusal> {
        let Some(wanted) = &self.profile.secret else { return Ok(()) };
        if !TAKES_SECRETS.contains(&R::RPC) {
            return Ok(());
        }
        let mut brought = false;
        request.visit(&mut |secret| brought |= secret == wanted);
        if brought {
            return Ok(());
        }
        let message = format!("{}: the right secret is not among those given", R::RPC);
        Err(Refusal::new(Code::Unauthenticated, message))
    }
}
