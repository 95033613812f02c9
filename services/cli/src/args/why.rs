//! `berth why`

use clap::Args;

/// `berth why`
#[derive(Debug, Args)]
#[command(after_long_help = WHY)]
pub struct Why {
    /// A volume, an alloc, a node, a plugin or a snapshot (VOLUME@SNAPSHOT); volume/ID, alloc/ID,
    /// node/ID, plugin/ID or snapshot/VOLUME@SNAPSHOT where several have the name
    #[arg(value_name = "NAME")]
    pub name: String,
}

const WHY: &str = "EXAMPLES
    berth why data
    berth why alloc/run-7f3a91c2
    berth why n1
    berth why plugin/ebs.csi.aws.com
    berth why data@monday
    berth why data --json | jq -r '.diagnoses[] | .cause, .next[]'";
