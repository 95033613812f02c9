//! Thin main of `berth-node-agent`.

fn main() {}
