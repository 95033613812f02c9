//! Thin main of `berth-gc`.

fn main() {}
