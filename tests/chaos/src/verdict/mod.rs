//! Compares what the callers were told with the drivers' logs.
//!
//! Owns: the comparison. Promises: uses only the moments of the ledger and the lines of the logs,
//! and knows nothing of how claims are decided. Never: repeats what the drivers' own judge finds.

mod storage;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::ledger::{Hold, Micros, Violation};
use crate::plan::{Kind, SCRATCH, kind_of};

pub use storage::{SnapshotOnRecord, Storage, VolumeOnRecord, compare};

/// One node call at a target path, from a driver's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// `true` for `NodePublishVolume`, `false` for `NodeUnpublishVolume`.
    pub publishes: bool,
    /// The plugin's id of the volume.
    pub volume: String,
    /// The moment at which it arrived.
    pub begin: Micros,
    /// The moment at which its work was done; `None` if it never ended.
    pub end: Option<Micros>,
    /// Whether it succeeded.
    pub done: bool,
}

/// The node calls of all logs, by target path.
pub fn calls(logs: &[Value]) -> BTreeMap<String, Vec<Call>> {
    let mut calls: BTreeMap<(String, u64), (String, Call)> = BTreeMap::new();
    for line in logs {
        let publishes = match line["rpc"].as_str() {
            Some("NodePublishVolume") => true,
            Some("NodeUnpublishVolume") => false,
            _ => continue,
        };
        let (Some(target), Some(begin)) =
            (line["args"]["target_path"].as_str(), line["begin_us"].as_u64())
        else {
            continue;
        };
        let id = (line["instance"].to_string(), line["seq"].as_u64().unwrap_or_default());
        let end = line["end_us"].as_u64();
        let done = line["effect"] == "done" && end.is_some();
        let volume = volume_of(line);
        let call = Call { publishes, volume, begin, end, done };
        // The line that ends a call comes after the line that begins it, and contains all of it.
        calls.insert(id, (target.to_owned(), call));
    }
    let mut by_target: BTreeMap<String, Vec<Call>> = BTreeMap::new();
    for (target, call) in calls.into_values() {
        by_target.entry(target).or_default().push(call);
    }
    by_target
}

/// The moments at which `DeleteVolume` was called for each volume, from all logs.
pub fn deletions(logs: &[Value]) -> BTreeMap<String, Vec<Micros>> {
    let mut deletions: BTreeMap<String, Vec<Micros>> = BTreeMap::new();
    for line in logs.iter().filter(|line| line["rpc"] == "DeleteVolume") {
        if let Some(begin) = line["begin_us"].as_u64() {
            deletions.entry(volume_of(line)).or_default().push(begin);
        }
    }
    deletions
}

fn volume_of(line: &Value) -> String {
    line["args"]["volume_id"].as_str().unwrap_or_default().to_owned()
}

/// Every way in which the mounts were not as they were acknowledged.
pub fn judge(
    holds: &[Hold],
    calls: &BTreeMap<String, Vec<Call>>,
    deletions: &BTreeMap<String, Vec<Micros>>,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for hold in holds {
        let own = calls.get(&hold.path).map_or(&[][..], Vec::as_slice);
        violations.extend(kept(hold, own));
        violations.extend(not_deleted(hold, own, deletions));
    }
    for volume in 0..=SCRATCH {
        let own: Vec<&Hold> = holds.iter().filter(|hold| hold.volume == volume).collect();
        violations.extend(shared(kind_of(volume), &own));
    }
    violations
}

/// Checks that the storage deletes no volume between its acknowledged mount and its release.
fn not_deleted(
    hold: &Hold,
    calls: &[Call],
    deletions: &BTreeMap<String, Vec<Micros>>,
) -> Option<Violation> {
    let volume = &calls.iter().find(|call| call.publishes)?.volume;
    let meanwhile = hold.acknowledged..hold.let_go.unwrap_or(Micros::MAX);
    let at = deletions.get(volume)?.iter().find(|at| meanwhile.contains(at))?;
    let what = format!("{volume} was to be deleted at {at}, and is held: {hold:?}");
    Some(Violation { kind: "deleted while claimed", what })
}

