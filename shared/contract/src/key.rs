//! key.
