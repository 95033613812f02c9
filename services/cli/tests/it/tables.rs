//! Replies as tables.

use berth_cli::search::{SearchAnswer, SearchKind, SearchMatch};
use berth_cli::show;
use berth_contract::message::alloc::AllocStub;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::class::ClassStatus;
use berth_contract::message::collect::Sweep;
use berth_contract::message::registry::{Declared, NodeLeft, NodeStatus, PluginStatus};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::volume::VolumeStub;
use berth_domain::Namespace;

use crate::alloc_data;
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
fn a_claim_in_line_names_the_claims_ahead() {
    insta::assert_snapshot!(show::list(&[data::in_line("web-2")], None, NOW));
}

#[test]
fn a_volume_is_shown_with_its_claims() {
    insta::assert_snapshot!(show::volume(&data::volume(), NOW));
}

#[test]
fn claims_are_listed_with_details_of_their_trouble() {
    insta::assert_snapshot!(show::list(&[data::taken("web-1"), data::stuck("web-0")], None, NOW));
}

#[test]
fn plugins_are_listed_and_one_is_shown_with_its_instances() {
    let plugins = [data::plugin()];
    let list_and_page =
        format!("{}\n{}", show::list(&plugins, None, NOW), show::plugin(&data::plugin(), NOW));
    insta::assert_snapshot!(list_and_page);
}

#[test]
fn nodes_are_listed_and_one_is_shown_with_its_instances() {
    let nodes = [data::node(), data::node_down()];
    let list_and_page =
        format!("{}\n{}", show::list(&nodes, None, NOW), show::node(&data::node(), NOW));
    insta::assert_snapshot!(list_and_page);
}

#[test]
fn a_node_that_is_gone_or_has_left() {
    let (n3, gone) = (data::node_gone(), data::proof());
    let stuck = data::stuck("web-1");
    let departed =
        |known, instances, gone| show::departed(&n3.id, &NodeLeft { known, instances, gone });
    let nodes = [n3.clone()];
    let texts = [
        show::list(&nodes, None, NOW),
        show::node(&n3, NOW),
        show::declared(&n3.id, &Declared { proof: gone.clone(), claims: None }, NOW),
        show::declared(&n3.id, &Declared { proof: gone.clone(), claims: Some(Vec::new()) }, NOW),
        show::declared(&n3.id, &Declared { proof: gone, claims: Some(vec![stuck]) }, NOW),
        departed(true, 2, false),
        departed(true, 1, true),
        departed(false, 0, false),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_search_shows_the_matches_and_says_what_it_leaves_out() {
    let found = |kind, namespace: &str, id: &str, state: &str| SearchMatch {
        kind,
        namespace: Namespace::new(namespace).ok(),
        id: id.to_owned(),
        state: state.to_owned(),
    };
    let answer = SearchAnswer {
        prefix: "da".to_owned(),
        matches: vec![
            found(SearchKind::Volumes, "default", "data", "ready"),
            found(SearchKind::Allocs, "team a", "dashboard-1", "live on n1"),
            found(SearchKind::Classes, "", "daily", "of plugin ebs.csi.aws.com"),
        ],
        more: vec![SearchKind::Volumes],
        not_allowed: vec![SearchKind::Plugins, SearchKind::Nodes],
        unreadable: Vec::new(),
    };
    let none = SearchAnswer { prefix: "a\u{1b}".to_owned(), ..SearchAnswer::default() };
    insta::assert_snapshot!(format!("{}\n{}", show::search(&answer), show::search(&none)));
}

#[test]
fn allocs_are_listed_and_one_is_shown_with_its_claims() {
    let list_and_page = format!(
        "{}\n{}",
        show::list(&alloc_data::allocs().allocs, None, NOW),
        show::alloc(&alloc_data::alloc(), NOW)
    );
    insta::assert_snapshot!(list_and_page);
}

#[test]
fn a_sweep_prints_what_it_collected_and_kept() {
    insta::assert_snapshot!(show::sweep(&data::sweep()));
}

#[test]
fn snapshots_and_groups_of_them() {
    let snapshots = data::snapshots();
    let lists = format!(
        "{}\n{}\n{}",
        show::list(&snapshots, None, NOW),
        show::list(&snapshots, Some("state"), NOW),
        show::snapshot_groups(&snapshots, NOW)
    );
    insta::assert_snapshot!(lists);
}

#[test]
fn classes_are_listed_and_one_is_shown() {
    let classes = data::classes();
    let pages: Vec<String> = classes.classes.iter().map(show::class).collect();
    insta::assert_snapshot!(format!(
        "{}\n{}",
        show::list(&classes.classes, None, NOW),
        pages.join("\n")
    ));
}

#[test]
fn external_volumes_snapshots_and_capacity_are_shown() {
    let externals = data::externals();
    let pages = [
        show::external_volumes(&externals, None, NOW),
        show::external_snapshots(&externals, None, NOW),
        show::capacities(&data::capacities()),
    ];
    insta::assert_snapshot!(pages.join("\n"));
}

#[test]
fn an_empty_list_prints_a_sentence() {
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
