//! How a volume's file system is mounted.

use serde::{Deserialize, Serialize};

use crate::Blank;

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

impl Blank for MountOptions {
    const BLANK: &'static Self = &Self { fs_type: None, flags: Vec::new(), group: None };
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

    /// What may be shown in a list: of the flags only their number (A11).
    pub fn summary(&self) -> MountSummary {
        MountSummary {
            fs_type: self.fs_type.clone(),
            mount_flags: self.flags.len(),
            mount_group: self.group.clone(),
        }
    }

    /// Whether no option is set.
    pub fn is_empty(&self) -> bool {
        self.fs_type.is_none() && self.flags.is_empty() && self.group.is_none()
    }
}

/// Mount options without the flags, which may hold secrets (A11).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountSummary {
    /// The requested file system; the plugin's own choice when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// The number of mount flags.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mount_flags: usize,
    /// The group that may read and write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_group: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl MountSummary {
    /// Whether no option is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
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

    #[test]
    fn a_summary_counts_the_flags_and_shows_none() {
        let options = MountOptions {
            fs_type: Some("ext4".to_owned()),
            flags: vec!["password=hunter2".to_owned(), "noatime".to_owned()],
            group: Some("7".to_owned()),
        };
        let shown = serde_json::to_value(options.summary()).unwrap();
        let expected = serde_json::json!({"fs_type": "ext4", "mount_flags": 2, "mount_group": "7"});
        assert_eq!(shown, expected);
        assert!(!options.summary().is_empty() && MountOptions::default().summary().is_empty());
    }

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
