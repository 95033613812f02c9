//! Who may share a volume with whom.
//!
//! **Owns** the access modes of CSI (1.13, `VolumeCapability.AccessMode`) and the one table that
//! says how many nodes, claims and writers each allows (A2, B3).
//!
//! **Promises** safety rule 1: [`admit`] never lets a second writer onto a single-writer volume,
//! nor a second node onto a single-node one, whatever state the first claim's release is in.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a volume may be shared: CSI's access modes, by the names Nomad gave them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// One workload on one node reads.
    SingleNodeReaderOnly,
    /// One workload on one node reads and writes.
    SingleNodeWriter,
    /// Many nodes read.
    MultiNodeReaderOnly,
    /// Many nodes read, one workload writes.
    MultiNodeSingleWriter,
    /// Many nodes read and write.
    MultiNodeMultiWriter,
    /// One workload on one node reads and writes, and the plugin enforces it too.
    SingleNodeSingleWriter,
    /// Many workloads on one node read and write.
    SingleNodeMultiWriter,
}

/// What a volume is to its workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachmentMode {
    /// A directory.
    FileSystem,
    /// A block device.
    BlockDevice,
}

/// What a claim may do with the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// One way in which a volume may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Capability {
    /// How it may be shared.
    pub access: AccessMode,
    /// File system or block device.
    pub attachment: AttachmentMode,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.access, self.attachment)
    }
}

/// Which of a volume's capabilities will do. A part that is not named is left to the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapabilityFilter {
    /// Only those that may be shared so.
    pub access: Option<AccessMode>,
    /// Only file systems, or only block devices.
    pub attachment: Option<AttachmentMode>,
}

impl CapabilityFilter {
    /// The first capability that will do: the order in which a volume lists them is its preference.
    pub fn first_of(self, offered: &[Capability]) -> Option<Capability> {
        offered.iter().copied().find(|one| self.covers(*one))
    }

    /// Whether the capability will do.
    pub fn covers(self, one: Capability) -> bool {
        self.access.is_none_or(|access| access == one.access)
            && self.attachment.is_none_or(|attachment| attachment == one.attachment)
    }
}

impl From<Capability> for CapabilityFilter {
    fn from(Capability { access, attachment }: Capability) -> Self {
        Self { access: Some(access), attachment: Some(attachment) }
    }
}

impl fmt::Display for CapabilityFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.access, self.attachment) {
            (Some(access), Some(attachment)) => Capability { access, attachment }.fmt(f),
            (Some(access), None) => access.fmt(f),
            (None, Some(attachment)) => attachment.fmt(f),
            (None, None) => f.write_str("any capability"),
        }
    }
}

/// How many of something an access mode allows at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// None.
    None,
    /// One.
    One,
    /// Any number.
    Many,
}

/// An access mode's row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    /// Nodes that may have the volume attached at once.
    pub nodes: Bound,
    /// Claims at once.
    pub claims: Bound,
    /// Write claims at once.
    pub writers: Bound,
}

/// Why a claim may not join the claims there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// The access mode allows no writer at all.
    NoWriters,
    /// The access mode allows one claim, and there is one.
    OneClaim,
    /// The access mode allows one node, and another node has it.
    OneNode,
    /// The access mode allows one writer, and there is one.
    OneWriter,
    /// The access mode has each node attached either to read or to write, and this one otherwise.
    OneModePerNode,
}

impl AccessMode {
    /// Whether any number of claims may write.
    pub fn is_for_any_writers(self) -> bool {
        self.sharing().writers == Bound::Many
    }

