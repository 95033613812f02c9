//! Mounts, processes and sockets of the Linux host.
//!
//! **Owns**
//! - every reading of the kernel's mount tables ([`table`]) and of `/proc/PID` ([`process`]);
//! - the identity of a mount ([`identity`]), and which processes have it ([`holders`]);
//! - the check whether a path is trusted ([`trust`]), and the file of a socket ([`socket`]);
//! - the threads of operations that may hang ([`pool`]);
//! - the clock since boot ([`boot_time`]), and whether a cgroup has processes ([`cgroup`]).
//!
//! **Promises** that what cannot be read is an error, never an absence.
//!
//! **Never** changes anything on the host, except the file of a socket that it serves, and the
//! processes that its caller signals. It knows nothing of volumes, claims or the bus.

pub mod boot_time;
pub mod cgroup;
pub mod holders;
pub mod identity;
pub mod mount;
pub mod pool;
pub mod process;
mod readings;
pub mod socket;
pub mod table;
pub mod trust;

pub use boot_time::{BootTime, read_boot_id};
pub use holders::{Holder, HolderProcess, HostMounts, name_process};
pub use identity::MountId;
pub use mount::{DeviceNumber, Mount, MountContent};
pub use pool::{HostOperation, HostPool, HostPoolError, HungOperations};
pub use process::ProcessHandle;
pub use table::{MountPlace, MountTable, MountTableError};
