//! Answers that are wrong in small ways.
//!
//! Owns: how each [`WrongAnswer`] changes an answer. Promises: other answers stay as they are.
//! Never: changes an error.

use std::any::Any;
use std::collections::BTreeMap;

use berth_csi::v1;

use super::fault::WrongAnswer;

/// Not a value of any enum of CSI 1.13.
const UNKNOWN: i32 = 999;
/// Shortest text of a chatty plugin, in bytes.
const CHATTER_BYTES: usize = 64 * 1024;

/// Makes `answer` wrong; false if this kind of answer cannot be wrong in this way.
pub(crate) fn distort(wrong: WrongAnswer, answer: &mut dyn Any) -> bool {
    match wrong {
        WrongAnswer::UnknownEnum => unknown_enum(answer),
        WrongAnswer::NoReady => change(answer, |probe: &mut v1::ProbeResponse| probe.ready = None),
        WrongAnswer::EmptyTopology => topology(answer, Some(v1::Topology::default())),
        WrongAnswer::NoTopology => topology(answer, None),
        WrongAnswer::NegativeLimit => change(answer, |node: &mut v1::NodeGetInfoResponse| {
            node.max_volumes_per_node = -1;
        }),
        WrongAnswer::OtherName => change(answer, |plugin: &mut v1::GetPluginInfoResponse| {
            plugin.name.insert_str(0, "other.");
        }),
        WrongAnswer::OtherVersion => change(answer, |plugin: &mut v1::GetPluginInfoResponse| {
            plugin.vendor_version.push_str("-other");
        }),
        WrongAnswer::NoCapabilities => no_capabilities(answer),
        WrongAnswer::Chatty => chatty(answer),
        WrongAnswer::NoId => no_id(answer),
        WrongAnswer::OtherTopology => other_topology(answer),
        WrongAnswer::NoSource => no_source(answer),
        // `forgery` makes these: they need more than the answer.
        WrongAnswer::NothingDone
        | WrongAnswer::LessCapacity
        | WrongAnswer::OtherId
        | WrongAnswer::IdOfAnother
        | WrongAnswer::EndlessPages
        | WrongAnswer::EndlessToken => false,
    }
}

/// An error text as some plugins have it: the output of a program with its arguments.
pub(crate) fn chatter() -> String {
    const LINE: &str = "\u{1b}[31mE1122\u{1b}[0m mount failed: exit status 32\r\n\targuments: \
                        [-o username=admin,password=p4ssw0rd]\u{0}\n";
    LINE.repeat(CHATTER_BYTES.div_ceil(LINE.len()))
}

fn chatty(answer: &mut dyn Any) -> bool {
    let more = |map: &mut BTreeMap<String, String>| {
        map.extend((0..100).map(|index| (format!("dev.berth/more-{index}"), "x".repeat(20))));
    };
    change(answer, |plugin: &mut v1::GetPluginInfoResponse| {
        more(&mut plugin.manifest);
        plugin.vendor_version.push_str(&chatter());
    }) || change(answer, |attached: &mut v1::ControllerPublishVolumeResponse| {
        more(&mut attached.publish_context);
    }) || change(answer, |created: &mut v1::CreateVolumeResponse| {
        if let Some(volume) = &mut created.volume {
            volume.volume_context.insert("dev.berth/chatter".to_owned(), chatter());
        }
    }) || change(answer, |validated: &mut v1::ValidateVolumeCapabilitiesResponse| {
        validated.message.push_str(&chatter());
        if let Some(confirmed) = &mut validated.confirmed {
            more(&mut confirmed.volume_context);
        }
    })
}

fn no_capabilities(answer: &mut dyn Any) -> bool {
    change(answer, |plugin: &mut v1::GetPluginCapabilitiesResponse| plugin.capabilities.clear())
        || change(answer, |controller: &mut v1::ControllerGetCapabilitiesResponse| {
            controller.capabilities.clear();
        })
        || change(answer, |node: &mut v1::NodeGetCapabilitiesResponse| node.capabilities.clear())
        || change(answer, |validated: &mut v1::ValidateVolumeCapabilitiesResponse| {
            if let Some(confirmed) = &mut validated.confirmed {
                confirmed.volume_capabilities.clear();
            }
        })
}

fn change<T: 'static>(answer: &mut dyn Any, change: impl FnOnce(&mut T)) -> bool {
    answer.downcast_mut::<T>().map(change).is_some()
}

