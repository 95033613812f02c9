//! Random histories: correct ones are accepted, and one with a step that is missing or too early is
//! not.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::history::{NODES, Script, Step, play};
use super::log::*;
use crate::Finding;

/// A volume's use on one node, from attaching to detaching.
fn cycle(node: usize, extras: u8) -> Vec<Step> {
    let mut rpcs = vec![ATTACH, STAGE];
    if extras & 1 == 0 {
        rpcs.push(PUBLISH);
        if extras & 2 != 0 {
            rpcs.extend([EXPAND, NODE_EXPAND]);
        }
        if extras & 4 != 0 {
            rpcs.extend([SNAPSHOT, DELETE_SNAPSHOT]);
        }
        if extras & 8 != 0 {
            rpcs.extend([MODIFY, GROUP, DELETE_GROUP]);
        }
        rpcs.push(UNPUBLISH);
    }
    rpcs.extend([UNSTAGE, DETACH]);
    rpcs.into_iter().map(|rpc| (rpc, node)).collect()
}

/// A volume for one node at a time: created, used by one node after another, deleted.
fn exclusive(index: usize, uses: &[(usize, u8)]) -> Script {
    let cycles = uses.iter().flat_map(|(node, extras)| cycle(*node, *extras));
    let steps = [(CREATE, 0)].into_iter().chain(cycles).chain([(DELETE, 0)]);
    let steps: VecDeque<_> = steps.collect();
    Script { volume: format!("exclusive-{index}"), mode: "SINGLE_NODE_WRITER", steps }
}

/// A volume that each node uses on its own.
fn shared(index: usize, uses: &[(usize, u8)]) -> Vec<Script> {
    let on = |node: usize| {
        let mine = uses.iter().filter(move |(on, _)| *on == node);
        // An expansion or a copy concerns all nodes; another test has those.
        let steps = mine.flat_map(|(node, extras)| cycle(*node, extras & 1)).collect();
        Script { volume: format!("shared-{index}"), mode: "MULTI_NODE_MULTI_WRITER", steps }
    };
    (0..NODES.len()).map(on).collect()
}

fn uses() -> impl Strategy<Value = Vec<(usize, u8)>> {
    vec((0..NODES.len(), 0_u8..16), 1..4)
}

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    (vec(uses(), 1..4), vec(uses(), 0..3)).prop_map(|(alone, together)| {
        let alone = alone.iter().enumerate().map(|(index, uses)| exclusive(index, uses));
        let together = together.iter().enumerate();
        let together = together.flat_map(|(index, uses)| shared(index, uses));
        alone.chain(together).collect()
    })
}

/// A change of a script, and the rule that it then breaks.
#[derive(Clone, Copy, Debug)]
enum Mistake {
    Drop(&'static str),
    /// The step is taken before the preceding one.
    Early(&'static str),
}

const MISTAKES: [(Mistake, &str); 11] = [
    (Mistake::Drop(ATTACH), "node-call-before-attach"),
    (Mistake::Drop(STAGE), "publish-before-stage"),
    (Mistake::Drop(UNPUBLISH), "unstage-before-unpublish"),
    (Mistake::Drop(UNSTAGE), "detach-before-unstage"),
    (Mistake::Drop(DETACH), "exclusive-attach"),
    (Mistake::Early(STAGE), "node-call-before-attach"),
    (Mistake::Early(PUBLISH), "publish-before-stage"),
    (Mistake::Early(UNSTAGE), "unstage-before-unpublish"),
    (Mistake::Early(DETACH), "detach-before-unstage"),
    // Before the last use is detached; before the first one is.
    (Mistake::Early(DELETE), "delete-in-use"),
    (Mistake::Early(ATTACH), "exclusive-attach"),
];

/// Makes the mistake; false if the script has no such step.
fn spoil(script: &mut Script, mistake: Mistake) -> bool {
    let steps = &mut script.steps;
    let find = |steps: &VecDeque<Step>, rpc, from: usize| {
        steps.iter().skip(from).position(|(step, _)| *step == rpc).map(|at| at + from)
    };
    match mistake {
        Mistake::Drop(rpc) => find(steps, rpc, 0).map(|at| steps.remove(at)).is_some(),
        // The attach of the second use, before the detach of the first.
        Mistake::Early(ATTACH) => {
            let second = find(steps, ATTACH, 0).and_then(|first| find(steps, ATTACH, first + 1));
            second.map(|at| steps.swap(at - 1, at)).is_some()
        }
        Mistake::Early(rpc) => find(steps, rpc, 0).map(|at| steps.swap(at - 1, at)).is_some(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn correct_histories_pass(scripts in scripts(), decisions in vec(any::<u8>(), 0..600)) {
        let findings = play(scripts, &decisions);
        prop_assert!(findings.is_empty(), "{}", findings[0]);
    }

    #[test]
    fn a_mistake_is_found(
        mut others in scripts(),
        mistake in 0..MISTAKES.len(),
        decisions in vec(any::<u8>(), 0..600),
    ) {
        let (mistake, rule) = MISTAKES[mistake];
        // Used on one node, then on another, and published on both.
        let mut spoilt = exclusive(99, &[(0, 0), (1, 0)]);
        prop_assert!(spoil(&mut spoilt, mistake), "{mistake:?}");
        others.push(spoilt);
        let findings = play(others, &decisions);
        let is_expected =
            |finding: &Finding| finding.rule.name == rule && finding.about == "exclusive-99";
        prop_assert!(findings.iter().any(is_expected), "{mistake:?}: {findings:?}");
        let about_others = findings.iter().find(|finding| finding.about != "exclusive-99");
        prop_assert!(about_others.is_none(), "{about_others:?}");
    }
}