/// Checks that an acknowledged mount was made, stays until it is released, and does not return.
fn kept(hold: &Hold, calls: &[Call]) -> Vec<Violation> {
    let Hold { alloc, path, acknowledged, .. } = hold;
    let volume = kind_of(hold.volume).id;
    let violated = |kind, what: &str, call: Option<&Call>| {
        let call = call.map(|call| format!(": {call:?}")).unwrap_or_default();
        let what = format!("{volume} for {alloc} at {path}, {what}{call}; {hold:?}");
        Violation { kind, what }
    };
    let mut violations = Vec::new();
    let made = |call: &&Call| {
        call.publishes && call.done && call.end.is_some_and(|end| end <= *acknowledged)
    };
    if !calls.iter().any(|call| made(&call)) {
        let what = "acknowledged without a publish that succeeded before";
        violations.push(violated("claim acknowledged that is not", what, None));
    }
    let until = hold.let_go.unwrap_or(Micros::MAX);
    let taken = |call: &&Call| !call.publishes && (*acknowledged..until).contains(&call.begin);
    if let Some(call) = calls.iter().find(taken) {
        let what = "unpublished before anybody let it go";
        violations.push(violated("acknowledged claim lost", what, Some(call)));
    }
    let back = |call: &&Call| call.publishes && hold.gone.is_some_and(|gone| call.begin > gone);
    if let Some(call) = calls.iter().find(back) {
        let what = "published again after its claim was gone";
        violations.push(violated("acknowledged release undone", what, Some(call)));
    }
    violations
}

