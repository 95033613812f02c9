//! Drives every release to its end.
