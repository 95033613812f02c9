//! What of a mount's options one view of it may have for itself.

use berth_domain::access::Mode;
use berth_domain::volume::MountOptions;
use nix::mount::MsFlags;

/// Flags of one mount among several of a file system (mount(2), "per-mount-point").
pub(super) type Flags = MsFlags;

/// Those, by the names of mount(8).
const OWN: [(&str, MsFlags); 8] = [
    ("ro", MsFlags::MS_RDONLY),
    ("nosuid", MsFlags::MS_NOSUID),
    ("nodev", MsFlags::MS_NODEV),
    ("noexec", MsFlags::MS_NOEXEC),
    ("noatime", MsFlags::MS_NOATIME),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("relatime", MsFlags::MS_RELATIME),
    ("strictatime", MsFlags::MS_STRICTATIME),
];
/// What a mount is that has none of them.
const NONE: [&str; 4] = ["rw", "suid", "dev", "exec"];

/// The flags of a view of a volume that is published with `base`. What only the plugin can do must
/// be the same for both; flags may hold secrets, so that their numbers are told and not the flags.
pub(super) fn of_view(
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
        let of = |mode, flags: &[&str]| of_view(&base, mode, &options(flags));
        assert_eq!(of(Mode::Write, &[]), Ok(Flags::empty()));
        assert_eq!(of(Mode::Read, &["rw"]), Ok(MsFlags::MS_RDONLY), "the request only reads");
        assert_eq!(
            of(Mode::Write, &["noexec", "vers=4.2", "ro"]),
            Ok(MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY)
        );
        let refused = of(Mode::Write, &["noexec", "password=hunter2"]).unwrap_err();
        assert!(refused.contains("mount flag 2") && !refused.contains("hunter2"), "{refused}");
    }
}
