//! Replies as tables.

use berth_cli::show;
use berth_contract::message::alloc::AllocStub;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::class::ClassStatus;
use berth_contract::message::collect::Sweep;
use berth_contract::message::registry::{Declared, NodeLeft, NodeStatus, PluginStatus};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::volume::VolumeStub;

use crate::data::{self, NOW};

#[test]
fn volumes() {
    insta::assert_snapshot!(show::list(&data::volumes().volumes, None, NOW));
}

#[test]
fn placements() {
    insta::assert_snapshot!(show::placements(&data::placements()));
}

#[test]
fn one_in_line_says_who_is_ahead() {
    insta::assert_snapshot!(show::list(&[data::in_line("web-2")], None, NOW));
}

#[test]
fn a_volume_with_its_claims() {
    insta::assert_snapshot!(show::volume(&data::volume(), NOW));
}

#[test]
fn claims_at_rest_and_in_trouble() {
    insta::assert_snapshot!(show::list(&[data::taken("web-1"), data::stuck("web-0")], None, NOW));
}

#[test]
fn plugins_and_one_with_its_instances() {
    let plugins = [data::plugin()];
    let both =
        format!("{}\n{}", show::list(&plugins, None, NOW), show::plugin(&data::plugin(), NOW));
    insta::assert_snapshot!(both);
}

#[test]
fn nodes_and_one_with_its_instances() {
    let nodes = [data::node(), data::node_down()];
    let both = format!("{}\n{}", show::list(&nodes, None, NOW), show::node(&data::node(), NOW));
    insta::assert_snapshot!(both);
}

#[test]
fn a_node_that_is_gone_or_has_left() {
    let (n3, gone) = (data::node_gone(), data::proof());
    let stuck = data::stuck("web-1");
    let left = |known, instances, gone| show::left(&n3.id, &NodeLeft { known, instances, gone });
    let nodes = [n3.clone()];
    let all = [
        show::list(&nodes, None, NOW),
        show::node(&n3, NOW),
        show::declared(&n3.id, &Declared { proof: gone.clone(), claims: None }, NOW),
        show::declared(&n3.id, &Declared { proof: gone.clone(), claims: Some(Vec::new()) }, NOW),
        show::declared(&n3.id, &Declared { proof: gone, claims: Some(vec![stuck]) }, NOW),
        left(true, 2, false),
        left(true, 1, true),
        left(false, 0, false),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn allocs_and_one_with_its_claims() {
    let both = format!(
        "{}\n{}",
        show::list(&data::allocs().allocs, None, NOW),
        show::alloc(&data::alloc(), NOW)
    );
    insta::assert_snapshot!(both);
}

#[test]
fn a_sweep_and_what_it_kept() {
    insta::assert_snapshot!(show::sweep(&data::sweep()));
}

#[test]
fn snapshots_and_groups_of_them() {
    let all = data::snapshots();
    let both = format!(
        "{}\n{}\n{}",
        show::list(&all, None, NOW),
        show::list(&all, Some("state"), NOW),
        show::snapshot_groups(&all, NOW)
    );
    insta::assert_snapshot!(both);
}

#[test]
fn classes_and_one_of_them() {
    let classes = data::classes();
    let all: Vec<String> = classes.classes.iter().map(show::class).collect();
    insta::assert_snapshot!(format!(
        "{}\n{}",
        show::list(&classes.classes, None, NOW),
        all.join("\n")
    ));
}

#[test]
fn what_a_plugin_has_and_how_much_room() {
    let externals = data::externals();
    let all = [
        show::external_volumes(&externals, None, NOW),
        show::external_snapshots(&externals, None, NOW),
        show::capacities(&data::capacities()),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn nothing_is_said_in_words() {
    let nowhere =
        serde_json::from_value(serde_json::json!({"plugin": "p", "volumes": []})).unwrap();
    let nothing = [
        show::list::<SnapshotStub>(&[], None, NOW),
        show::snapshot_groups(&[], NOW),
        show::list::<ClassStatus>(&[], None, NOW),
        show::external_volumes(&nowhere, None, NOW),
        show::external_snapshots(&nowhere, None, NOW),
        show::sweep(&Sweep::default()),
        show::list::<VolumeStub>(&[], None, NOW),
        show::list::<ClaimStatus>(&[], None, NOW),
        show::list::<PluginStatus>(&[], None, NOW),
        show::list::<NodeStatus>(&[], None, NOW),
        show::list::<AllocStub>(&[], None, NOW),
    ];
    insta::assert_snapshot!(nothing.concat());
}
