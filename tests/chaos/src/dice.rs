//! Random draws that depend on a seed alone.
//!
//! Owns: the only source of chance in a plan. Promises: the same seed gives the same draws on every
//! machine and with every version of every library. Never: is used while a plan is carried out.

/// `SplitMix64`. It is written here so that no new version of a library changes what a seed
/// means.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice for `seed`. Dice of the same seed with another `purpose` draw other numbers.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut dice = Self(seed);
        for byte in purpose.bytes() {
            dice.0 = dice.bits() ^ u64::from(byte);
        }
        dice
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from 0 up to, and without, `many`, which must be at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end.max(1)
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True in `share` of a hundred draws.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of `of`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.below(choices.len() as u64);
        &choices[usize::try_from(index).unwrap_or(0)]
    }

    /// One of `of`, drawn by its weight. At least one weight must be above 0.
    pub fn weigh<T: Copy>(&mut self, weighted: &[(u64, T)]) -> T {
        let mut at = self.below(weighted.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in weighted {
            if at < *weight {
                return *one;
            }
            at -= weight;
        }
        weighted[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throws_are_even_and_can_be_repeated() {
        let throw = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            (0..6_000).map(|_| dice.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(throw(7, "a"), throw(7, "a"));
        assert_ne!(throw(7, "a"), throw(8, "a"));
        assert_ne!(throw(7, "a"), throw(7, "b"));
        for side in 0..6 {
            let count = throw(7, "a").iter().filter(|seen| **seen == side).count();
            assert!((850..1_150).contains(&count), "{side}: {count} of 6000");
        }
    }

    #[test]
    fn weights_are_kept_to() {
        let mut dice = Dice::new(1, "weights");
        let throws: Vec<char> = (0..4_000).map(|_| dice.weigh(&[(3, 'a'), (1, 'b')])).collect();
        let count = throws.iter().filter(|one| **one == 'a').count();
        assert!((2_850..3_150).contains(&count), "{count} of 4000");
    }
}
