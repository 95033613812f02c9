//! Mounting: who asks for volumes, which claims are taken, and the calls that follow.
//!
//! **Owns** the requests of allocs that are under way, and the order of the steps up.
//!
//! **Promises** that a grant is used only by the request that took it (rule 10), and that no path
//! is answered whose mount is known to be dead or hung.
//!
//! **Never** gives up a claim or a mount that another request uses.

mod alive;
mod claim_use;
mod claims_before;
mod enforce;
mod mount;
mod mount_all;
mod mounting;
mod republish;
mod requests;
mod whole_mount;

pub use mounting::Mounting;
pub use requests::MountHandlers;
