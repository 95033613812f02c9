//! The operator's CLI, and the whole system on one machine.
