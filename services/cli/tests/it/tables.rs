//! Replies as tables.

use berth_cli::show;
use berth_contract::message::alloc::Allocs;
use berth_contract::message::registry::{Nodes, Plugins};
use berth_contract::message::volume::Volumes;

use crate::data::{self, NOW};

#[test]
fn volumes() {
    insta::assert_snapshot!(show::volumes(&data::volumes()));
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
    let plugins = Plugins { plugins: vec![data::plugin()] };
    let both = format!("{}\n{}", show::plugins(&plugins), show::plugin(&data::plugin(), NOW));
    insta::assert_snapshot!(both);
}

#[test]
fn nodes_and_one_with_its_instances() {
    let nodes = Nodes { nodes: vec![data::node(), data::node_down()] };
    let both = format!("{}\n{}", show::nodes(&nodes, NOW), show::node(&data::node(), NOW));
    insta::assert_snapshot!(both);
}

#[test]
fn allocs_and_one_with_its_claims() {
    let both =
        format!("{}\n{}", show::allocs(&data::allocs(), NOW), show::alloc(&data::alloc(), NOW));
    insta::assert_snapshot!(both);
}

#[test]
fn nothing_is_said_in_words() {
    let nothing = [
        show::volumes(&Volumes { index: 0, volumes: Vec::new() }),
        show::claims(&[], NOW),
        show::plugins(&Plugins { plugins: Vec::new() }),
        show::nodes(&Nodes { nodes: Vec::new() }, NOW),
        show::allocs(&Allocs { allocs: Vec::new() }, NOW),
    ];
    insta::assert_snapshot!(nothing.concat());
}
