//! What a controller's answer to `ValidateVolumeCapabilities` says of the volume.
//!
//! **Promises** that a refusal of the plugin refuses the registration. A plugin that cannot be
//! called does not block it: that plugin refuses at the mount what it cannot do.

use berth_contract::message::call::Validated;
use berth_contract::problem::Problem;
use berth_csi::failure::in_words;
use berth_csi::redact::Secrets;
use berth_csi::v1::volume_capability::{AccessType, MountVolume};
use berth_csi::{CallError, Code, v1};

use crate::plugins;

/// Confirmed, when every capability asked for is among those confirmed: older plugins ignore fields
/// that they do not know, and confirm the rest.
pub(super) fn read_confirmation(
    asked: &[v1::VolumeCapability],
    answer: &v1::ValidateVolumeCapabilitiesResponse,
    secrets: &Secrets,
) -> Validated {
    let confirmed = answer.confirmed.as_ref().is_some_and(|confirmed| {
        let listed = &confirmed.volume_capabilities;
        // Some plugins confirm without saying what, which can only be what they were asked.
        listed.is_empty()
            || asked.iter().all(|asked| listed.iter().any(|one| is_confirmed_by(asked, one)))
    });
    let message = match in_words(&answer.message, secrets) {
        _ if confirmed => None,
        none if none.is_empty() => {
            Some("the plugin did not confirm each of them, and does not say why".to_owned())
        }
        said => Some(said),
    };
    Validated { confirmed, unknown: false, message }
}

/// Whether `confirmed` is the one `asked` for: a plugin may add what it would choose by itself.
fn is_confirmed_by(asked: &v1::VolumeCapability, confirmed: &v1::VolumeCapability) -> bool {
    let same_access = match (&asked.access_type, &confirmed.access_type) {
        (Some(AccessType::Mount(asked)), Some(AccessType::Mount(confirmed))) => {
            let MountVolume { fs_type, mount_flags, volume_mount_group } = asked;
            let same = |asked: &str, confirmed: &str| asked.is_empty() || asked == confirmed;
            same(fs_type, &confirmed.fs_type)
                && same(volume_mount_group, &confirmed.volume_mount_group)
                && mount_flags.iter().all(|flag| confirmed.mount_flags.contains(flag))
        }
        (asked, confirmed) => asked == confirmed,
    };
    same_access && asked.access_mode == confirmed.access_mode
}

/// What is known of a volume when the question itself failed.
pub(super) fn read_refusal(error: &CallError) -> Result<Validated, Problem> {
    match error.code() {
        // CSI wants the call of every controller; many do without.
        Some(Code::Unimplemented) => {
            Ok(Validated { confirmed: true, unknown: false, message: Some(error.to_string()) })
        }
        Some(Code::NotFound) => {
            Ok(Validated { confirmed: false, unknown: true, message: Some(error.to_string()) })
        }
        _ => Err(plugins::problem_from_call(error)),
    }
}

#[cfg(test)]
mod tests {
    use berth_csi::capability::volume_capability;
    use berth_csi::{Failure, Rpc};
    use berth_domain::access::{AccessMode, AttachmentMode, Capability};
    use berth_domain::volume::MountOptions;

    use super::*;

    fn one(access: AccessMode) -> v1::VolumeCapability {
        let capability = Capability { access, attachment: AttachmentMode::FileSystem };
        volume_capability(capability, &MountOptions::default(), false)
    }

    fn read(
        asked: &[v1::VolumeCapability],
        confirmed: Option<Vec<v1::VolumeCapability>>,
        message: &str,
    ) -> Validated {
        let confirmed = confirmed.map(|volume_capabilities| {
            v1::validate_volume_capabilities_response::Confirmed {
                volume_capabilities,
                ..Default::default()
            }
        });
        let message = message.to_owned();
        let answer = v1::ValidateVolumeCapabilitiesResponse { confirmed, message };
        read_confirmation(asked, &answer, &Secrets::values_in(&v1::ProbeRequest {}))
    }

    #[test]
    fn a_confirmation_counts_when_it_repeats_what_was_asked() {
        let writer = one(AccessMode::SingleNodeWriter);
        let reader = one(AccessMode::MultiNodeReaderOnly);
        let asked = [writer.clone(), reader.clone()];
        let all = read(&asked, Some(vec![reader, writer.clone()]), "");
        assert_eq!(all, Validated { confirmed: true, unknown: false, message: None });
        let some = read(&asked, Some(vec![writer]), "");
        assert!(!some.confirmed && some.message.is_some());
        assert!(read(&asked, Some(Vec::new()), "").confirmed, "what else could it confirm");
        let no = read(&asked, None, "not for\nseveral nodes");
        assert!(!no.confirmed);
        assert_eq!(no.message.as_deref(), Some("not for several nodes"));
    }

    #[test]
    fn a_plugin_may_fill_in_what_it_was_not_asked() {
        let asked = one(AccessMode::SingleNodeWriter);
        let mut filled = asked.clone();
        let mount = MountVolume {
            fs_type: "ext4".to_owned(),
            mount_flags: vec!["relatime".to_owned()],
            ..MountVolume::default()
        };
        filled.access_type = Some(AccessType::Mount(mount));
        assert!(read(std::slice::from_ref(&asked), Some(vec![filled.clone()]), "").confirmed);
        let not_all = read(&[filled], Some(vec![asked]), "");
        assert!(!not_all.confirmed, "what was asked was not confirmed");
    }

    #[test]
    fn a_plugin_that_does_not_offer_the_question_has_not_said_no() {
        let answered = |code| {
            let failure = Failure::Answered { code, message: "its words".to_owned() };
            let rpc = Rpc::ValidateVolumeCapabilities;
            read_refusal(&CallError { rpc, socket: "/p.sock".into(), failure })
        };
        assert!(answered(Code::Unimplemented).unwrap().confirmed);
        let unknown = answered(Code::NotFound).unwrap();
        assert!(unknown.unknown && !unknown.confirmed);
        assert!(answered(Code::Internal).is_err());
    }
}