/// Checks that no more claims hold the volume at once than its access mode allows. A claim
/// surely holds it from its acknowledged grant until its release.
fn shared(kind: &Kind, holds: &[&Hold]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for hold in holds {
        // The number of holders can only reach its maximum when one of them gets the volume.
        let now = hold.acknowledged;
        let surely = |other: &&&Hold| {
            other.acknowledged <= now && other.let_go.is_none_or(|let_go| let_go > now)
        };
        let together: Vec<&Hold> = holds.iter().filter(surely).copied().collect();
        let mut nodes: Vec<usize> = together.iter().map(|hold| hold.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let writers = together.iter().filter(|hold| hold.writes).count();
        let too_many = [
            ("two writers", writers > kind.writers),
            ("two nodes", nodes.len() > kind.nodes),
            ("two claims", together.len() > kind.claims),
        ];
        if let Some((name, _)) = too_many.into_iter().find(|(_, is_so)| *is_so) {
            let what = format!("{} ({}): {together:?}", kind.id, kind.access);
            violations.push(Violation { kind: name, what });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hold(alloc: &str, volume: &str, node: usize, from: Micros, to: Option<Micros>) -> Hold {
        Hold {
            alloc: alloc.to_owned(),
            volume: (0..SCRATCH).find(|number| kind_of(*number).id == volume).unwrap(),
            node,
            epoch: from,
            path: format!("/{alloc}"),
            writes: true,
            acknowledged: from,
            let_go: to,
            gone: None,
        }
    }

    fn call(publishes: bool, begin: Micros) -> Call {
        let volume = "vol".to_owned();
        Call { publishes, volume, begin, end: Some(begin + 1), done: true }
    }

    fn kinds(holds: &[Hold], of: &[(&str, Vec<Call>)]) -> Vec<&'static str> {
        let calls = of.iter().map(|(path, calls)| ((*path).to_owned(), calls.clone())).collect();
        judge(holds, &calls, &BTreeMap::new()).into_iter().map(|violation| violation.kind).collect()
    }

    #[test]
    fn one_after_the_other_is_right() {
        let holds = [hold("a", "writer", 0, 10, Some(20)), hold("b", "writer", 1, 30, Some(40))];
        let a = vec![call(true, 5), call(false, 21)];
        let b = vec![call(true, 25), call(false, 45)];
        assert_eq!(kinds(&holds, &[("/a", a), ("/b", b)]), [""; 0]);
    }

    #[test]
    fn a_second_writer_node_or_claim_is_found() {
        let calls = || [("/a", vec![call(true, 5)]), ("/b", vec![call(true, 6)])];
        let mut holds = [hold("a", "writer", 0, 10, None), hold("b", "writer", 1, 11, Some(40))];
        assert_eq!(kinds(&holds, &calls()), ["two writers"]);
        holds[0].writes = false;
        assert_eq!(kinds(&holds, &calls()), ["two nodes"]);
        holds[0].node = 1;
        assert_eq!(kinds(&holds, &calls()), ["two claims"]);
        let many = [hold("a", "many", 0, 10, None), hold("b", "many", 1, 11, None)];
        assert_eq!(kinds(&many, &calls()), [""; 0]);
        // It may still be mounted after its release: only the system can know.
        holds[0].let_go = Some(11);
        assert_eq!(kinds(&holds, &calls()), [""; 0]);
    }

    #[test]
    fn a_mount_that_was_never_made_or_is_taken_away_is_found() {
        let holds = [hold("a", "writer", 0, 10, Some(20))];
        let unmade = "claim acknowledged that is not";
        assert_eq!(kinds(&holds, &[]), [unmade]);
        assert_eq!(kinds(&holds, &[("/a", vec![call(true, 10)])]), [unmade]);
        let failed = Call { done: false, ..call(true, 5) };
        assert_eq!(kinds(&holds, &[("/a", vec![failed])]), [unmade]);
        let taken = vec![call(true, 5), call(false, 19)];
        assert_eq!(kinds(&holds, &[("/a", taken)]), ["acknowledged claim lost"]);
    }

    #[test]
    fn a_mount_that_comes_back_is_found() {
        let mut holds = [hold("a", "writer", 0, 10, Some(20))];
        let calls = [("/a", vec![call(true, 5), call(false, 21), call(true, 31)])];
        assert_eq!(kinds(&holds, &calls), [""; 0]);
        holds[0].gone = Some(30);
        assert_eq!(kinds(&holds, &calls), ["acknowledged release undone"]);
    }

    #[test]
    fn the_lines_of_a_call_are_one_call() {
        let line = |entry: &str, seq: u64| {
            json!({"entry": entry, "instance": "i", "seq": seq, "begin_us": 5,
                "rpc": "NodePublishVolume", "args": {"target_path": "/a", "volume_id": "vol"}})
        };
        let mut end = line("end", 1);
        end["end_us"] = json!(9);
        end["effect"] = json!("done");
        let calls = calls(&[line("begin", 1), end, line("begin", 2), json!({"entry": "start"})]);
        let done = Call { end: Some(9), ..call(true, 5) };
        let open = Call { end: None, done: false, ..done.clone() };
        assert_eq!(calls, BTreeMap::from([("/a".to_owned(), vec![done, open])]));
    }

    #[test]
    fn a_deletion_while_it_is_held_is_found() {
        let holds = [hold("a", "created-writer", 0, 10, Some(20))];
        let calls = BTreeMap::from([("/a".to_owned(), vec![call(true, 5), call(false, 21)])]);
        let kinds = |begin: Micros, volume: &str| {
            let line =
                json!({"rpc": "DeleteVolume", "begin_us": begin, "args": {"volume_id": volume}});
            let kinds = judge(&holds, &calls, &deletions(&[line]));
            kinds.into_iter().map(|violation| violation.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(15, "vol"), ["deleted while claimed"]);
        assert_eq!(kinds(15, "vol-other"), [""; 0]);
        assert_eq!(kinds(20, "vol"), [""; 0]);
    }
}
