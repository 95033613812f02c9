//! Thin main of `berth-csi-dev`.

fn main() {}
