//! `berth run`

use std::ffi::OsString;
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode};
use berth_domain::alloc::TaskDriverMounts;
use berth_domain::{AllocId, ClassId, NodeId};
use clap::Args;

use super::RunVolumeArg;
use super::list::{access_modes, attachment_modes, driver_mounts};
use crate::span;

/// `berth run`
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Run {
    /// A volume: its id, the path for CMD, and whether CMD only reads it; a backslash makes a colon
    /// part of the id or the path. One volume may be at several paths. Or a new volume for this run
    /// alone: new:SIZE[:PATH] or new:CLASS:SIZE[:PATH]
    #[arg(long = "volume", short = 'v', value_name = "SOURCE[:PATH][:ro]", required = true)]
    pub volumes: Vec<RunVolumeArg>,

    /// The class of new volumes that name none [default: the only class that the namespace may use]
    #[arg(long, value_name = "CLASS")]
    pub class: Option<ClassId>,

    /// The node's name of this machine's agent [default: the host name]
    #[arg(long, value_name = "ID", env = "BERTH_NODE", hide_env_values = true)]
    pub node: Option<NodeId>,

    /// The alloc's id, unique in the namespace [default: run- and eight random digits]
    #[arg(long, value_name = "ID")]
    pub alloc: Option<AllocId>,

    /// Wait in line for a volume that others hold, for this long, or until --timeout
    #[arg(
        long,
        value_name = "SPAN",
        num_args = 0..=1,
        require_equals = true,
        value_parser = span::parse
    )]
    pub wait: Option<Option<Duration>>,

    /// The run's index among equal ones, from 0: each SOURCE means the volume SOURCE[N]
    #[arg(long, value_name = "N", visible_alias = "index")]
    pub per_alloc: Option<u32>,

    /// What CMD's runner can mount for it: nothing, directories of the host only, or everything. A
    /// volume that it cannot mount is refused before anything is claimed
    #[arg(long, value_name = "WHAT", default_value = "all", value_parser = driver_mounts())]
    pub task_driver_mounts: TaskDriverMounts,

    /// The access mode [default: each volume's first capability]
    #[arg(long, value_name = "MODE", value_parser = access_modes())]
    pub access: Option<AccessMode>,

    /// File system or block device [default: as each volume's first capability that fits]
    #[arg(long, value_name = "MODE", value_parser = attachment_modes())]
    pub attachment: Option<AttachmentMode>,

    /// Return as soon as CMD has ended and the alloc is stopped; the release goes on by itself
    #[arg(long)]
    pub no_wait_release: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const EXAMPLES: &str = "EXAMPLES
    # a shell with the volume
    berth run --volume data -- bash

    # the volume at a path of its own, to write; another one to read
    berth run --volume data:/srv/data --volume models:/models:ro -- ./serve

    # the third of several: the volume shard[2], at /data
    berth run --volume shard:/data --index 2 -- ./worker

    # 10 GiB for this run alone, at /scratch
    berth run --volume new:10GiB:/scratch --class fast -- ./compile

    # wait up to an hour until the others have finished
    berth run --volume data --wait=1h -- sh -c 'backup $BERTH_VOLUME_DATA'

EXIT CODE
    That of CMD, 128 + n when signal n ended it; 124 others hold a volume, 125 not started for
    another reason, 126 could not be executed, 127 not found.";
