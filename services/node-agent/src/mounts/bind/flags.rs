//! The flags that one mount has for itself, even if other mounts show the same file system
//! (mount(2), "per-mount-point flags").
//!
//! **Promises** that a view keeps every flag of its volume that protects the host.

use berth_domain::access::Mode;
use berth_domain::volume::MountOptions;
use berth_host::Mount;
use nix::mount::MsFlags;

pub(in crate::mounts) type Flags = MsFlags;

/// `MS_NOSYMFOLLOW` (Linux 5.10).
const NOSYMFOLLOW: MsFlags = MsFlags::from_bits_retain(256);
/// The flags with their names in mount(8).
const FLAGS_BY_NAME: [(&str, MsFlags); 9] = [
    ("ro", MsFlags::MS_RDONLY),
    ("nosuid", MsFlags::MS_NOSUID),
    ("nodev", MsFlags::MS_NODEV),
    ("noexec", MsFlags::MS_NOEXEC),
    ("noatime", MsFlags::MS_NOATIME),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("relatime", MsFlags::MS_RELATIME),
    ("strictatime", MsFlags::MS_STRICTATIME),
    ("nosymfollow", NOSYMFOLLOW),
];
/// A mount has exactly one of these.
const ATIME_FLAGS: MsFlags =
    MsFlags::MS_NOATIME.union(MsFlags::MS_RELATIME).union(MsFlags::MS_STRICTATIME);
/// Options that stand for the absence of a flag.
pub(in crate::mounts) const OPTIONS_WITHOUT_FLAG: [&str; 4] = ["rw", "suid", "dev", "exec"];

pub(in crate::mounts) fn flag_by_name(name: &str) -> Option<Flags> {
    FLAGS_BY_NAME.iter().find(|(own, _)| *own == name).map(|(_, flag)| *flag)
}

/// The names of the flags, for people.
pub(in crate::mounts) fn flag_names(flags: Flags) -> String {
    let names =
        FLAGS_BY_NAME.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(", ")
}

/// The flags of a mount in the mount table.
pub(in crate::mounts) fn mount_flags(mount: &Mount) -> Flags {
    let mut flags = Flags::empty();
    for option in mount.options.split(',') {
        flags |= flag_by_name(option).unwrap_or(Flags::empty());
    }
    // The mount table does not show strictatime.
    if !flags.intersects(ATIME_FLAGS) {
        flags |= MsFlags::MS_STRICTATIME;
    }
    flags
}

/// The flags of a mount together with the requested ones. A flag that protects the host is never
/// dropped. A requested atime flag replaces the mount's.
pub(in crate::mounts) fn add_flags(has: Flags, requested: Flags) -> Flags {
    let replaced = if requested.intersects(ATIME_FLAGS) { ATIME_FLAGS } else { Flags::empty() };
    has.difference(replaced) | requested
}

/// The flags of a view of a volume that is published with the options `base`. Any other flag must
/// be in `base`, too, because only the plugin can set it. Flags may hold secrets, so an error gives
/// the number of the flag and not its text.
pub(super) fn view_flags(
    base: &MountOptions,
    mode: Mode,
    requested: &MountOptions,
) -> Result<Flags, String> {
    let mut flags = Flags::empty();
    if mode == Mode::Read {
        flags |= MsFlags::MS_RDONLY;
    }
    for (index, flag) in requested.flags.iter().enumerate() {
        match FLAGS_BY_NAME.iter().find(|(name, _)| name == flag) {
            Some((_, bit)) => flags |= *bit,
            None if OPTIONS_WITHOUT_FLAG.contains(&flag.as_str()) || base.flags.contains(flag) => {}
            None => {
                return Err(format!(
                    "mount flag {} of a volume that has another name in the alloc is none that \
                     one mount can have for itself (ro, nosuid, nodev, noexec, noatime, \
                     nodiratime, relatime, strictatime), and the volume is mounted without it",
                    index + 1
                ));
            }
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(flags: &[&str]) -> MountOptions {
        MountOptions {
            flags: flags.iter().map(ToString::to_string).collect(),
            ..MountOptions::default()
        }
    }

    #[test]
    fn a_view_may_have_flags_of_one_mount_and_shares_the_rest() {
        let base = options(&["noatime", "vers=4.2"]);
        let flags_of_view = |mode, flags: &[&str]| view_flags(&base, mode, &options(flags));
        assert_eq!(flags_of_view(Mode::Write, &[]), Ok(Flags::empty()));
        assert_eq!(
            flags_of_view(Mode::Read, &["rw"]),
            Ok(MsFlags::MS_RDONLY),
            "the request only reads"
        );
        assert_eq!(
            flags_of_view(Mode::Write, &["noexec", "vers=4.2", "ro"]),
            Ok(MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY)
        );
        let refused = flags_of_view(Mode::Write, &["noexec", "password=hunter2"]).unwrap_err();
        assert!(refused.contains("mount flag 2") && !refused.contains("hunter2"), "{refused}");
    }
    #[test]
    fn a_mount_keeps_its_flags() {
        let mount = |options: &str| Mount { options: options.to_owned(), ..Mount::default() };
        let has = mount_flags(&mount("rw,nosuid,nodev,noexec,nosymfollow,noatime,nodiratime"));
        let protects = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | NOSYMFOLLOW;
        let atime = MsFlags::MS_NOATIME | MsFlags::MS_NODIRATIME;
        assert_eq!(has, protects | atime);
        assert_eq!(add_flags(has, MsFlags::MS_RDONLY), has | MsFlags::MS_RDONLY);
        let rel = add_flags(has, MsFlags::MS_RELATIME);
        assert_eq!(rel, protects | MsFlags::MS_RELATIME | MsFlags::MS_NODIRATIME);
        assert_eq!(mount_flags(&mount("ro")), MsFlags::MS_RDONLY | MsFlags::MS_STRICTATIME);
    }
}
