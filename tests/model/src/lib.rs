//! Breadth-first search over the real volume step.