fn unknown_enum(answer: &mut dyn Any) -> bool {
    change(answer, |plugin: &mut v1::GetPluginCapabilitiesResponse| {
        let service = v1::plugin_capability::Service { r#type: UNKNOWN };
        let kind = Some(v1::plugin_capability::Type::Service(service));
        plugin.capabilities.push(v1::PluginCapability { r#type: kind });
    }) || change(answer, |controller: &mut v1::ControllerGetCapabilitiesResponse| {
        let rpc = v1::controller_service_capability::Rpc { r#type: UNKNOWN };
        let kind = Some(v1::controller_service_capability::Type::Rpc(rpc));
        controller.capabilities.push(v1::ControllerServiceCapability { r#type: kind });
    }) || change(answer, |group: &mut v1::GroupControllerGetCapabilitiesResponse| {
        let rpc = v1::group_controller_service_capability::Rpc { r#type: UNKNOWN };
        let kind = Some(v1::group_controller_service_capability::Type::Rpc(rpc));
        group.capabilities.push(v1::GroupControllerServiceCapability { r#type: kind });
    }) || change(answer, |node: &mut v1::NodeGetCapabilitiesResponse| {
        let rpc = v1::node_service_capability::Rpc { r#type: UNKNOWN };
        let kind = Some(v1::node_service_capability::Type::Rpc(rpc));
        node.capabilities.push(v1::NodeServiceCapability { r#type: kind });
    }) || change(answer, |validated: &mut v1::ValidateVolumeCapabilitiesResponse| {
        if let Some(confirmed) = &mut validated.confirmed {
            let mode = v1::volume_capability::AccessMode { mode: UNKNOWN };
            let unknown = v1::VolumeCapability { access_type: None, access_mode: Some(mode) };
            confirmed.volume_capabilities.insert(0, unknown);
        }
    })
}

fn topology(answer: &mut dyn Any, topology: Option<v1::Topology>) -> bool {
    change(answer, |node: &mut v1::NodeGetInfoResponse| {
        node.accessible_topology.clone_from(&topology);
    }) || change(answer, |created: &mut v1::CreateVolumeResponse| {
        if let Some(volume) = &mut created.volume {
            volume.accessible_topology = topology.iter().cloned().collect();
        }
    })
}

fn no_id(answer: &mut dyn Any) -> bool {
    change(answer, |created: &mut v1::CreateVolumeResponse| {
        if let Some(volume) = &mut created.volume {
            volume.volume_id.clear();
        }
    }) || change(answer, |created: &mut v1::CreateSnapshotResponse| {
        if let Some(snapshot) = &mut created.snapshot {
            snapshot.snapshot_id.clear();
        }
    }) || change(answer, |created: &mut v1::CreateVolumeGroupSnapshotResponse| {
        if let Some(group) = &mut created.group_snapshot {
            group.group_snapshot_id.clear();
            group.snapshots.iter_mut().for_each(|snapshot| snapshot.snapshot_id.clear());
        }
    })
}

fn other_topology(answer: &mut dyn Any) -> bool {
    change(answer, |created: &mut v1::CreateVolumeResponse| {
        let Some(volume) = &mut created.volume else { return };
        let mut segments = volume.accessible_topology.pop().unwrap_or_default().segments;
        if segments.is_empty() {
            segments.insert("dev.berth/zone".to_owned(), String::new());
        }
        for value in segments.values_mut() {
            value.push_str("-elsewhere");
        }
        volume.accessible_topology = vec![v1::Topology { segments }];
    })
}

/// False also for a volume without a source: its answer would be right.
fn no_source(answer: &mut dyn Any) -> bool {
    let mut had_source = false;
    change(answer, |created: &mut v1::CreateVolumeResponse| {
        let source = created.volume.as_mut().and_then(|volume| volume.content_source.take());
        had_source = source.is_some();
    });
    had_source
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answers_meant_are_wrong() {
        let mut probe = v1::ProbeResponse { ready: Some(true) };
        assert!(!distort(WrongAnswer::UnknownEnum, &mut probe));
        assert_eq!(probe.ready, Some(true));
        assert!(distort(WrongAnswer::NoReady, &mut probe));
        assert_eq!(probe.ready, None);

        let mut info = v1::NodeGetInfoResponse::default();
        assert!(distort(WrongAnswer::EmptyTopology, &mut info));
        assert_eq!(info.accessible_topology, Some(v1::Topology::default()));
    }

    #[test]
    fn a_created_volume_has_no_id_or_source_or_is_elsewhere() {
        let requested = v1::Topology { segments: [("zone".into(), "a".into())].into() };
        let volume = v1::Volume {
            volume_id: "v".into(),
            content_source: Some(v1::VolumeContentSource::default()),
            accessible_topology: vec![requested],
            ..v1::Volume::default()
        };
        let mut created = v1::CreateVolumeResponse { volume: Some(volume) };
        for (wrong, is_wrong_again) in [
            (WrongAnswer::NoId, true),
            (WrongAnswer::NoSource, false),
            (WrongAnswer::OtherTopology, true),
        ] {
            assert!(distort(wrong, &mut created), "{wrong:?}");
            assert_eq!(distort(wrong, &mut created.clone()), is_wrong_again, "{wrong:?}");
        }
        let volume = created.volume.unwrap();
        assert_eq!((volume.volume_id.as_str(), volume.content_source), ("", None));
        assert_eq!(volume.accessible_topology[0].segments["zone"], "a-elsewhere");
    }

    #[test]
    fn a_chatty_answer_is_long_and_keeps_what_it_said() {
        let mut attached = v1::ControllerPublishVolumeResponse::default();
        attached.publish_context.insert("device".into(), "disk-1".into());
        assert!(distort(WrongAnswer::Chatty, &mut attached));
        assert_eq!(attached.publish_context.len(), 101);
        assert_eq!(attached.publish_context["device"], "disk-1");
        assert!(chatter().len() >= CHATTER_BYTES);
    }

    #[test]
    fn each_list_of_capabilities_has_one_that_is_unknown() {
        let mut plugin = v1::GetPluginCapabilitiesResponse::default();
        let mut controller = v1::ControllerGetCapabilitiesResponse::default();
        let mut group = v1::GroupControllerGetCapabilitiesResponse::default();
        let mut node = v1::NodeGetCapabilitiesResponse::default();
        let answers: [&mut dyn Any; 4] = [&mut plugin, &mut controller, &mut group, &mut node];
        for answer in answers {
            assert!(distort(WrongAnswer::UnknownEnum, answer));
        }
        let lengths = [plugin.capabilities.len(), controller.capabilities.len()];
        assert_eq!((lengths, group.capabilities.len(), node.capabilities.len()), ([1, 1], 1, 1));
    }
}
