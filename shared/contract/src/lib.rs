//! The wire, defined once: subjects, buckets, keys, records, messages, headers and error codes.
//!
//! **Owns** every name that crosses a process boundary. Nothing else in this repository writes a
//! subject or a key, and nothing else decides what a record looks like in JSON.
//!
//! **Promises** that each id survives the way into a subject or key and back ([`token`]), that a
//! record of an older schema is upgraded on read and one of a newer schema is refused for writing
//! ([`record`]), that what each identity may send and receive follows from the verbs
//! ([`permissions`]), and that input is answered with all its faults at once ([`decode`]).
//!
//! **Never** talks to a server: that is `bus`.

pub mod actor;
pub mod advice;
pub mod bucket;
pub mod code;
pub mod creds;
pub mod decode;
pub mod docker;
pub mod document;
pub mod event;
pub mod header;
pub mod hint;
pub mod key;
pub mod lease;
pub mod level;
pub mod message;
pub mod permissions;
pub mod problem;
pub mod record;
pub mod role;
pub mod service;
pub mod shorten;
pub mod stream;
pub mod subject;
pub mod text;
pub mod token;
pub mod trace;
pub mod trail;
pub mod verb;
