//! The system that a seed asks for, and the volumes in it.

use std::fmt;
use std::ops::Range;

use crate::dice::Dice;

/// The plugins. The first has a controller that attaches, and stages; the second lacks
/// [`Shape::lacks`].
pub const PLUGINS: [&str; 2] = ["dev.berth", "other.berth"];

/// The number of each kind of process, and their settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The number of nats-servers: 1 or 3.
    pub servers: usize,
    /// The number of processes of each service: 1 or 2.
    pub replicas: usize,
    /// The number of hosts. Each has an agent and a driver of each plugin.
    pub nodes: usize,
    /// The TTL of the markers of deleted keys, in seconds. Where it is short, markers are
    /// purged all the time, and a follower that was away for a moment reads all keys again.
    pub marker_ttl_s: u64,
    /// The driver's flag for the ability that the second plugin lacks.
    pub lacks: &'static str,
    /// Whether the drivers carry out calls that they could refuse. A wrong call then does harm,
    /// which the judge and the content of the storage show.
    pub lenient: bool,
}

impl Shape {
    /// The shape of a seed. Four seeds in a row cover one and three servers with one and two
    /// replicas. In every second group of four, markers are purged soon.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "shape");
        Self {
            servers: if seed.is_multiple_of(2) { 3 } else { 1 },
            replicas: if (seed / 2).is_multiple_of(2) { 1 } else { 2 },
            nodes: if dice.percent(30) { 3 } else { 2 },
            marker_ttl_s: if (seed / 4).is_multiple_of(2) { 3600 } else { 3 },
            lacks: dice.weigh(&[(1, "--no-controller"), (1, "--no-attach"), (1, "--no-stage")]),
            lenient: dice.percent(50),
        }
    }

    /// Whether deleted keys are purged all the time, and not only once their values are in a
    /// closed file of the server. No server is killed then.
    pub fn is_purged_soon(self) -> bool {
        self.marker_ttl_s < 3600
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { servers, replicas, nodes, marker_ttl_s, lacks, lenient } = self;
        let manner = if *lenient { "lenient" } else { "strict" };
        let (first, second) = (PLUGINS[0], PLUGINS[1]);
        write!(
            f,
            "nats-servers {servers}, replicas {replicas}, nodes {nodes}, markers for \
             {marker_ttl_s} s, {manner} plugins {first} and {second} ({lacks})"
        )
    }
}

/// A kind of volume with the limits of its access mode, which are written here as numbers: the
/// verdict must not use the table that it judges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Its id, which is also its name at the plugin.
    pub id: &'static str,
    /// The index in [`PLUGINS`].
    pub plugin: usize,
    /// Its access mode in the words of a volume document.
    pub access: &'static str,
    /// The driver's flags for the image that holds it; empty for a directory.
    pub backing: &'static [&'static str],
    /// Whether its workloads get a block device.
    pub block: bool,
    /// The most nodes that may have it at once.
    pub nodes: usize,
    /// The most claims that it may have at once.
    pub claims: usize,
    /// The most claims that may write to it at once.
    pub writers: usize,
}

impl Kind {
    /// Whether copies of it are made. Only a directory of the first plugin is copied, because a
    /// copy is of the same kind and at the same storage.
    pub fn is_copied(&self) -> bool {
        self.plugin == 0 && self.backing.is_empty()
    }
}

const MANY: usize = usize::MAX;
const EXT4: &[&str] = &["--backing", "image", "--fs-type", "ext4", "--capacity-bytes", "8388608"];
const RAW: &[&str] = &["--backing", "image", "--capacity-bytes", "1048576"];

const fn kind(id: &'static str, plugin: usize, access: &'static str, limits: [usize; 3]) -> Kind {
    let [nodes, claims, writers] = limits;
    Kind { id, plugin, access, backing: &[], block: false, nodes, claims, writers }
}

/// Every volume that exists before the run. Exclusive volumes come first and are drawn more
/// often, because conflicts arise there.
pub const VOLUMES: [Kind; 11] = [
    kind("writer", 0, "single-node-writer", [1, 1, 1]),
    kind("single", 0, "single-node-single-writer", [1, 1, 1]),
    kind("shared", 0, "single-node-multi-writer", [1, MANY, MANY]),
    Kind { backing: EXT4, ..kind("image", 0, "single-node-writer", [1, 1, 1]) },
    Kind { backing: RAW, block: true, ..kind("block", 0, "single-node-writer", [1, 1, 1]) },
    kind("reader", 0, "single-node-reader-only", [1, 1, 0]),
    kind("readers", 0, "multi-node-reader-only", [MANY, MANY, 0]),
    kind("one-writer", 0, "multi-node-single-writer", [MANY, MANY, 1]),
    kind("many", 0, "multi-node-multi-writer", [MANY, MANY, MANY]),
    kind("other-writer", 1, "single-node-writer", [1, 1, 1]),
    kind("other-many", 1, "multi-node-multi-writer", [MANY, MANY, MANY]),
];

/// Every volume that is created and deleted during the run.
pub const CREATED: [Kind; 6] = [
    kind("created-writer", 0, "single-node-writer", [1, 1, 1]),
    kind("created-shared", 0, "single-node-multi-writer", [1, MANY, MANY]),
    kind("created-one-writer", 0, "multi-node-single-writer", [MANY, MANY, 1]),
    kind("created-many", 0, "multi-node-multi-writer", [MANY, MANY, MANY]),
    Kind { backing: EXT4, ..kind("created-image", 0, "single-node-writer", [1, 1, 1]) },
    kind("created-other", 1, "multi-node-multi-writer", [MANY, MANY, MANY]),
];

/// The kind of the volumes that are each created for one alloc. Each is another volume, so the
/// kind as a whole has no limits; see [`kind_of`].
const SCRATCH_KIND: Kind = kind("scratch", 0, "single-node-writer", [MANY, MANY, MANY]);

/// The number of the kind of volume that is created for one alloc.
pub const SCRATCH: usize = VOLUMES.len() + CREATED.len();

/// The numbers of the volumes of [`CREATED`].
pub const CREATED_NUMBERS: Range<usize> = VOLUMES.len()..SCRATCH;

/// The kind of the volume with this number: [`VOLUMES`] come first, then [`CREATED`], then
/// [`SCRATCH`].
pub fn kind_of(volume: usize) -> &'static Kind {
    let kinds = VOLUMES.iter().chain(&CREATED);
    kinds.chain([&SCRATCH_KIND]).nth(volume).unwrap_or(&SCRATCH_KIND)
}
