//! Replies as tables.

use berth_cli::show;
use berth_contract::message::alloc::Allocs;
use berth_contract::message::class::Classes;
use berth_contract::message::collect::Sweep;
use berth_contract::message::registry::{Declared, Left, Nodes, Plugins};
use berth_contract::message::volume::Volumes;

use crate::data::{self, NOW};

#[test]
fn volumes() {
    insta::assert_snapshot!(show::volumes(&data::volumes(), None));
}

#[test]
fn placements() {
    insta::assert_snapshot!(show::placements(&data::placements()));
}

#[test]
fn one_in_line_says_who_is_ahead() {
    insta::assert_snapshot!(show::claims(&[data::in_line("web-2")], NOW));
}

#[test]
fn a_volume_with_its_claims() {
    insta::assert_snapshot!(show::volume(&data::volume(), NOW));
}

#[test]
fn claims_at_rest_and_in_trouble() {
    insta::assert_snapshot!(show::claims(&[data::taken("web-1"), data::stuck("web-0")], NOW));
}

#[test]
fn plugins_and_one_with_its_instances() {
    let plugins =
        Plugins { index: 44, plugins: vec![data::plugin()], next: None, unreadable: Vec::new() };
    let both = format!("{}\n{}", show::plugins(&plugins, None), show::plugin(&data::plugin(), NOW));
    insta::assert_snapshot!(both);
}

#[test]
fn nodes_and_one_with_its_instances() {
    let nodes = Nodes {
        index: 44,
        nodes: vec![data::node(), data::node_down()],
        next: None,
        unreadable: Vec::new(),
    };
    let both = format!("{}\n{}", show::nodes(&nodes, None, NOW), show::node(&data::node(), NOW));
    insta::assert_snapshot!(both);
}

#[test]
fn a_node_that_is_gone_or_has_left() {
    let (n3, gone) = (data::node_gone(), data::proof());
    let stuck = data::stuck("web-1");
    let left = |known, instances, gone| show::left(&n3.id, &Left { known, instances, gone });
    let nodes = Nodes { index: 44, nodes: vec![n3.clone()], next: None, unreadable: Vec::new() };
    let all = [
        show::nodes(&nodes, None, NOW),
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
        show::allocs(&data::allocs(), None, NOW),
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
        show::snapshots(&all, None, NOW),
        show::snapshots(&all, Some("state"), NOW),
        show::snapshot_groups(&all, NOW)
    );
    insta::assert_snapshot!(both);
}

#[test]
fn classes_and_one_of_them() {
    let classes = data::classes();
    let all: Vec<String> = classes.classes.iter().map(show::class).collect();
    insta::assert_snapshot!(format!("{}\n{}", show::classes(&classes, None), all.join("\n")));
}

#[test]
fn what_a_plugin_has_and_how_much_room() {
    let externals = data::externals();
    let all = [
        show::external_volumes(&externals, None),
        show::external_snapshots(&externals, None),
        show::capacities(&data::capacities()),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn nothing_is_said_in_words() {
    let nowhere =
        serde_json::from_value(serde_json::json!({"plugin": "p", "volumes": []})).unwrap();
    let nothing = [
        show::snapshots(&[], None, NOW),
        show::snapshot_groups(&[], NOW),
        show::classes(&Classes { classes: Vec::new(), next: None, unreadable: Vec::new() }, None),
        show::external_volumes(&nowhere, None),
        show::external_snapshots(&nowhere, None),
        show::sweep(&Sweep::default()),
        show::volumes(
            &Volumes { index: 0, volumes: Vec::new(), next: None, unreadable: Vec::new() },
            None,
        ),
        show::claims(&[], NOW),
        show::plugins(
            &Plugins { index: 0, plugins: Vec::new(), next: None, unreadable: Vec::new() },
            None,
        ),
        show::nodes(
            &Nodes { index: 0, nodes: Vec::new(), next: None, unreadable: Vec::new() },
            None,
            NOW,
        ),
        show::allocs(
            &Allocs { index: 0, allocs: Vec::new(), next: None, unreadable: Vec::new() },
            None,
            NOW,
        ),
    ];
    insta::assert_snapshot!(nothing.concat());
}
