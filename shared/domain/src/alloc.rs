//! alloc.