    /// The table. A plugin must refuse a second publish of a single-node volume on its node unless
    /// the mode is single-node-multi-writer (CSI 1.13, `NodePublishVolume`), hence one claim there.
    pub const fn sharing(self) -> Sharing {
        use Bound::{Many, None, One};
        let (nodes, claims, writers) = match self {
            Self::SingleNodeReaderOnly => (One, One, None),
            Self::SingleNodeWriter | Self::SingleNodeSingleWriter => (One, One, One),
            Self::SingleNodeMultiWriter => (One, Many, Many),
            Self::MultiNodeReaderOnly => (Many, Many, None),
            Self::MultiNodeSingleWriter => (Many, Many, One),
            Self::MultiNodeMultiWriter => (Many, Many, Many),
        };
        Sharing { nodes, claims, writers }
    }

    /// Whether the volume may be attached to one node at a time only (safety rule 2).
    pub fn is_exclusive(self) -> bool {
        self.sharing().nodes == Bound::One
    }

    /// Whether it bounds neither nodes nor writers, so that an unknown mount harms no other.
    pub fn is_shared(self) -> bool {
        let Sharing { nodes, writers, .. } = self.sharing();
        nodes == Bound::Many && writers != Bound::One
    }

    /// Whether a node's attachment is as its claims are, to read or to write: of many nodes one may
    /// write, and the rest have to be attached read-only (CSI 1.13, `MULTI_NODE_SINGLE_WRITER`).
    /// What is attached one way cannot be used the other way before it was detached, so readers and
    /// the writer share no node.
    pub fn attaches_by_mode(self) -> bool {
        let Sharing { nodes, writers, .. } = self.sharing();
        nodes == Bound::Many && writers == Bound::One
    }

    /// Whether a node is attached only to read for a claim of this mode.
    pub fn attaches_read_only(self, mode: Mode) -> bool {
        self.sharing().writers == Bound::None || self.attaches_by_mode() && mode == Mode::Read
    }

    /// Every access mode.
    pub const ALL: [Self; 7] = [
        Self::SingleNodeReaderOnly,
        Self::SingleNodeWriter,
        Self::MultiNodeReaderOnly,
        Self::MultiNodeSingleWriter,
        Self::MultiNodeMultiWriter,
        Self::SingleNodeSingleWriter,
        Self::SingleNodeMultiWriter,
    ];
}

/// Whether a claim may join others: `others` are the node and mode of each claim that holds the
/// volume or is ahead in line for it, in whatever state.
pub fn admit<N: PartialEq>(
    access: AccessMode,
    mode: Mode,
    node: &N,
    others: impl IntoIterator<Item = (N, Mode)>,
) -> Result<(), Conflict> {
    let sharing = access.sharing();
    if mode == Mode::Write && sharing.writers == Bound::None {
        return Err(Conflict::NoWriters);
    }
    for (their_node, their_mode) in others {
        if sharing.claims == Bound::One {
            return Err(Conflict::OneClaim);
        }
        if sharing.nodes == Bound::One && their_node != *node {
            return Err(Conflict::OneNode);
        }
        let both_write = mode == Mode::Write && their_mode == Mode::Write;
        if sharing.writers == Bound::One && both_write {
            return Err(Conflict::OneWriter);
        }
        if access.attaches_by_mode() && their_node == *node && their_mode != mode {
            return Err(Conflict::OneModePerNode);
        }
    }
    Ok(())
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoWriters => "its access mode allows no writer",
            Self::OneClaim => "its access mode allows one claim at a time",
            Self::OneNode => "its access mode allows one node at a time",
            Self::OneWriter => "its access mode allows one writer at a time",
            Self::OneModePerNode => {
                "with its access mode a node has it to read or to write, not both"
            }
        })
    }
}

