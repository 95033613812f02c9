//! What is stored: the buckets and their mirrors, one transition of one volume, and the records
//! beside it.
//!
//! **Owns** all writes. **Never** decides what a request may do: the other modules do. Requests
//! that need no decision are answered here: the level that an operator holds, and the secrets of a
//! due call.

pub mod class_guard;
pub mod events;
pub mod forgettable;
pub mod handle;
pub mod handle_repair;
pub mod level;
pub mod measure;
pub mod mount_lookup;
pub mod mounts;
pub mod node_leases;
pub mod open_requests;
pub mod owner_leases;
pub mod raise_level;
pub mod records;
pub mod refuse;
pub mod room_table;
pub mod rooms;
pub mod secrets;
pub mod state;
pub mod trail;
pub mod transact;
pub mod unrecorded;
pub mod vault;
