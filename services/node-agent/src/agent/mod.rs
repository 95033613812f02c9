//! The agent as a whole: started, reported, compared with the claims, and ended.
//!
//! **Owns** the order of the stages, and what runs beside the requests.
//!
//! **Promises** that no stage begins before those that it needs.
//!
//! **Never** calls a plugin: the shelves below do.
//!
//! | | |
//! | --- | --- |
//! | [`stages`] | starts all parts, and ends them |
//! | [`local_state`], [`identity`] | the state directory, and whose it is |
//! | [`report`] | what the registry is told of the node |
//! | [`compare`] | whether what is mounted is still claimed |
//! | [`comeback`] | undoes everything once the node counted as gone |

mod comeback;
mod compare;
mod identity;
mod local_state;
pub mod report;
mod stages;

pub use compare::{INTERVAL as COMPARISON_INTERVAL, LIST_TIMEOUT as CLAIMS_TIMEOUT};

pub use stages::run;
