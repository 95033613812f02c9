//! Thin main of `berth-plugin-registry`.

fn main() {}
