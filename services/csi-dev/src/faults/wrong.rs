//! Answers that are wrong in small ways.
//!
//! Owns: what each [`Wrong`] makes of an answer. Promises: an answer that it is not about stays as
//! it is; the calls themselves know nothing of this. Never: touches an error; that is the code's.

use std::any::Any;

use berth_csi::v1;

use super::Wrong;

/// A number that no enum of CSI 1.12 has.
const UNKNOWN: i32 = 999;

/// Makes `answer` wrong; false where it is no answer that this can be done to.
pub(crate) fn distort(wrong: Wrong, answer: &mut dyn Any) -> bool {
    match wrong {
        Wrong::UnknownEnum => unknown_enum(answer),
        Wrong::NoReady => change(answer, |probe: &mut v1::ProbeResponse| probe.ready = None),
        Wrong::EmptyTopology => empty_topology(answer),
        Wrong::NoNextToken => no_next_token(answer),
        Wrong::UnknownError => false,
    }
}

/// Changes the answer, if it is of this type.
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
    }) || change(answer, |stats: &mut v1::NodeGetVolumeStatsResponse| {
        stats.usage.iter_mut().for_each(|usage| usage.unit = UNKNOWN);
    })
}

fn empty_topology(answer: &mut dyn Any) -> bool {
    change(answer, |node: &mut v1::NodeGetInfoResponse| {
        node.accessible_topology = Some(v1::Topology::default());
    }) || change(answer, |created: &mut v1::CreateVolumeResponse| {
        if let Some(volume) = &mut created.volume {
            volume.accessible_topology = vec![v1::Topology::default()];
        }
    })
}

/// A page loses its token; a whole list, which has none, loses its second half.
fn no_next_token(answer: &mut dyn Any) -> bool {
    fn cut<T>(entries: &mut Vec<T>, token: &mut String) {
        if std::mem::take(token).is_empty() {
            entries.truncate(entries.len().div_ceil(2));
        }
    }
    change(answer, |list: &mut v1::ListVolumesResponse| {
        cut(&mut list.entries, &mut list.next_token);
    }) || change(answer, |list: &mut v1::ListSnapshotsResponse| {
        cut(&mut list.entries, &mut list.next_token);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answers_meant_are_wrong() {
        let mut probe = v1::ProbeResponse { ready: Some(true) };
        assert!(!distort(Wrong::UnknownEnum, &mut probe));
        assert!(!distort(Wrong::UnknownError, &mut probe));
        assert_eq!(probe.ready, Some(true));
        assert!(distort(Wrong::NoReady, &mut probe));
        assert_eq!(probe.ready, None);

        let mut info = v1::NodeGetInfoResponse::default();
        assert!(distort(Wrong::EmptyTopology, &mut info));
        assert_eq!(info.accessible_topology, Some(v1::Topology::default()));
    }

    #[test]
    fn each_list_of_capabilities_has_one_that_is_unknown() {
        let mut plugin = v1::GetPluginCapabilitiesResponse::default();
        let mut controller = v1::ControllerGetCapabilitiesResponse::default();
        let mut group = v1::GroupControllerGetCapabilitiesResponse::default();
        let mut node = v1::NodeGetCapabilitiesResponse::default();
        let answers: [&mut dyn Any; 4] = [&mut plugin, &mut controller, &mut group, &mut node];
        for answer in answers {
            assert!(distort(Wrong::UnknownEnum, answer));
        }
        let lengths = [plugin.capabilities.len(), controller.capabilities.len()];
        assert_eq!((lengths, group.capabilities.len(), node.capabilities.len()), ([1, 1], 1, 1));
    }

    #[test]
    fn a_list_ends_early_and_no_token_tells() {
        let entries = vec![v1::list_volumes_response::Entry::default(); 3];
        let mut page = v1::ListVolumesResponse { entries, next_token: "3".into() };
        assert!(distort(Wrong::NoNextToken, &mut page));
        assert_eq!((page.entries.len(), page.next_token.as_str()), (3, ""));
        assert!(distort(Wrong::NoNextToken, &mut page));
        assert_eq!(page.entries.len(), 2);
    }
}
