//! A set of allocs in few bytes.

use berth_domain::AllocId;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::decode_struct;

/// A set of allocs that is too long for a message. Two sets are the same if their digests are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocsDigest {
    /// How many allocs.
    pub count: u64,
    /// The first 16 bytes, in hex, of the SHA-256 of the ids in the order of their bytes, each
    /// followed by a newline.
    pub hash: String,
}
decode_struct!(AllocsDigest { count, hash });

impl AllocsDigest {
    /// The digest of these allocs, which come in the order of their ids.
    pub fn from_allocs<'a>(allocs: impl IntoIterator<Item = &'a AllocId>) -> Self {
        let (mut count, mut hash) = (0, Sha256::new());
        for alloc in allocs {
            count += 1;
            hash.update(alloc.as_str().as_bytes());
            hash.update(b"\n");
        }
        let hash = u128::from_be_bytes(hash.finalize()[..16].try_into().unwrap_or_default());
        Self { count, hash: format!("{hash:032x}") }
    }
}
