//! What is stored is read back as it was.

use berth_domain::volume::{Claim, VolumeSpec};
use proptest::prelude::*;

use crate::anything::{claim, spec, time};

proptest! {
    #[test]
    fn a_claim_survives_its_record(mut claim in claim(), deadline in time()) {
        // No time of ours is beyond the year 9999, in which writing them ends.
        claim.since = claim.since.min(deadline);
        claim.next_try = claim.next_try.map(|at| at.min(deadline));
        if let Some(attempt) = &mut claim.attempt {
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
        prop_assert!(read.same_as(&spec));
    }
}
