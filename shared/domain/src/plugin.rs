//! plugin.
