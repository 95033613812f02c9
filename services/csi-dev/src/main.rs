//! Thin main of `berth-csi-dev`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_csi_dev::cli::main()
}
