//! subject.
