//! Redaction of requests.
//!
//! **Owns** the `Debug` of every message that has mount flags or a field marked `csi_secret` (the
//! build script writes it from the contract), and the removal of a request's secrets from a
//! plugin's text.
//!
//! **Promises** that `{:?}` of a message shows the keys of secrets and never a value (safety rule
//! 6), and that a secret repeated in a plugin's error text is not passed on.
//!
//! **Never** changes what is sent to a plugin.

use std::collections::BTreeMap;
use std::fmt;

use crate::v1;
use crate::v1::volume_capability::AccessType;

/// The replacement of a secret.
pub const STRUCK: &str = "***";

/// Shorter values, in bytes, are removed only as whole words: a mount flag `ro` must not turn
/// "error" into noise.
const SHORT_BYTES: usize = 4;

/// A message that may hold secrets.
pub trait Sensitive {
    /// Calls `found` with every secret value.
    fn visit(&self, found: &mut dyn FnMut(&str));

    /// The volume of the request, which is no secret.
    fn volume_id(&self) -> Option<&str> {
        None
    }
}

impl Sensitive for v1::VolumeCapability {
    fn visit(&self, found: &mut dyn FnMut(&str)) {
        if let Some(AccessType::Mount(mount)) = &self.access_type {
            mount.mount_flags.iter().for_each(|flag| found(flag));
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/redacted.rs"));

/// Prints keys or lengths, never values.
struct Struck<T>(T);

struct Mark;

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(STRUCK)
    }
}

impl fmt::Debug for Struck<&BTreeMap<String, String>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, Mark))).finish()
    }
}

impl fmt::Debug for Struck<&Vec<String>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|_| Mark)).finish()
    }
}

/// The secrets of one request, for removing them from its answer.
///
/// Has no `Debug` on purpose.
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Each secret value of a request, plain and in the quoted form of an error text. Includes
    /// parts that a plugin may print alone: the lines of a key, and the text after `=` in a mount
    /// flag such as `password=…`.
    pub fn values_in(request: &impl Sensitive) -> Self {
        let mut values = Vec::new();
        request.visit(&mut |value| {
            let lines = value.lines().map(str::trim);
            let settings = value.split_once('=').map(|(_, setting)| setting.trim());
            let parts = lines.chain(settings).filter(|part| part.len() >= SHORT_BYTES);
            values.extend(parts.map(str::to_owned));
            values.push(value.trim().escape_debug().to_string());
            values.push(value.trim().to_owned());
        });
        values.retain(|value| !value.is_empty());
        // Longest first: a secret may contain another one.
        values.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self(values)
    }

    /// Replaces all secrets in `text`.
    #[must_use]
    pub fn strike(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| {
            if secret.len() < SHORT_BYTES {
                strike_alone(&text, secret)
            } else {
                text.replace(secret.as_str(), STRUCK)
            }
        })
    }
}

fn strike_alone(text: &str, secret: &str) -> String {
    let mut kept_text = String::with_capacity(text.len());
    let mut end_of_last = 0;
    for (at, _) in text.match_indices(secret) {
        let end = at + secret.len();
        let alone = !text[..at].ends_with(char::is_alphanumeric)
            && !text[end..].starts_with(char::is_alphanumeric);
        kept_text.push_str(&text[end_of_last..at]);
        kept_text.push_str(if alone { STRUCK } else { secret });
        end_of_last = end;
    }
    kept_text.push_str(&text[end_of_last..]);
    kept_text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::volume_capability::MountVolume;

    fn stage(secrets: &[(&str, &str)], flags: &[&str]) -> v1::NodeStageVolumeRequest {
        let mount = MountVolume {
            mount_flags: flags.iter().map(ToString::to_string).collect(),
            ..MountVolume::default()
        };
        v1::NodeStageVolumeRequest {
            volume_id: "vol-1".into(),
            secrets: secrets.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            volume_capability: Some(v1::VolumeCapability {
                access_type: Some(AccessType::Mount(mount)),
                access_mode: None,
            }),
            ..v1::NodeStageVolumeRequest::default()
        }
    }

    #[test]
    fn debug_shows_where_secrets_are_but_not_what_they_are() {
        let printed = format!("{:?}", stage(&[("password", "hunter2")], &["password=hunter3"]));
        assert!(printed.contains(r#"secrets: {"password": ***}"#), "{printed}");
        assert!(printed.contains("mount_flags: [***]"), "{printed}");
        assert!(printed.contains(r#"volume_id: "vol-1""#), "{printed}");
        assert!(!printed.contains("hunter"), "{printed}");
    }

    #[test]
    fn a_secret_repeated_by_a_plugin_is_struck_out() {
        let request = stage(
            &[("password", "hunter2"), ("key", "-----BEGIN\nc2VjcmV0\n-----END\n"), ("pin", "07")],
            &["ro", "credentials=/etc/pw"],
        );
        let text = "mount -o ro,credentials=/etc/pw: bad password hunter2, key c2VjcmV0, pin 07 \
                    (error 1070, wrote /etc/pw)";
        assert_eq!(
            Secrets::values_in(&request).strike(text),
            "mount -o ***,***: bad password ***, key ***, pin *** (error 1070, wrote ***)"
        );
    }

    #[test]
    fn a_secret_that_holds_another_goes_as_a_whole() {
        let request = stage(&[("a", "secret"), ("b", "secret-and-more"), ("c", "")], &[]);
        assert_eq!(Secrets::values_in(&request).strike("secret-and-more, secret"), "***, ***");
    }

    #[test]
    fn a_secret_is_known_again_in_quotes() {
        let request = stage(&[("json", "{\n\"key\": 1\n}")], &[]);
        assert_eq!(
            Secrets::values_in(&request).strike(r#"bad "{\n\"key\": 1\n}" {}"#),
            r#"bad "***" {}"#
        );
    }

    #[test]
    fn without_secrets_text_stays_as_it_is() {
        assert_eq!(Secrets::values_in(&v1::ProbeRequest {}).strike("all well"), "all well");
    }
}
