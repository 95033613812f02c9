//! Which request for a name counts as the same as an earlier one.

use berth_domain::{ClassId, Namespace, NodeId, VolumeId};

use super::*;

fn target() -> VolumeTarget {
    VolumeTarget::without_options(Namespace::default(), VolumeId::new("data").unwrap())
}

fn class(id: &str) -> StorageOptions {
    StorageOptions { class: Some(ClassId::new(id).unwrap()), ..StorageOptions::default() }
}

#[test]
fn a_name_is_created_again_with_the_same_options_only() {
    let progress = CreationProgress::Made { create_index: 7 };
    let creation = Some(Creation { options: class("fast"), progress });
    let created = clock::now();
    let definition = Some(NameDefinition { target: target(), created, creation });
    let record = NameRecord { definition, session: None };
    check_same("data", &NameRecord::default(), &target(), None).unwrap();
    check_same("data", &record, &target(), Some(&class("fast"))).unwrap();
    let resized = VolumeTarget { size: Some(1), ..target() };
    for (target, storage) in
        [(target(), None), (target(), Some(class("slow"))), (resized, Some(class("fast")))]
    {
        let refused = check_same("data", &record, &target, storage.as_ref()).unwrap_err();
        assert!(refused.contains("rw of default/data, class=fast; next"), "{refused}");
    }
}

#[test]
fn a_class_must_make_what_containers_can_use() {
    let capability = |access, attachment| Capability { access, attachment };
    let (access, files) =
        (berth_domain::access::AccessMode::MultiNodeReaderOnly, AttachmentMode::FileSystem);
    let block = [capability(access, AttachmentMode::BlockDevice)];
    let refused = check_capabilities(&target(), &block, "class raw").unwrap_err();
    assert!(
        refused.contains("class raw offers") && refused.contains("not file-system"),
        "{refused}"
    );
    let read_only = [capability(access, files)];
    let refused = check_capabilities(&target(), &read_only, "class shared").unwrap_err();
    assert!(refused.contains("say mode=ro"), "{refused}");
    let reader = VolumeTarget { mode: Mode::Read, ..target() };
    check_capabilities(&reader, &read_only, "class shared").unwrap();
}

/// The volume is made for one use of its class. The first may be none of a container's.
#[test]
fn of_a_class_the_first_use_is_taken_that_a_container_can_have() {
    use berth_domain::access::AccessMode::{MultiNodeReaderOnly, SingleNodeWriter};
    let capability = |access, attachment| Capability { access, attachment };
    let files = |access| capability(access, AttachmentMode::FileSystem);
    let block = capability(SingleNodeWriter, AttachmentMode::BlockDevice);
    let offered = [block, files(MultiNodeReaderOnly), files(SingleNodeWriter)];
    let chosen = |mode| check_capabilities(&VolumeTarget { mode, ..target() }, &offered, "class c");
    assert_eq!(chosen(Mode::Write).unwrap(), files(SingleNodeWriter));
    assert_eq!(chosen(Mode::Read).unwrap(), files(MultiNodeReaderOnly));
    let node = NodeId::new("n1").unwrap();
    let sent = class("c").document(&target(), "t", (&node, Some(files(SingleNodeWriter))));
    assert_eq!(sent.capabilities, [files(SingleNodeWriter)]);
}
