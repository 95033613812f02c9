//! `berth search`

use clap::Args;

use super::list;
use crate::search::SearchKind;

/// `berth search`
#[derive(Debug, Args)]
#[command(after_long_help = SEARCH)]
pub struct Search {
    /// How the ids begin; of snapshots the part after VOLUME@, or VOLUME@PREFIX
    #[arg(value_name = "PREFIX")]
    pub prefix: String,
    /// Only these kinds, with commas between them [default: all]
    #[arg(long = "in", value_name = "KINDS", value_delimiter = ',')]
    #[arg(value_parser = list::search_kind())]
    pub kinds: Vec<SearchKind>,
}

const SEARCH: &str = "EXAMPLES
    berth search web
    berth search web --in volumes,allocs
    berth search data@mon --in snapshots
    berth search web --namespace '*' --json | jq -r '.matches[].id'";
