//! Checks of request fields.
//!
//! Owns: checking that required fields are set and well-formed. Promises: one answer names every
//! fault of a request. Never: reads a volume.

use std::collections::BTreeMap;

use berth_csi::Code;
use berth_csi::v1;

use super::refusal::Refusal;
use crate::backend::VolumeMeta;
use crate::backend::encoding::LONGEST_ID_BYTES;
use crate::capability::{self, Capability};

/// The faults of one request.
#[derive(Debug, Default)]
pub(crate) struct RequestFields {
    missing: Vec<String>,
    invalid: Vec<String>,
}

/// A field that may be unset.
pub(crate) trait RequestField {
    fn is_unset(&self) -> bool;

    /// The length of a text, in bytes; otherwise 0.
    fn text_bytes(&self) -> usize {
        0
    }
}

impl RequestField for String {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn text_bytes(&self) -> usize {
        self.len()
    }
}

impl<T> RequestField for Vec<T> {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> RequestField for BTreeMap<K, V> {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }
}

impl<T> RequestField for Option<T> {
    fn is_unset(&self) -> bool {
        self.is_none()
    }
}

impl RequestFields {
    /// A field that must be set. An id has at most [`LONGEST_ID_BYTES`].
    pub fn required(&mut self, name: &str, value: &impl RequestField) {
        if value.is_unset() {
            self.missing.push(name.to_owned());
        }
        if name.contains("_id") && value.text_bytes() > LONGEST_ID_BYTES {
            self.invalid.push(format!("{name} is longer than {LONGEST_ID_BYTES} bytes"));
        }
    }

    pub fn faults(&mut self, faults: impl IntoIterator<Item = String>) {
        self.invalid.extend(faults);
    }

    /// A capability with all required fields, supported or not.
    pub fn whole_capability(&mut self, name: &str, value: Option<&v1::VolumeCapability>) {
        self.missing.extend(capability::missing(name, value));
    }

    /// A capability that this driver supports.
    pub fn capability(
        &mut self,
        name: &str,
        value: Option<&v1::VolumeCapability>,
    ) -> Option<Capability> {
        let missing = self.missing.len();
        self.whole_capability(name, value);
        if self.missing.len() > missing {
            return None;
        }
        let faults = match Capability::supported(value?) {
            Ok(capability) => return Some(capability),
            Err(faults) => faults,
        };
        self.invalid.extend(faults.into_iter().map(|fault| format!("{name}.{fault}")));
        None
    }

    /// `INVALID_ARGUMENT` with all faults, if there are any.
    pub fn finish(self) -> Result<(), Refusal> {
        let mut faults = Vec::new();
        if !self.missing.is_empty() {
            faults.push(format!("missing: {}", self.missing.join(", ")));
        }
        faults.extend(self.invalid);
        if faults.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(Code::InvalidArgument, faults.join("; ")))
    }
}

/// A supported capability, or `INVALID_ARGUMENT`.
pub(crate) fn read_capability(given: Option<&v1::VolumeCapability>) -> Result<Capability, Refusal> {
    let mut fields = RequestFields::default();
    let read = fields.capability("volume_capability", given);
    fields.finish()?;
    read.ok_or_else(|| Refusal::new(Code::InvalidArgument, "volume_capability is missing"))
}

/// The keys of the volume's context that are missing or different in `given`. Additional keys are
/// allowed: some COs add their own.
pub(crate) fn wrong_context(meta: &VolumeMeta, given: &BTreeMap<String, String>) -> Vec<String> {
    let right = |key, value| given.get(key) == Some(value);
    let wrong = meta.volume_context.iter().filter(|(key, value)| !right(*key, *value));
    wrong.map(|(key, _)| key.clone()).collect()
}

/// Refuses a request without the volume's context.
pub(crate) fn check_context(
    meta: &VolumeMeta,
    given: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let wrong = wrong_context(meta, given);
    if wrong.is_empty() {
        return Ok(());
    }
    let message = format!(
        "volume {:?}: volume_context does not have the volume's own {}; register the volume with \
         the context it was made with",
        meta.volume_id,
        wrong.join(", ")
    );
    Err(Refusal::new(Code::InvalidArgument, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_of_a_request_are_named_at_once() {
        let mut fields = RequestFields::default();
        fields.required("volume_id", &String::new());
        fields.required("node_id", &"n".repeat(LONGEST_ID_BYTES + 1));
        fields.required("capacity_range", &None::<v1::CapacityRange>);
        let refusal = fields.finish().unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArgument);
        assert_eq!(
            refusal.message,
            "missing: volume_id, capacity_range; node_id is longer than 256 bytes"
        );
        let refusal = read_capability(Some(&v1::VolumeCapability::default())).unwrap_err();
        assert!(refusal.message.starts_with("missing: volume_capability.access_type"));
    }

    #[test]
    fn a_volumes_context_must_come_back_and_more_may() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let volume_context = map(&[("a", "1"), ("b", "2")]);
        let meta = VolumeMeta { volume_id: "v".into(), volume_context, ..VolumeMeta::default() };
        assert!(check_context(&meta, &map(&[("a", "1"), ("b", "2"), ("co", "x")])).is_ok());
        assert_eq!(wrong_context(&meta, &map(&[("a", "1"), ("b", "3")])), ["b"]);
        assert_eq!(wrong_context(&meta, &map(&[])), ["a", "b"]);
    }
}
