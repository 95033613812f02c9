//! How a volume's file system is mounted.

use serde::{Deserialize, Serialize};

/// How a volume's file system is mounted. Flags may hold secrets: they stay out of logs (A11).
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountOptions {
    /// The file system; the plugin's own choice when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Mount flags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The group that may read and write (`VolumeCapability.volume_mount_group`), in the plugin's
    /// form: a number for most plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl MountOptions {
    /// The request's options where given, otherwise the volume's, field by field (A11).
    #[must_use]
    pub fn merged_with(&self, request: &Self) -> Self {
        Self {
            fs_type: request.fs_type.clone().or_else(|| self.fs_type.clone()),
            flags: if request.flags.is_empty() { &self.flags } else { &request.flags }.clone(),
            group: request.group.clone().or_else(|| self.group.clone()),
        }
    }

    /// The options as they may be shown: each flag is replaced by `***` (A11).
    #[must_use]
    pub fn struck_out(&self) -> Self {
        let flags = self.flags.iter().map(|_| "***".to_owned()).collect();
        Self { flags, ..self.clone() }
    }

    /// Whether no option is set.
    pub fn is_empty(&self) -> bool {
        self.fs_type.is_none() && self.flags.is_empty() && self.group.is_none()
    }
}

impl std::fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountOptions")
            .field("fs_type", &self.fs_type)
            .field("flags", &format_args!("[{} struck out]", self.flags.len()))
            .field("group", &self.group)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field by field: what the request does not say is the volume's (A11).
    #[test]
    fn the_requests_options_replace_the_volumes() {
        let options = |fs_type: Option<&str>, flags: &[&str], group: Option<&str>| MountOptions {
            fs_type: fs_type.map(str::to_owned),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            group: group.map(str::to_owned),
        };
        let of_volume = options(Some("ext4"), &["noatime", "nodev"], Some("100"));
        for (request, expected) in [
            (options(None, &[], None), of_volume.clone()),
            (
                options(Some("xfs"), &[], None),
                options(Some("xfs"), &["noatime", "nodev"], Some("100")),
            ),
            // The flags as a whole, and not added to the volume's.
            (options(None, &["ro"], None), options(Some("ext4"), &["ro"], Some("100"))),
            (
                options(None, &[], Some("200")),
                options(Some("ext4"), &["noatime", "nodev"], Some("200")),
            ),
        ] {
            assert_eq!(of_volume.merged_with(&request), expected, "{request:?}");
            assert_eq!(MountOptions::default().merged_with(&request), request);
        }
    }
}