macro_rules! show_as_serialized {
    ($($name:ident { $($variant:ident => $text:literal),* $(,)? })*) => {$(
        impl $name {
            /// The name in specs, records and messages.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    )*};
}

show_as_serialized! {
    AccessMode {
        SingleNodeReaderOnly => "single-node-reader-only",
        SingleNodeWriter => "single-node-writer",
        MultiNodeReaderOnly => "multi-node-reader-only",
        MultiNodeSingleWriter => "multi-node-single-writer",
        MultiNodeMultiWriter => "multi-node-multi-writer",
        SingleNodeSingleWriter => "single-node-single-writer",
        SingleNodeMultiWriter => "single-node-multi-writer",
    }
    AttachmentMode { FileSystem => "file-system", BlockDevice => "block-device" }
    Mode { Read => "read", Write => "write" }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The whole table, access mode by newcomer and holder, as an operator would read it.
    #[test]
    fn the_table() {
        let mut table = String::new();
        for access in AccessMode::ALL {
            for mode in [Mode::Read, Mode::Write] {
                let row: Vec<String> = [
                    None,
                    Some(("n1", Mode::Read)),
                    Some(("n1", Mode::Write)),
                    Some(("n2", Mode::Read)),
                    Some(("n2", Mode::Write)),
                ]
                .into_iter()
                .map(|holder| match admit(access, mode, &"n1", holder) {
                    Ok(()) => "yes".to_owned(),
                    Err(conflict) => format!("{conflict:?}"),
                })
                .collect();
                writeln!(table, "{access:<26}{mode:<7}{}", row.join(" ")).unwrap();
            }
        }
        // Columns: alone; beside a reader, a writer on the same node; a reader, a writer elsewhere.
        let expected = "\
single-node-reader-only   read   yes OneClaim OneClaim OneClaim OneClaim
single-node-reader-only   write  NoWriters NoWriters NoWriters NoWriters NoWriters
single-node-writer        read   yes OneClaim OneClaim OneClaim OneClaim
single-node-writer        write  yes OneClaim OneClaim OneClaim OneClaim
multi-node-reader-only    read   yes yes yes yes yes
multi-node-reader-only    write  NoWriters NoWriters NoWriters NoWriters NoWriters
multi-node-single-writer  read   yes yes OneModePerNode yes yes
multi-node-single-writer  write  yes OneModePerNode OneWriter yes OneWriter
multi-node-multi-writer   read   yes yes yes yes yes
multi-node-multi-writer   write  yes yes yes yes yes
single-node-single-writer read   yes OneClaim OneClaim OneClaim OneClaim
single-node-single-writer write  yes OneClaim OneClaim OneClaim OneClaim
single-node-multi-writer  read   yes yes yes OneNode OneNode
single-node-multi-writer  write  yes yes yes OneNode OneNode
";
        assert_eq!(table, expected, "\n{table}");
    }

    /// The attachment serves every claim on the node, so it is read-only when none there may write.
    #[test]
    fn a_node_is_attached_read_only_when_no_claim_on_it_may_write() {
        for access in AccessMode::ALL {
            for mode in [Mode::Read, Mode::Write] {
                let writer_may_join = admit(access, Mode::Write, &"n1", [("n1", mode)]).is_ok();
                let alone = access.sharing().claims == Bound::One;
                let expected = mode == Mode::Read && !writer_may_join && !alone
                    || access.sharing().writers == Bound::None;
                assert_eq!(access.attaches_read_only(mode), expected, "{access} {mode}");
            }
        }
    }

    /// Safety rule 2: which volumes are attached to one node at a time.
    #[test]
    fn a_volume_is_exclusive_when_no_second_node_may_join() {
        for access in AccessMode::ALL {
            let joins = admit(access, Mode::Read, &"n2", [("n1", Mode::Read)]).is_ok();
            assert_eq!(access.is_exclusive(), !joins, "{access}");
        }
    }

    #[test]
    fn a_capability_asked_for_as_a_whole_is_the_one_that_is_used() {
        let capability = |access| Capability { access, attachment: AttachmentMode::BlockDevice };
        let offered = AccessMode::ALL.map(capability);
        for asked in offered {
            assert_eq!(CapabilityFilter::from(asked).first_of(&offered), Some(asked));
        }
    }

    #[test]
    fn names_are_those_that_are_serialized() {
        for access in AccessMode::ALL {
            assert_eq!(serde_json::to_string(&access).unwrap(), format!("\"{access}\""));
        }
    }
}
