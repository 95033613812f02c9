//! No message that can contain a secret prints it, and no message was forgotten.

use std::collections::{BTreeMap, BTreeSet};

use berth_csi::failure::in_words;
use berth_csi::redact::Secrets;
use berth_csi::v1;
use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

use crate::wire::{has_option, pool};

const SECRET: &str = "hunter2";

fn is_secret(pool: &DescriptorPool, field: &FieldDescriptor) -> bool {
    has_option(pool, &field.options(), "csi_secret") || field.name() == "mount_flags"
}

/// Whether a secret can be in the message, at any depth.
fn can_hold_secret(pool: &DescriptorPool, message: &MessageDescriptor) -> bool {
    message.fields().any(|field| {
        is_secret(pool, &field)
            || field.kind().as_message().is_some_and(|inner| can_hold_secret(pool, inner))
    })
}

/// A message with a value in each field: the secret in secret fields, and the field's own name in
/// other texts.
fn filled(pool: &DescriptorPool, descriptor: &MessageDescriptor) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        let text = if is_secret(pool, &field) { SECRET } else { field.name() };
        let one = match field.kind() {
            Kind::String => Value::String(text.to_owned()),
            Kind::Message(_) if field.is_map() => {
                let key = MapKey::String(format!("key-of-{}", field.name()));
                Value::Map([(key, Value::String(text.to_owned()))].into())
            }
            Kind::Message(inner) => Value::Message(filled(pool, &inner)),
            _ => continue,
        };
        let value = if field.is_list() { Value::List(vec![one]) } else { one };
        message.set_field(&field, value);
    }
    message
}

macro_rules! printed {
    ($pool:expr; $($message:ident)*) => {
        vec![$({
            let name = concat!("csi.v1.", stringify!($message));
            let descriptor = $pool.get_message_by_name(name).unwrap();
            let bytes = prost::Message::encode_to_vec(&filled($pool, &descriptor));
            let message: v1::$message = prost::Message::decode(bytes.as_slice()).unwrap();
            let json = serde_json::to_string(&message).unwrap();
            (descriptor, format!("{message:?} {message:#?}"), json)
        }),*]
    };
}

#[test]
fn no_message_prints_its_secrets() {
    let pool = &pool();
    let printed = printed! { pool;
        CreateVolumeRequest DeleteVolumeRequest
        ControllerPublishVolumeRequest ControllerUnpublishVolumeRequest
        ValidateVolumeCapabilitiesRequest ValidateVolumeCapabilitiesResponse
        ControllerModifyVolumeRequest ControllerExpandVolumeRequest
        GetCapacityRequest VolumeCapability
        CreateSnapshotRequest DeleteSnapshotRequest ListSnapshotsRequest GetSnapshotRequest
        CreateVolumeGroupSnapshotRequest DeleteVolumeGroupSnapshotRequest
        GetVolumeGroupSnapshotRequest
        GetMetadataAllocatedRequest GetMetadataDeltaRequest
        NodeStageVolumeRequest NodePublishVolumeRequest NodeExpandVolumeRequest
        ControllerListVolumeHealthRequest ControllerGetVolumeHealthRequest
        NodeGetStorageHealthRequest NodeGetStorageHealthResponse
    };
    let forms = printed
        .iter()
        .flat_map(|(descriptor, text, json)| [(descriptor, text), (descriptor, json)]);
    for (descriptor, text) in forms {
        let name = descriptor.full_name();
        assert!(!text.contains(SECRET), "{name}: {text}");
        assert!(text.contains("***"), "{name}: {text}");
        for field in descriptor.fields() {
            // The alternatives of a oneof print by the name of the alternative that is set.
            let shown = field.containing_oneof().is_some() || text.contains(field.name());
            assert!(shown, "{name} hides {}: {text}", field.name());
        }
    }
    let tried: BTreeSet<&str> = printed.iter().map(|(message, ..)| message.full_name()).collect();
    let messages: Vec<MessageDescriptor> =
        pool.all_messages().filter(|message| message.package_name() == "csi.v1").collect();
    let secretive: BTreeSet<&str> = messages
        .iter()
        .filter(|message| message.parent_message().is_none() && can_hold_secret(pool, message))
        .map(MessageDescriptor::full_name)
        .collect();
    assert_eq!(tried, secretive);
}

/// Safety 6: a plugin's text beside an answer is shown without the secrets of the request.
#[test]
fn what_is_said_beside_an_answer_shows_no_secret() {
    let secrets = BTreeMap::from([("password".to_owned(), SECRET.to_owned())]);
    let request = v1::NodeStageVolumeRequest { secrets, ..Default::default() };
    let text = in_words(&format!("mounted with {SECRET}\nas asked"), &Secrets::values_in(&request));
    assert_eq!(text, "mounted with *** as asked");
}
