//! Two volumes, and two allocs that want both in opposite orders.

use berth_model::pair::{Asking, Mutation, Search};

const TOGETHER: Search =
    Search { asking: Asking::Together, wait: true, has_one: false, mutation: None };
const ONE_BY_ONE: Search = Search { asking: Asking::OneByOne, ..TOGETHER };

#[test]
fn both_allocs_come_to_their_end() {
    for asking in [Asking::Together, Asking::OneByOne] {
        for (wait, has_one) in [(true, false), (false, false), (true, true), (false, true)] {
            let search = Search { asking, wait, has_one, mutation: None };
            match search.run() {
                Ok(searched) => println!("{search:?}: {} states", searched.states),
                Err(breach) => panic!("{search:?}: {breach:#?}"),
            }
        }
    }
}

#[test]
fn each_rule_is_needed() {
    let mutated = |search: Search, mutation| Search { mutation: Some(mutation), ..search };
    let refused = Search { wait: false, ..TOGETHER };
    let has_one = Search { has_one: true, ..refused };
    for (search, what) in [
        (mutated(TOGETHER, Mutation::OwnOrder), "nobody goes on"),
        (mutated(ONE_BY_ONE, Mutation::NoSearch), "nobody goes on"),
        (mutated(ONE_BY_ONE, Mutation::AllGiveUp), "each alloc in the circle"),
        (mutated(refused, Mutation::NoUndo), "left 1 claims"),
        (mutated(has_one, Mutation::UndoAll), "left 0 claims"),
    ] {
        let breach = search.run().expect_err(&format!("{search:?} is noticed"));
        println!("{search:?}: {breach:#?}");
        assert!(breach.what.contains(what), "{search:?}: {breach:#?}");
    }
}
