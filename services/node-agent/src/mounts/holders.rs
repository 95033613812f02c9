//! Finds the processes of the host that still hold a volume which is being released.
//!
//! **Owns** the decision which mounts are the agent's, which of them disappear by propagation,
//! which are copies of the agent's that a new mount namespace got, and which belong to another
//! process and delay the release.
//!
//! **Promises** that a use is not gone while a process may write through it, in any mount
//! namespace: mounts are compared by device and root, never by path. What cannot be read counts as
//! in use.
//!
//! **Never** ends a process. It unmounts copies in other namespaces, as `umount` does; everything
//! else waits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::{AllocId, NodeId, VolumeKey};
use berth_host::{DeviceNumber, Holder, HostMounts, MountContent, MountPlace, MountTable};
use tokio::time::{sleep, timeout};

use super::node_faults::local_problem;
use super::processes::{fact_of, name_all};
use super::volumes::LocalVolumes;
use crate::host::paths::VolumePaths;
use crate::host::pool::VolumeHost;
use crate::host::unmount_copy::{self, CopyUnmount};
use crate::journal::{JournalledUse, VolumeUses};
use crate::mounts::plan::VolumeOnNode;
use crate::plugins::Plugin;

/// Time to read all mount tables of the host.
const READ_MAX: Duration = Duration::from_secs(10);
/// Number of checks after the unmounts. A plugin may still be unmounting.
const CHECKS_AFTER: u32 = 3;
/// The pause between two of these checks.
const PAUSE_AFTER: Duration = Duration::from_millis(50);
/// Largest number of holders that one problem names.
const NAMED_MAX: usize = 4;

/// A use that is taken down, and what its mounts show.
#[derive(Debug)]
pub(super) struct HolderCheck<'a> {
    node: &'a NodeId,
    volume: &'a VolumeKey,
    place: VolumePaths,
    /// The bind mounts of the volume at callers' paths.
    binds: Vec<PathBuf>,
    contents: Vec<MountContent>,
    /// The places of the agent's mounts that are taken down.
    places: Vec<MountPlace>,
    /// Mount points of the volume that belong to agents of other nodes on this host.
    of_other_nodes: Vec<PathBuf>,
    /// The paths at which the agent mounts the use, and what lies beneath each.
    own_points: Vec<(PathBuf, MountPlace)>,
    others: RemainingUses,
}

/// What else uses the volume on this node. Its mounts show the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemainingUses {
    None,
    /// Other allocs use it. Only a mount that cannot be theirs must go.
    Some {
        /// The departing alloc writes and the others read, so a writable mount is the departing
        /// alloc's.
        only_writer: bool,
    },
}

impl LocalVolumes {
    /// Collects what identifies the volume before anything is unmounted. What the mount table shows
    /// is journalled, because it is lost once the agent's mounts are gone.
    pub(super) async fn prepare_holder_check<'a>(
        &'a self,
        host: &VolumeHost,
        volume: &'a VolumeKey,
        alloc: &AllocId,
        scene: VolumeOnNode<'_>,
    ) -> Result<HolderCheck<'a>, Problem> {
        let VolumeOnNode { journal: known, mounts: table, place } = scene;
        let boot_id = &self.boot_id;
        let entry = known.uses.get(alloc);
        let noted = entry.filter(|entry| entry.boot_id == *boot_id);
        let mut contents = noted.map(|entry| entry.contents.clone()).unwrap_or_default();
        for content in shown_contents(table, place, noted) {
            if !contents.contains(&content) {
                contents.push(content);
            }
        }
        if let Some(entry) = noted.filter(|entry| entry.contents != contents) {
            let entry = JournalledUse { contents: contents.clone(), ..entry.clone() };
            let written = self.journal.write_use(volume, alloc, entry).await;
            written.map_err(local_problem(Code::UnmountFailed))?;
        }
        let root = self.paths.root();
        // A device number that another volume has by now does not identify this volume.
        let is_of_another = |content: &MountContent| {
            let mut shown = table.within(root).filter(|mount| content.is_shown_by(mount));
            shown.any(|mount| !mount.point.starts_with(&place.volume_dir))
        };
        contents.retain(|content| !is_of_another(content));
        let others = RemainingUses::count_remaining(
            known,
            alloc,
            entry.map(|entry| entry.mode),
            table,
            place,
        );
        let staging = (others == RemainingUses::None).then(|| table.within(&place.staging));
        let ours = table.within(&place.alloc_dir).chain(staging.into_iter().flatten());
        let mut places: Vec<MountPlace> = ours.filter_map(|one| table.place_of(one)).collect();
        let binds = self.binds.paths_of_volume(host, place).await?;
        let own = binds.iter().filter_map(|path| table.top_at(path));
        places.extend(own.filter_map(|one| table.place_of(one)));
        let of_other_nodes = table.outside(root).map(|mount| &mount.point);
        let of_other_nodes =
            of_other_nodes.filter(|point| is_within(point, &place.volume_dir)).cloned().collect();
        let points = [&place.target, &place.staging].into_iter().chain(&binds);
        let own_points = points.filter_map(|point| Some((point.clone(), lies_upon(table, point)?)));
        let own_points = own_points.collect();
        Ok(HolderCheck {
            node: &self.node,
            volume,
            place: place.clone(),
            binds,
            contents,
            places,
            of_other_nodes,
            own_points,
            others,
        })
    }
}

