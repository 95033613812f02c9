//! `berth doctor`

use clap::Args;

/// `berth doctor`
#[derive(Debug, Args)]
#[command(after_long_help = DOCTOR)]
pub struct Doctor {
    /// Print only the checks with a finding
    #[arg(long, short)]
    pub quiet: bool,
}

const DOCTOR: &str = "EXIT CODES
    0  nothing is wrong
    1  warnings: it works, and something is to be looked at, or could not be checked
    2  faults: something does not work, or the bus cannot be reached

EXAMPLES
    berth doctor
    berth doctor --quiet --timeout 20s
    berth doctor --json | jq -r '.checks[].findings[] | .severity, .where, .what, .next[]'";
