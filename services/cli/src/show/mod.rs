//! Replies as people read them.
//!
//! **Owns** what is shown of each reply, and in which words. **Promises** that nothing here asks
//! the clock: the time is passed in, so that a table is the same in a test.

mod alloc;
mod claim;
mod events;
mod registry;
mod time;
pub mod trace;
mod volume;

pub use alloc::{alloc, allocs};
pub use claim::claims;
pub use events::{Told, event};
pub use registry::{node, nodes, plugin, plugins};
pub use time::Zone;
pub use volume::{volume, volumes};

/// `key=value` pairs, sorted as they are; nothing for none.
fn listed<'a>(map: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let pairs: Vec<String> = map.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(", ")
}
