//! Enforces the flags of a mount: what the workload is told is what the kernel does.
//!
//! **Promises** that a read-only mount cannot be written through, and that requested `nosuid`,
//! `nodev` and `noexec` hold. A plugin may ignore these and answer OK. Then the agent sets them, or
//! refuses the mount.
//!
//! **Never** makes a block device read-only. That is a property of the device and not of the path:
//! it would stop another alloc's writes, and would outlast this alloc.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use berth_contract::code::Code;
use berth_contract::message::claim::Grant;
use berth_contract::problem::Problem;
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::volume::MountOptions;
use berth_host::table::MountTable;
use berth_host::{DeviceNumber, Mount};
use nix::mount::{MsFlags, mount};

use crate::host::paths::VolumePaths;
use crate::host::pool::VolumeHost;
use crate::mounts::bind::flags::{self, Flags};
use crate::mounts::calls::VolumeCalls;
use crate::mounts::node_faults::local_problem;
use crate::mounts::plan::NodeCall;

/// Flags that protect the host or the volume. A mount without a requested one is refused.
const PROTECTS: Flags =
    MsFlags::MS_RDONLY.union(MsFlags::MS_NOSUID).union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);
/// Options for mount(8) and similar programs, which the kernel never gets.
const USERSPACE_OPTIONS: [&str; 6] = ["defaults", "_netdev", "nofail", "auto", "noauto", "users"];

/// What was requested of a mount.
#[derive(Debug, Clone)]
struct RequiredFlags {
    is_device: bool,
    is_read_only: bool,
    options: MountOptions,
}

/// Checks the mount of a grant, and sets what the plugin left out. Returns what it left out, in
/// words. The table was read after the last call of the plugin.
pub(super) async fn enforce_flags(
    host: &VolumeHost,
    grant: &Grant,
    (place, table): (&VolumePaths, &MountTable),
) -> Result<Vec<String>, Problem> {
    let options = grant.mount.clone();
    let wanted = RequiredFlags {
        is_device: grant.attachment == AttachmentMode::BlockDevice,
        is_read_only: grant.mode == Mode::Read || options.flags.iter().any(|flag| flag == "ro"),
        options,
    };
    let (plugin, target) = (grant.plugin.clone(), place.target.clone());
    let found = table.top_at(&target).cloned();
    if let Some(found) = found.as_ref().filter(|found| wanted.is_met_by(found)) {
        return Ok(wanted.left_out(found, Flags::empty()));
    }
    let checked = host.run("set mount flags", move || wanted.enforce_flags(&target, found));
    checked.await.map_err(local_problem(Code::MountFailed))?.map_err(|why| {
        let said = format!(
            "plugin {plugin} answered NodePublishVolume with OK, but at {} {why}",
            place.target.display()
        );
        Problem::new(Code::NotReadOnly, said)
    })
}

/// Enforces the flags after a publish, and unpublishes the volume if it cannot.
pub(super) async fn enforce_after_publish(
    caller: &VolumeCalls,
    grant: &Grant,
    (place, table): (&VolumePaths, &MountTable),
) -> Result<Vec<String>, Problem> {
    let problem = match enforce_flags(&caller.host, grant, (place, table)).await {
        Ok(left_out) => {
            for remark in &left_out {
                let (volume, alloc, plugin) = (&grant.volume, &grant.alloc, &grant.plugin);
                tracing::warn!(%volume, %alloc, %plugin, remark, "a plugin left something out");
            }
            return Ok(left_out);
        }
        Err(problem) => problem,
    };
    let undo = [NodeCall::Unpublish { target: place.target.clone() }];
    let Err(kept) = caller.take_down(&undo).await else { return Err(problem) };
    // The intent is in the journal, so the release takes the mount down.
    let message = format!("{}; it is still mounted there: {}", problem.message, kept.message);
    Err(Problem { message, ..problem })
}

impl RequiredFlags {
    /// Whether it is a mount with all flags, so that nothing is to be done.
    fn is_met_by(&self, found: &Mount) -> bool {
        !self.is_device && missing_flags(found, self.required_flags()).is_empty()
    }

    fn enforce_flags(&self, target: &Path, found: Option<Mount>) -> Result<Vec<String>, String> {
        if self.is_device {
            return if self.is_read_only { check_device(target) } else { Ok(Vec::new()) };
        }
        let unknown = |error| format!("it is not known what is mounted: {error}");
        let asked = self.required_flags();
        let found = found.ok_or("nothing is mounted any more")?;
        let missing = missing_flags(&found, asked);
        let flags = flags::add_flags(flags::mount_flags(&found), asked);
        let remount = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags;
        let none = None::<&Path>;
        let set = mount(none, target, none, remount, none);
        let table = MountTable::read_blocking().map_err(unknown)?;
        let now = table.top_at(target).ok_or("nothing is mounted any more")?;
        let still = missing_flags(now, asked) & PROTECTS;
        if still.is_empty() {
            return Ok(self.left_out(&found, missing));
        }
        let why = set.err().map(|errno| format!(" ({errno})")).unwrap_or_default();
        Err(format!("{} is missing, and cannot be set{why}", flags::flag_names(still)))
    }

