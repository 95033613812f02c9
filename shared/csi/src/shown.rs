//! Messages as JSON, for the call log of `berth-csi-proxy`.
//!
//! **Owns** the JSON of fields of `csi.v1` that must not or cannot be written unchanged; the build
//! script selects them.
//!
//! **Promises** the names of CSI's contract; and that no message's JSON has a secret value or a
//! mount flag (safety rule 6), only their keys and number.
//!
//! **Never** reads JSON.

use std::collections::BTreeMap;

use prost_types::Timestamp;
use serde::{Serialize, Serializer};

use crate::redact::STRUCK;

/// Writes the keys of secrets.
pub(crate) fn struck_values<S: Serializer>(
    secrets: &BTreeMap<String, String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(secrets.keys().map(|key| (key, STRUCK)))
}

/// Writes the number of mount flags.
pub(crate) fn struck_list<S: Serializer>(flags: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(flags.iter().map(|_| STRUCK))
}

/// Writes the name of an enum's value, or its number if only a later contract has it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over every field so")]
pub(crate) fn name<E, S>(number: &i32, to: S) -> Result<S::Ok, S::Error>
where
    E: TryFrom<i32> + Serialize,
    S: Serializer,
{
    match E::try_from(*number) {
        Ok(value) => value.serialize(to),
        Err(_) => number.serialize(to),
    }
}

/// Writes a time in whole seconds since 1970.
#[expect(clippy::ref_option, reason = "serde hands over every field so")]
pub(crate) fn seconds<S: Serializer>(time: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    time.as_ref().map(|time| time.seconds).serialize(to)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::v1;
    use crate::v1::volume_capability::{AccessMode, AccessType, MountVolume};

    #[test]
    fn a_request_is_shown_by_the_contracts_names_and_without_secrets() {
        let flags = vec!["password=hunter2".to_owned()];
        let mount = MountVolume { mount_flags: flags, ..MountVolume::default() };
        let capability = |mode| v1::VolumeCapability {
            access_type: Some(AccessType::Mount(mount.clone())),
            access_mode: Some(AccessMode { mode }),
        };
        let stage = |mode| v1::NodeStageVolumeRequest {
            volume_id: "v".into(),
            secrets: [("password".to_owned(), "hunter2".to_owned())].into(),
            volume_capability: Some(capability(mode)),
            ..v1::NodeStageVolumeRequest::default()
        };
        let shown = serde_json::to_value(stage(1)).unwrap();
        assert_eq!(shown["secrets"], json!({"password": "***"}));
        assert_eq!(
            shown["volume_capability"],
            json!({
                "access_mode": {"mode": "SINGLE_NODE_WRITER"},
                "access_type": {"mount": {
                    "fs_type": "", "mount_flags": ["***"], "volume_mount_group": "",
                }},
            })
        );
        let later = serde_json::to_value(stage(99)).unwrap();
        assert_eq!(later["volume_capability"]["access_mode"]["mode"], json!(99));
    }
}
