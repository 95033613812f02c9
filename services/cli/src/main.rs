//! Thin main of `berth`.

fn main() {}
