//! Every state of a mount, and what is said of it.

use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::volume::State;
use berth_domain::{Namespace, NodeId, VolumeId};

use super::*;

fn claim(state: NodeMountState, rpc: Option<&str>) -> Claim {
    let since = Timestamp::from_unix_ms(1_000);
    let (node, access) = (NodeId::new("n1").unwrap(), AccessMode::SingleNodeWriter);
    let capability = Capability { access, attachment: AttachmentMode::FileSystem };
    let rpc = rpc.map(str::to_owned);
    Claim {
        epoch: 7,
        controller: true,
        mount: Some(NodeMount { state, since, rpc, tries: 0, error: None }),
        ..Claim::new(State::Taken, node, Mode::Write, capability, since)
    }
}

/// Every state says on which node, and every trouble what to do.
#[test]
fn a_mount_that_is_not_there_names_node_call_and_command() {
    use NodeMountState::{
        Dead, Failing, Hung, Missing, Mounted, Publishing, Staging, Unknown as NewWord,
    };
    let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
    let told = |state, rpc| waits_for(&volume, Some("p1"), &claim(state, rpc), None);
    for state in [Mounted, NewWord] {
        assert_eq!(told(state, None), None);
    }
    for (state, rpc, words) in [
        (Staging, Some("NodeStageVolume"), "NodeStageVolume on node n1, under way since"),
        (Publishing, None, "the mount on node n1, begun at"),
    ] {
        let ((_, waits_for), hint) = told(state, rpc).unwrap();
        assert!(waits_for.contains(words) && hint.is_none(), "{waits_for}");
    }
    for (state, rpc, words, command) in [
        (
            Hung,
            Some("NodeStageVolume"),
            "NodeStageVolume on node n1, not answered",
            "node status n1",
        ),
        (Hung, None, "the mount on node n1, which does not answer", "node status n1"),
        (Failing, None, "node n1", "plugin status p1"),
        (Missing, None, "missing on node n1", "volume republish data --node n1"),
        (Dead, None, "mount on node n1 fails", "volume republish data --node n1"),
    ] {
        let ((_, waits_for), hint) = told(state, rpc).unwrap();
        assert!(waits_for.contains(words), "{waits_for}");
        assert!(hint.as_ref().is_some_and(|hint| hint.contains(command)), "{hint:?}");
    }
}

#[test]
fn the_last_report_of_a_node_that_is_down_says_so() {
    let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
    let node = Node { state: NodeState::Down, ..node() };
    for claim in
        [claim(NodeMountState::Mounted, None), claim(NodeMountState::Hung, Some("NodeStageVolume"))]
    {
        let ((_, waits_for), hint) = waits_for(&volume, Some("p1"), &claim, Some(&node)).unwrap();
        let state = claim.mount.unwrap().state;
        assert!(waits_for.contains(&format!("its last report: {state} since")), "{waits_for}");
        assert!(hint.unwrap().contains("start the agent of node n1"));
    }
}

fn node() -> Node {
    let at = Timestamp::from_unix_ms(2_000);
    Node { state: NodeState::Ready, reported: at, ..Node::unknown(at) }
}
