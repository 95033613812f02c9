//! The flags of one mount among several of a file system (mount(2), "per-mount-point flags").

use berth_domain::access::Mode;
use berth_domain::volume::MountOptions;
use berth_host::Mount;
use nix::mount::MsFlags;

/// Flags of one mount.
pub(in crate::node) type Flags = MsFlags;

/// `MS_NOSYMFOLLOW` (Linux 5.10).
const NOSYMFOLLOW: MsFlags = MsFlags::from_bits_retain(256);
/// Those, by the names of mount(8).
const OWN: [(&str, MsFlags); 9] = [
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
/// Of these a mount has exactly one.
const ATIME: MsFlags =
    MsFlags::MS_NOATIME.union(MsFlags::MS_RELATIME).union(MsFlags::MS_STRICTATIME);
/// What a mount is that has none of them.
pub(in crate::node) const NONE: [&str; 4] = ["rw", "suid", "dev", "exec"];

/// The flag of this name.
pub(in crate::node) fn by_name(name: &str) -> Option<Flags> {
    OWN.iter().find(|(own, _)| *own == name).map(|(_, flag)| *flag)
}

/// The names of these flags, for people.
pub(in crate::node) fn names(flags: Flags) -> String {
    let names = OWN.iter().filter(|(_, flag)| flags.contains(*flag)).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(", ")
}

/// The flags that a mount has, by the mount table.
pub(in crate::node) fn mount_flags(mount: &Mount) -> Flags {
    let mut flags = Flags::empty();
    for option in mount.options.split(',') {
        flags |= by_name(option).unwrap_or(Flags::empty());
    }
    // The table has no word for it.
    if !flags.intersects(ATIME) {
        flags |= MsFlags::MS_STRICTATIME;
    }
    flags
}

/// What a mount has, and what is asked for besides. A flag that protects the host is never dropped;
/// when a file's time of access is written is what was asked for last.
pub(in crate::node) fn add_flags(has: Flags, asked: Flags) -> Flags {
    let replaced = if asked.intersects(ATIME) { ATIME } else { Flags::empty() };
    has.difference(replaced) | asked
}

/// The flags of a view of a volume that is published with `base`. What only the plugin can do must
/// be the same for both; flags may hold secrets, so that their numbers are told and not the flags.
pub(super) fn view_flags(
    base: &MountOptions,
    mode: Mode,
    asked: &MountOptions,
) -> Result<Flags, String> {
    let mut flags = Flags::empty();
    if mode == Mode::Read {
        flags |= MsFlags::MS_RDONLY;
    }
    for (at, flag) in asked.flags.iter().enumerate() {
        match OWN.iter().find(|(name, _)| name == flag) {
            Some((_, own)) => flags |= *own,
            None if NONE.contains(&flag.as_str()) || base.flags.contains(flag) => {}
            None => {
                return Err(format!(
                    "mount flag {} of a volume that has another name in the alloc is none that \
                     one mount can have for itself (ro, nosuid, nodev, noexec, noatime, \
                     nodiratime, relatime, strictatime), and the volume is mounted without it",
                    at + 1
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
    fn a_view_has_what_one_mount_can_have_and_shares_the_rest() {
        let base = options(&["noatime", "vers=4.2"]);
        let of = |mode, flags: &[&str]| view_flags(&base, mode, &options(flags));
        assert_eq!(of(Mode::Write, &[]), Ok(Flags::empty()));
        assert_eq!(of(Mode::Read, &["rw"]), Ok(MsFlags::MS_RDONLY), "the request only reads");
        assert_eq!(
            of(Mode::Write, &["noexec", "vers=4.2", "ro"]),
            Ok(MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY)
        );
        let refused = of(Mode::Write, &["noexec", "password=hunter2"]).unwrap_err();
        assert!(refused.contains("mount flag 2") && !refused.contains("hunter2"), "{refused}");
    }
    #[test]
    fn a_mount_keeps_what_it_has() {
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
