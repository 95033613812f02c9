//! What is stored is read back as it was.

use berth_domain::plugin::Node;
use berth_domain::volume::storage::Snapshot;
use berth_domain::volume::{Claim, Command, Refusal, State, Step, Volume, VolumeSpec, Write};
use proptest::prelude::*;

use crate::any_storage::snapshot;
use crate::anything::{claim, spec, time};
use crate::fixture::decide;
use crate::world::{alloc, begin};

/// Claims as they were written before places in line could be lost, plugins were full, and proofs
/// stood in for nodes: in each state, with all that they could say.
const OLD_CLAIMS: [&str; 3] = [
    r#"{"state":"waiting","node":"n1","mode":"write","since":"1970-01-01T00:00:01.000Z",
        "access":"single-node-writer","attachment":"file-system","controller":false}"#,
    r#"{"state":"publishing","node":"n1","tries":2,"next_try":"1970-01-12T13:46:41.000Z",
        "error":"controller.publish: no","mode":"write","since":"1970-01-12T13:46:39.000Z",
        "epoch":7,"access":"single-node-writer","attachment":"file-system","controller":true,
        "external_node":"ext-n1"}"#,
    r#"{"state":"unpublishing","node":"n1","mode":"write","since":"1970-01-12T13:46:39.000Z",
        "reason":"the alloc has ended","attempt":{"id":"t1","call":"agent.detach","worker":"w",
        "deadline":"1970-01-12T13:46:41.000Z"},"epoch":7,"access":"single-node-writer",
        "attachment":"file-system","controller":true,"publish_context":{"device":"x"}}"#,
];

fn held_by(record: &str) -> Volume {
    let claim: Claim = serde_json::from_str(record).unwrap();
    assert!(!claim.exhausted && claim.proof.is_none() && claim.place_until.is_none(), "{record}");
    let spec = serde_json::from_str(
        r#"{"plugin":"p",
            "capabilities":[{"access":"single-node-writer","attachment":"file-system"}]}"#,
    );
    Volume { spec: Some(spec.unwrap()), claims: [(alloc("a"), claim)].into(), ..Volume::default() }
}

/// A record of an older version keeps its meaning: a waiter keeps its place at any age, a claim in
/// `publishing` does not fill its node, and a claim with a call under way waits.
#[test]
fn an_older_record_keeps_its_meaning() {
    let [waiting, publishing, unpublishing] = OLD_CLAIMS.map(held_by);
    for (volume, state) in [
        (&waiting, State::Waiting),
        (&publishing, State::Publishing),
        (&unpublishing, State::Unpublishing),
    ] {
        let decided = decide(volume, &begin("a", true));
        assert!(matches!(decided, Err(Refusal::NotDue { .. })), "{state}: {decided:?}");
    }
    let freed = Step { write: Some(Write::DeleteClaim(alloc("a"))), call: None };
    assert_eq!(decide(&waiting, &begin("a", false)), Ok(freed));
    assert!(matches!(
        decide(&publishing, &Command::Deregister { force: false, reason: String::new() }),
        Err(Refusal::ClaimsLive { .. })
    ));
}

/// A node that was not declared gone is not gone.
#[test]
fn an_older_node_is_not_gone() {
    let old = r#"{"state":"down","since":"2026-01-31T12:00:00.000Z","boot_id":"b"}"#;
    assert_eq!(serde_json::from_str::<Node>(old).unwrap().gone, None);
}

proptest! {
    #[test]
    fn a_claim_survives_its_record(mut claim in claim(), deadline in time()) {
        // No time of ours is beyond the year 9999, in which writing them ends.
        claim.since = claim.since.min(deadline);
        claim.progress.next_try = claim.progress.next_try.map(|at| at.min(deadline));
        claim.place_until = claim.place_until.map(|at| at.min(deadline));
        if let Some(attempt) = &mut claim.progress.attempt {
            attempt.deadline = attempt.deadline.min(deadline);
        }
        let text = serde_json::to_string(&claim).unwrap();
        prop_assert!(text.starts_with("{\"state\":"), "{text}");
        prop_assert_eq!(serde_json::from_str::<Claim>(&text).unwrap(), claim);
    }

    #[test]
    fn a_spec_survives_its_record(spec in spec()) {
        let text = serde_json::to_string(&spec).unwrap();
        let read: VolumeSpec = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&read, &spec);
        prop_assert_eq!(read.differing_fields(&spec), [""; 0]);
    }

    #[test]
    fn a_snapshot_survives_its_record(snapshot in snapshot()) {
        let text = serde_json::to_string(&snapshot).unwrap();
        prop_assert!(text.starts_with("{\"state\":"), "{text}");
        prop_assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    }
}
