//! What is reported of a mount, and when.

use berth_domain::{Namespace, VolumeId};

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_unix_ms(ms)
}

fn mount(state: NodeMountState, since: Timestamp) -> NodeMount {
    NodeMount { state, since, rpc: None, tries: 0, error: None }
}

fn work(rpc: Option<&str>, hung: bool) -> WorkStatus {
    WorkStatus {
        namespace: Namespace::default(),
        volume: VolumeId::new("data").unwrap(),
        alloc: AllocId::new("a").unwrap(),
        epoch: Some(7),
        step: verb::AgentMount::STEP.to_owned(),
        since: at(1),
        rpc: rpc.map(str::to_owned),
        rpc_since: rpc.map(|_| at(2)),
        hung,
    }
}

#[test]
fn work_names_its_plugin_call_and_keeps_the_tries_before_it() {
    use NodeMountState::{Failing, Hung, Publishing, Staging};
    for (rpc, hung, state, since) in [
        (None, false, Staging, at(1)),
        (Some("NodeStageVolume"), false, Staging, at(2)),
        (Some("NodePublishVolume"), false, Publishing, at(2)),
        (Some("NodeStageVolume"), true, Hung, at(2)),
    ] {
        let shown = mount_from_work(&work(rpc, hung), None);
        assert_eq!((shown.state, shown.since, shown.rpc.as_deref()), (state, since, rpc));
    }
    let failed = NodeMount { tries: 3, error: Some("no".to_owned()), ..mount(Failing, at(0)) };
    let shown = mount_from_work(&work(None, false), Some(&failed));
    assert_eq!((shown.tries, shown.error.as_deref()), (3, Some("no")));
}

#[test]
fn a_quick_mount_is_reported_once_and_trouble_at_once() {
    use NodeMountState::{Failing, Hung, Missing, Mounted, Staging};
    let due = |last: Option<NodeMount>, now_is: &NodeMount, ms| {
        let last = last.map(|mount| ReportedMount { mount, at: at(0) });
        is_due(last.as_ref(), now_is, at(ms))
    };
    assert!(!due(None, &mount(Staging, at(0)), 999), "it may be there in a moment");
    assert!(due(None, &mount(Staging, at(0)), 1_000));
    assert!(!due(None, &mount(Mounted, at(0)), 999));
    assert!(due(None, &mount(Mounted, at(0)), 1_000));
    assert!(due(Some(mount(Staging, at(0))), &mount(Mounted, at(500)), 501));
    for trouble in [Failing, Hung, Missing] {
        assert!(due(None, &mount(trouble, at(0)), 0));
        assert!(due(Some(mount(Mounted, at(0))), &mount(trouble, at(0)), 0));
        assert!(!due(Some(mount(trouble, at(0))), &mount(trouble, at(0)), 60_000), "it is known");
        let again = NodeMount { tries: 2, ..mount(trouble, at(0)) };
        assert!(!due(Some(mount(trouble, at(0))), &again, 14_999));
        assert!(due(Some(mount(trouble, at(0))), &again, 15_000));
    }
}
