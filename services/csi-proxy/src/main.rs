//! Thin main of `berth-csi-proxy`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    berth_csi_proxy::cli::main()
}
