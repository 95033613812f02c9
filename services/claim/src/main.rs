//! Thin main of `berth-claim`.

fn main() {}
