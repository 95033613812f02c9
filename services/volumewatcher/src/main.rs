//! Thin main of `berth-volumewatcher`.

fn main() {}