impl RemainingUses {
    fn count_remaining(
        known: &VolumeUses,
        alloc: &AllocId,
        mode: Option<Mode>,
        table: &MountTable,
        place: &VolumePaths,
    ) -> Self {
        let others = known.uses.iter().filter(|(other, _)| *other != alloc);
        let modes: Vec<Mode> = others.map(|(_, entry)| entry.mode).collect();
        let is_journalled = !modes.is_empty();
        let is_mounted = table.beneath(&place.volume_dir).any(|point| {
            !point.starts_with(&place.alloc_dir) && !point.starts_with(&place.staging)
        });
        if !is_journalled && !is_mounted {
            return Self::None;
        }
        let only_writer =
            is_journalled && mode == Some(Mode::Write) && !modes.contains(&Mode::Write);
        Self::Some { only_writer }
    }
}

impl HolderCheck<'_> {
    /// Lists the mounts that survive the agent's unmounts. Changes nothing.
    pub(super) async fn list_surviving(&self) -> Result<Vec<Holder>, Problem> {
        let holders = self.list_holders().await?.into_iter();
        Ok(holders.filter(|one| self.survives_unmount(one)).collect())
    }

    /// Refuses, before anything is unmounted, while a process has a mount that survives the agent's
    /// unmounts. Copies of the agent's mounts are unmounted, if there is nothing else.
    pub(super) async fn check_before(
        &self,
        host: &VolumeHost,
        plugin: &Plugin,
        mut surviving: Vec<Holder>,
    ) -> Result<(), Problem> {
        let mut in_use = Vec::new();
        if self.are_copies(&surviving, plugin).await {
            in_use = unmount_copies(host, surviving).await?;
            surviving = self.list_surviving().await?;
        }
        self.refuse_held(surviving, &in_use)
    }

    /// Refuses, after the agent's mounts are gone, while a process still has the volume. Copies
    /// that a namespace got meanwhile are unmounted.
    pub(super) async fn check_after(
        &self,
        host: &VolumeHost,
        plugin: &Plugin,
    ) -> Result<(), Problem> {
        let mut checks = 0;
        let mut in_use = Vec::new();
        loop {
            let holders = self.list_holders().await?;
            checks += 1;
            if holders.is_empty() || checks >= CHECKS_AFTER {
                return self.refuse_held(holders, &in_use);
            }
            if self.are_copies(&holders, plugin).await {
                in_use = unmount_copies(host, holders).await?;
            } else {
                sleep(PAUSE_AFTER).await;
            }
        }
    }

    fn refuse_held(&self, holders: Vec<Holder>, in_use: &[String]) -> Result<(), Problem> {
        if holders.is_empty() {
            return Ok(());
        }
        let named: Vec<String> = holders.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = holders.len() - named.len();
        let more = if more > 0 { format!("; and {more} more mounts") } else { String::new() };
        let used =
            if in_use.is_empty() { String::new() } else { format!("; {}", in_use.join("; ")) };
        let node = self.node;
        let message = format!(
            "volume {} is still held on node {node}: {}{more}{used}",
            self.volume,
            named.join("; ")
        );
        let next = format!(
            "end these processes on node {node}, or unmount it there; Berth ends none, and the \
             release goes on by itself then"
        );
        let processes = holders.iter().flat_map(|holder| &holder.processes).map(fact_of);
        let problem = Problem::new(Code::VolumeHeldByProcess, message).held_by(processes);
        Err(problem.retryable().next(next))
    }

    /// Lists every mount of the volume on the host that is not another alloc's.
    async fn list_holders(&self) -> Result<Vec<Holder>, Problem> {
        if self.contents.is_empty() {
            return Ok(Vec::new());
        }
        tracing::debug!("the mount tables of all processes are read");
        let read = timeout(READ_MAX, HostMounts::read()).await;
        let read = read.map_err(|_| {
            let message = format!(
                "the mount tables of this host's processes were not read within {READ_MAX:?}, so \
                 it is not known who has the volume"
            );
            Problem::new(Code::UnmountFailed, message).retryable()
        })?;
        let all = read.map_err(local_problem(Code::UnmountFailed))?;
        let holders = all.holders_of(&self.contents).into_iter();
        Ok(holders.filter(|one| self.may_be_departing(one)).collect())
    }

    /// Whether a mount may be the departing alloc's.
    fn may_be_departing(&self, holder: &Holder) -> bool {
        let point = &holder.mount.point;
        let is_own = is_within(point, &self.place.alloc_dir);
        match self.others {
            _ if self.of_other_nodes.contains(point) => false,
            RemainingUses::None => true,
            _ if is_own => true,
            // The mounts of the other allocs, whose binds are the agent's own.
            _ if holder.is_own => false,
            RemainingUses::Some { only_writer } => {
                only_writer
                    && !holder.mount.is_read_only()
                    && !is_within(point, &self.place.staging)
            }
        }
    }

    /// Whether all of them are copies of the agent's mounts, which new mount namespaces got, and
    /// none is where the plugin itself works: there the plugin unmounts.
    async fn are_copies(&self, holders: &[Holder], plugin: &Plugin) -> bool {
        if holders.is_empty() || !holders.iter().all(|one| self.is_copy(one)) {
            return false;
        }
        let plugins = plugin.mount_namespaces().await;
        let is_of_plugin =
            |one: &Holder| plugins.iter().any(|own| *own == Path::new(&one.namespace));
        !holders.iter().any(is_of_plugin)
    }

    /// Whether it is a copy of a mount of the agent's, which a new mount namespace got.
    fn is_copy(&self, holder: &Holder) -> bool {
        let mut points = self.own_points.iter();
        points.any(|(point, upon)| {
            self.contents.iter().any(|content| holder.is_copy_of(content, point, upon))
        })
    }

    /// Whether the mount stays after the agent's unmounts.
    fn survives_unmount(&self, holder: &Holder) -> bool {
        let point = &holder.mount.point;
        let is_ours = holder.is_own
            && (point.starts_with(&self.place.volume_dir) || self.binds.contains(point));
        !is_ours && !holder.may_go_with(&self.places)
    }
}

