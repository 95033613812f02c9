//! The number of copies of the buckets and streams that this process makes.
//!
//! **Owns** the decision, as pure functions: the wanted number for a cluster, and the next number
//! to try after the server refused one.
//!
//! **Promises** an odd number, five at most: four copies survive the loss of one server, as three
//! do, and every further copy slows each write. A cluster never gets one copy unless it is
//! configured: a cluster that has not found its servers yet looks like a small one.

/// Most copies of a stream that nats-server keeps.
pub const COPIES_MAX: u8 = 5;

/// The number of copies of a bucket or stream that is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Copies {
    /// As many as the cluster's size allows ([`wanted_copies`]).
    #[default]
    ByCluster,
    /// A configured number.
    Exactly(u8),
}

impl From<u8> for Copies {
    fn from(number: u8) -> Self {
        Self::Exactly(number)
    }
}

impl Copies {
    /// The number to try first when a stream is made.
    pub(crate) fn first_try(self, is_clustered: bool) -> u8 {
        match self {
            Self::Exactly(number) => number,
            Self::ByCluster if is_clustered => COPIES_MAX,
            Self::ByCluster => 1,
        }
    }

    /// The number of copies that is wanted on a cluster of so many servers.
    pub(crate) fn wanted(self, servers: usize) -> u8 {
        match self {
            Self::Exactly(number) => number,
            Self::ByCluster => wanted_copies(servers),
        }
    }
}

/// The copies of each stream on a cluster of so many servers with JetStream.
pub fn wanted_copies(servers: usize) -> u8 {
    match servers {
        0..=2 => 1,
        3 | 4 => 3,
        _ => COPIES_MAX,
    }
}

/// Whether streams may have this number of copies.
pub fn is_copies(number: u8) -> bool {
    matches!(number, 1 | 3 | COPIES_MAX)
}

/// What the server's refusal says about the number of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeRefusal {
    /// The server belongs to no cluster.
    NoCluster,
    /// The cluster has too few servers, or they lack room, or the account may not have so many.
    TooMany,
}

/// The number to try after the server refused `tried`; `None` if only waiting helps.
pub(crate) fn next_try(tried: u8, refusal: SizeRefusal) -> Option<u8> {
    match refusal {
        SizeRefusal::NoCluster => (tried > 1).then_some(1),
        // Never one copy: two of three servers may still be starting.
        SizeRefusal::TooMany => (tried > 3).then_some(3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_cluster_gives_an_odd_number_of_copies() {
        let table = [(0, 1), (1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (6, 5), (7, 5), (99, 5)];
        for (servers, copies) in table {
            assert_eq!(wanted_copies(servers), copies, "{servers} servers");
            assert_eq!(Copies::ByCluster.wanted(servers), copies, "{servers} servers");
            assert_eq!(Copies::Exactly(3).wanted(servers), 3, "configured, {servers} servers");
            assert!(is_copies(copies));
        }
        let refused: Vec<u8> = (0..=9).filter(|number| !is_copies(*number)).collect();
        assert_eq!(refused, [0, 2, 4, 6, 7, 8, 9]);
    }

    #[test]
    fn the_first_number_is_the_largest_on_a_cluster_and_one_on_a_server() {
        for (copies, is_clustered, first) in [
            (Copies::ByCluster, false, 1),
            (Copies::ByCluster, true, 5),
            (Copies::Exactly(1), true, 1),
            (Copies::Exactly(3), false, 3),
            (Copies::from(5), true, 5),
        ] {
            assert_eq!(copies.first_try(is_clustered), first, "{copies:?} {is_clustered}");
        }
    }

    #[test]
    fn a_refusal_leads_to_a_smaller_number_and_never_to_one_on_a_cluster() {
        for (tried, refusal, next) in [
            (5, SizeRefusal::TooMany, Some(3)),
            (3, SizeRefusal::TooMany, None),
            (1, SizeRefusal::TooMany, None),
            (5, SizeRefusal::NoCluster, Some(1)),
            (3, SizeRefusal::NoCluster, Some(1)),
            (1, SizeRefusal::NoCluster, None),
        ] {
            assert_eq!(next_try(tried, refusal), next, "{tried} {refusal:?}");
        }
    }
}
