//! How often the agents of a fleet say that they live.
//!
//! Each renewal of a lease is a write that is synced to the disk, and three of them fall into the
//! time that a lease lives: a thousand agents with leases of ten seconds would make three hundred
//! a second, all day, and none says anything new. So the leases of a large fleet live longer, and
//! its reports that say nothing new come less often.

/// Renewals while a lease lives, at most.
const RENEWALS: u64 = 3;
/// In steps of so many seconds: that a few nodes come or go changes nothing.
const STEP_S: u64 = 5;
/// A lease that lives so long, in seconds, is no matter of the fleet's size.
const SHORT_S: u64 = 10;
/// How long a lease lives at most, however large the fleet is.
const LONGEST_S: u64 = 60;

/// What the bus is to bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Renewals of leases in a second, of all agents together.
    pub renewals_per_second: u32,
}

impl Pace {
    /// How many seconds a lease is to live at least where so many nodes have one; 0 when there are
    /// so few that it may be as short as anybody likes.
    pub fn of(self, nodes: usize) -> u32 {
        let renewals = u64::try_from(nodes).unwrap_or(u64::MAX).saturating_mul(RENEWALS);
        let needed_s = renewals.div_ceil(u64::from(self.renewals_per_second.max(1)));
        if needed_s <= SHORT_S {
            return 0;
        }
        let stepped_s = needed_s.min(LONGEST_S).next_multiple_of(STEP_S);
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
        assert_eq!(fleets.map(|nodes| pace.of(nodes)), [0, 0, 0, 15, 15, 20, 30, 60, 60, 60]);
        assert_eq!(Pace { renewals_per_second: 1_000 }.of(3_000), 0);
    }
}
