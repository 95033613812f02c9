//! Which volume a name means, and how containers use it.
//!
//! **Never** describes how the volume is created: that is in [`creation`](super::creation).

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::access::{AccessMode, Mode};
use berth_domain::{Namespace, VolumeId, VolumeKey};
use serde::{Deserialize, Serialize};

/// The volume and the access of a name. An option is `None` if `docker volume create` did not give
/// it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeTarget {
    pub namespace: Namespace,
    pub volume: VolumeId,
    /// Whether containers may write.
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessMode>,
    /// The file system that it is mounted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs: Option<String>,
    /// The smallest size, in bytes: of a volume that is created; a registered volume must have had
    /// it when the name was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl VolumeTarget {
    /// A volume without options: containers may write, and the rest is as registered.
    pub fn without_options(namespace: Namespace, volume: VolumeId) -> Self {
        let (mode, access, fs, size) = (Mode::Write, None, None, None);
        Self { namespace, volume, mode, access, fs, size }
    }

    pub fn key(&self) -> VolumeKey {
        VolumeKey::new(self.namespace.clone(), self.volume.clone())
    }
}

/// The target of a name that was not created: the volume with this id in the default namespace.
pub fn default_target(name: &str) -> Result<VolumeTarget, Problem> {
    let volume = VolumeId::new(name)
        .map_err(|fault| Problem::new(Code::BadInput, format!("the volume's name {fault}")))?;
    Ok(VolumeTarget::without_options(Namespace::default(), volume))
}
