//! A fast hash of 64 bits that stands for a world. A hash that also withstands attackers would take
//! most of a search's time.
//!
//! Among ten million worlds, the chance is about one in four hundred thousand that two of them have
//! the same hash, so that one is not searched.

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Folds each word into the state by a multiplication of 64 by 64 bits, and keeps both halves of
/// the product.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Folding(u64);

/// The hasher of maps whose keys are looked up often.
pub(crate) type Quick = BuildHasherDefault<Folding>;

/// An odd number without a pattern: the first hexadecimal digits of pi.
const FIRST: u64 = 0x2436_a885_a308_d313 | 1;
const SECOND: u64 = 0x1319_8a2e_0370_7345;

impl Folding {
    fn fold(&mut self, word: u64) {
        let mixed = self.0 ^ word ^ FIRST;
        let high = ((u128::from(mixed) * u128::from(SECOND)) >> 64) as u64;
        let low = mixed.wrapping_mul(SECOND);
        self.0 = (high ^ low).rotate_left(23).wrapping_add(FIRST);
    }
}

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        let mut end = *self;
        end.fold(SECOND);
        end.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.fold(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.fold(number);
    }
}

/// The world's fingerprint.
pub(crate) fn fingerprint(world: &impl Hash) -> u64 {
    let mut hasher = Folding::default();
    world.hash(&mut hasher);
    hasher.finish()
}
