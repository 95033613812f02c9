//! How often the agents of a fleet renew their leases.
//!
//! Each renewal is a write that is synced to the disk, and an agent renews its lease three times
//! within the lease's TTL. A thousand agents with a TTL of 10 s would make 300 such writes a
//! second. So a large fleet has longer TTLs, and its agents send unchanged reports less often.

/// Renewals within one TTL, at most.
const RENEWALS_PER_TTL: u64 = 3;
/// TTLs are multiples of this, in seconds, so that a few nodes more or less do not change them.
const TTL_STEP_S: u64 = 5;
/// A TTL up to this, in seconds, is not imposed: the agents' own configuration applies.
const UNBOUNDED_TTL_S: u64 = 10;
/// Longest TTL, in seconds, however large the fleet is.
const TTL_MAX_S: u64 = 60;

/// The load of lease renewals that the bus may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Of all agents together.
    pub renewals_per_second: u32,
}

impl Pace {
    /// The shortest TTL, in seconds, that agents of a fleet of this size may use; 0 if any TTL is
    /// allowed.
    pub fn lease_ttl_s(self, nodes: usize) -> u32 {
        let renewals = u64::try_from(nodes).unwrap_or(u64::MAX).saturating_mul(RENEWALS_PER_TTL);
        let needed_s = renewals.div_ceil(u64::from(self.renewals_per_second.max(1)));
        if needed_s <= UNBOUNDED_TTL_S {
            return 0;
        }
        let stepped_s = needed_s.min(TTL_MAX_S).next_multiple_of(TTL_STEP_S);
        u32::try_from(stepped_s).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_live_longer_where_many_nodes_have_one() {
        let pace = Pace { renewals_per_second: 100 };
        let fleets = [0, 1, 333, 334, 500, 501, 1_000, 1_900, 2_000, usize::MAX];
        assert_eq!(
            fleets.map(|nodes| pace.lease_ttl_s(nodes)),
            [0, 0, 0, 15, 15, 20, 30, 60, 60, 60]
        );
        assert_eq!(Pace { renewals_per_second: 1_000 }.lease_ttl_s(3_000), 0);
    }
}
