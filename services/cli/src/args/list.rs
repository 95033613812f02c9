//! Options of every list, and the words that an option accepts.

use berth_contract::message::alloc::WaitUntil;
use berth_contract::message::query;
use berth_contract::message::registry::PluginType;
use berth_domain::access::{AccessMode, AttachmentMode};
use berth_domain::alloc::{AllocState, TaskDriverMounts};
use berth_domain::class::TopologyPolicy;
use berth_domain::plugin::NodeState;
use berth_domain::proof::ProofKind;
use berth_domain::volume::State;
use berth_domain::volume::storage::Reclaim;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};

use crate::search::SearchKind;

/// Other names of the command `status`.
pub(super) const LISTS: [&str; 2] = ["list", "ls"];

/// The page of a list.
#[derive(Debug, Clone, Default, Args)]
pub struct PageArgs {
    /// At most this many entries; a list that does not fit a message comes in several pages
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
    /// Only entries after this one, as the previous page says
    #[arg(long, value_name = "TEXT")]
    pub after: Option<String>,
}

/// The form of a list.
#[derive(Debug, Clone, Default, Args)]
pub struct ListView {
    /// Sort the table by this column, named by its heading [default: the first, the name]
    #[arg(long, value_name = "COLUMN", conflicts_with = "json")]
    pub sort: Option<String>,
    /// Show the list again after each change, until Ctrl-C; with --json one line for each
    #[arg(long)]
    pub watch: bool,
}

impl From<&PageArgs> for query::Page {
    fn from(PageArgs { limit, after }: &PageArgs) -> Self {
        Self { limit: *limit, after: after.clone() }
    }
}

/// Accepts one of these values, by its name.
fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [T],
    name: fn(T) -> &'static str,
) -> ValueParser {
    let names = values.iter().map(|value| name(*value)).collect::<Vec<_>>();
    PossibleValuesParser::new(names)
        .try_map(move |text| {
            values.iter().copied().find(|value| name(*value) == text).ok_or("there is no such one")
        })
        .into()
}

/// The states of a claim.
pub fn claim_state() -> ValueParser {
    const ALL: &[State] = &[
        State::Waiting,
        State::Publishing,
        State::Taken,
        State::Unpublishing,
        State::NodeDetached,
    ];
    one_of(ALL, State::as_str)
}

/// The states of an alloc.
pub fn alloc_state() -> ValueParser {
    const ALL: &[AllocState] =
        &[AllocState::Live, AllocState::Complete, AllocState::Failed, AllocState::Stopped];
    one_of(ALL, AllocState::as_str)
}

/// The states of an alloc that a command can wait for.
pub fn wait_until() -> ValueParser {
    one_of(&[WaitUntil::Mounted, WaitUntil::Ended, WaitUntil::Free], |until| match until {
        WaitUntil::Mounted => "mounted",
        WaitUntil::Ended => "ended",
        WaitUntil::Free => "free",
    })
}

/// A label: `KEY=VALUE`.
pub fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("must be KEY=VALUE, such as job=web".to_owned()),
    }
}

/// The states of a node.
pub fn node_state() -> ValueParser {
    one_of(&[NodeState::Ready, NodeState::Down], |state| match state {
        NodeState::Ready => "ready",
        NodeState::Down => "down",
    })
}

/// The kinds that a search finds.
pub fn search_kind() -> ValueParser {
    one_of(&SearchKind::ALL, SearchKind::as_str)
}

/// The types of plugins.
pub fn plugin_type() -> ValueParser {
    one_of(PluginType::ALL, PluginType::as_str)
}

/// The kinds of proof that a node is gone.
pub fn proof_kind() -> ValueParser {
    const ALL: &[ProofKind] =
        &[ProofKind::PoweredOff, ProofKind::StorageFenced, ProofKind::Confirmed];
    one_of(ALL, ProofKind::as_str)
}

/// What a runner can mount.
pub fn driver_mounts() -> ValueParser {
    const ALL: &[TaskDriverMounts] =
        &[TaskDriverMounts::None, TaskDriverMounts::Host, TaskDriverMounts::All];
    one_of(ALL, |mounts| match mounts {
        TaskDriverMounts::None => "none",
        TaskDriverMounts::Host => "host",
        TaskDriverMounts::All => "all",
    })
}

/// The attachment modes.
pub fn attachment_modes() -> ValueParser {
    one_of(&[AttachmentMode::FileSystem, AttachmentMode::BlockDevice], AttachmentMode::as_str)
}

/// The access modes.
pub fn access_modes() -> ValueParser {
    one_of(&AccessMode::ALL, AccessMode::as_str)
}

/// When the topology of a volume is decided.
pub fn topology_policies() -> ValueParser {
    one_of(&[TopologyPolicy::Immediate, TopologyPolicy::FirstUse], |policy| match policy {
        TopologyPolicy::Immediate => "immediate",
        TopologyPolicy::FirstUse => "first-use",
    })
}

/// What a deletion needs, and what becomes of the volume's data.
pub fn reclaims() -> ValueParser {
    one_of(&[Reclaim::Delete, Reclaim::Retain], |reclaim| match reclaim {
        Reclaim::Delete => "delete",
        Reclaim::Retain => "retain",
    })
}
