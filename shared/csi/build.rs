//! Compiles `proto/csi/v1/csi.proto` in Rust, so that no protoc is needed on the machine.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let include = Path::new("../../proto");
    let file = include.join("csi/v1/csi.proto");
    println!("cargo::rerun-if-changed={}", file.display());

    let descriptors = protox::compile([&file], [include])?;
    tonic_prost_build::configure()
        // Ordered maps: equal messages have equal bytes, and print the same way each time.
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