/// Unmounts copies in their namespaces, the deepest first. Returns who uses those that are in use,
/// and why others cannot be unmounted, in words.
async fn unmount_copies(
    host: &VolumeHost,
    mut copies: Vec<Holder>,
) -> Result<Vec<String>, Problem> {
    copies.sort_by(|one, other| other.mount.point.cmp(&one.mount.point));
    let work = move || {
        let mut left = Vec::new();
        for copy in &copies {
            let (point, namespace) = (copy.mount.point.display(), &copy.namespace);
            match unmount_copy::unmount_of(copy) {
                CopyUnmount::Changed => {}
                CopyUnmount::Done => tracing::info!(%point, namespace, "a copy was unmounted"),
                CopyUnmount::Busy => {
                    let users = name_all(&unmount_copy::users_of(copy, NAMED_MAX));
                    let users = if users.is_empty() { "a process".to_owned() } else { users };
                    left.push(format!("{users} uses it there, in {namespace}"));
                }
                CopyUnmount::Refused(why) => {
                    tracing::info!(%point, namespace, why, "a copy cannot be unmounted from here");
                }
            }
        }
        left.truncate(NAMED_MAX);
        left
    };
    host.run("unmount copies", work).await.map_err(local_problem(Code::UnmountFailed))
}

/// What a mount at this path lies upon, by the mount table.
fn lies_upon(table: &MountTable, path: &Path) -> Option<MountPlace> {
    let beneath = path.ancestors().skip(1).find_map(|dir| table.top_at(dir))?;
    let within = path.strip_prefix(&beneath.point).ok()?;
    let propagates = beneath.peer_group.is_some() || beneath.master.is_some();
    Some(MountPlace { device: beneath.device, path: beneath.root.join(within), propagates })
}

/// The contents of the use's mounts, by which other mounts of the volume are found.
pub(super) fn shown_contents(
    table: &MountTable,
    place: &VolumePaths,
    entry: Option<&JournalledUse>,
) -> Vec<MountContent> {
    let target = entry.map_or(&place.target, |entry| &entry.target);
    let ours = table.all_at(&place.staging).chain(table.all_at(target));
    let mut contents: Vec<MountContent> = ours.map(berth_host::Mount::content).collect();
    // The device node is mounted, and another process may mount a file system on the device.
    let block = entry.filter(|entry| entry.attachment == AttachmentMode::BlockDevice);
    let disk = block.and_then(|entry| entry.disk.as_ref());
    contents.extend(disk.and_then(|disk| DeviceNumber::parse(&disk.device)).map(|device| {
        let (root, none) = ("/".to_owned(), String::new());
        MountContent { device, root, fs_type: none.clone(), source: none }
    }));
    contents
}

/// Whether a path contains the last two names of `dir`: a process may have another root directory.
fn is_within(point: &Path, dir: &Path) -> bool {
    let mut names = dir.iter().rev();
    let (Some(last), Some(before)) = (names.next(), names.next()) else { return false };
    point.iter().zip(point.iter().skip(1)).any(|pair| pair == (before, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_ours_is_known_below_any_root() {
        let dir = Path::new("/var/lib/berth/csi/vol/alloc");
        for within in ["/var/lib/berth/csi/vol/alloc/target", "/host/csi/vol/alloc/target/x"] {
            assert!(is_within(Path::new(within), dir), "{within}");
        }
        for outside in ["/var/lib/berth/csi/vol/other/target", "/alloc/vol", "/data", "/"] {
            assert!(!is_within(Path::new(outside), dir), "{outside}");
        }
    }
}