    fn required_flags(&self) -> Flags {
        let own = self.options.flags.iter().filter_map(|flag| flags::flag_by_name(flag));
        let asked = own.fold(Flags::empty(), |all, flag| all | flag);
        if self.is_read_only { asked | MsFlags::MS_RDONLY } else { asked }
    }

    /// What the plugin left out. Flags may hold secrets: only those with a known name are named.
    fn left_out(&self, found: &Mount, missing: Flags) -> Vec<String> {
        let mut said = Vec::new();
        if !missing.is_empty() {
            let names = flags::flag_names(missing);
            said.push(format!("the plugin left out {names}, which the agent has set"));
        }
        let is_same = |asked: &str| {
            let found = found.fs_type.as_str();
            found == asked
                || found.strip_prefix("fuse.") == Some(asked)
                || (asked == "nfs" && found == "nfs4")
        };
        if let Some(asked) = self.options.fs_type.as_ref().filter(|asked| !is_same(asked)) {
            let found = &found.fs_type;
            said.push(format!("file system {asked} was asked for, and {found} is mounted"));
        }
        for (at, flag) in self.options.flags.iter().enumerate() {
            let is_judged = flags::flag_by_name(flag).is_some()
                || flags::OPTIONS_WITHOUT_FLAG.contains(&flag.as_str())
                || USERSPACE_OPTIONS.contains(&flag.as_str())
                || flag.starts_with("x-");
            if !is_judged && !found.has_option(flag) {
                let at = at + 1;
                said.push(format!("the kernel does not show mount flag {at} that was asked for"));
            }
        }
        said
    }
}

/// The requested flags that the mount lacks.
fn missing_flags(found: &Mount, asked: Flags) -> Flags {
    let missing = asked.difference(flags::mount_flags(found));
    // The file system as a whole may be read-only.
    if found.is_read_only() { missing.difference(MsFlags::MS_RDONLY) } else { missing }
}

/// Checks that the kernel refuses writes to a block device: as `BLKROGET`, without opening the
/// device.
fn check_device(target: &Path) -> Result<Vec<String>, String> {
    let read = || {
        let number = DeviceNumber::from_raw(std::fs::metadata(target)?.rdev());
        std::fs::read_to_string(format!("/sys/dev/block/{number}/ro"))
    };
    match read().map(|text| text.trim() == "1") {
        Ok(true) => Ok(Vec::new()),
        Ok(false) => {
            Err("there is a block device that can be written, and only reading was asked \
                          for; the agent does not make it read-only, since others on the node may \
                          write to the same device"
                .to_owned())
        }
        Err(error) => Err(not_inspected(&error)),
    }
}

fn not_inspected(error: &io::Error) -> String {
    format!("it cannot be seen whether the block device is read-only: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(line: &str, fs_type: &str, flags: &[&str]) -> Vec<String> {
        let found = Mount::parse(line.as_bytes()).unwrap();
        let options = MountOptions {
            fs_type: Some(fs_type.to_owned()),
            flags: flags.iter().map(ToString::to_string).collect(),
            group: None,
        };
        let wanted = RequiredFlags { is_device: false, is_read_only: false, options };
        wanted.left_out(&found, missing_flags(&found, wanted.required_flags()))
    }

    #[test]
    fn what_was_left_out_is_named_and_no_secret_is() {
        let xfs = "30 22 8:1 / /t rw,nosuid,relatime - xfs /dev/sdb rw,attr2,noquota";
        assert_eq!(left_out(xfs, "xfs", &["nosuid", "rw", "noquota", "_netdev"]), [""; 0]);
        let all = left_out(xfs, "ext4", &["noexec", "attr2", "password=hunter2"]);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].contains("noexec") && all[1].contains("ext4"), "{all:?}");
        assert!(all[2].contains("flag 3") && !all[2].contains("hunter2"), "{all:?}");
        let nfs = "30 22 0:50 / /t rw - nfs4 s:/e rw,vers=4.2";
        assert_eq!(left_out(nfs, "nfs", &["vers=4.2"]), [""; 0]);
    }

    #[test]
    fn a_file_system_that_is_read_only_needs_no_flag() {
        let of = |line: &str| Mount::parse(line.as_bytes()).unwrap();
        let ro = of("30 22 8:1 / /t rw - ext4 /dev/sdb ro");
        assert_eq!(missing_flags(&ro, MsFlags::MS_RDONLY), Flags::empty());
        let rw = of("30 22 8:1 / /t rw,noexec - ext4 /dev/sdb rw");
        assert_eq!(missing_flags(&rw, MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC), MsFlags::MS_RDONLY);
    }
}
