//! Docker's volumes on a real engine, and the plugin's protocol without one. They need root, for
//! the mounts.

mod compose;
mod containers;
mod copy_up;
mod counting;
mod held;
mod listing;
mod protocol;
mod restarts;
