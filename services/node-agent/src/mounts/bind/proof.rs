//! Proves that this agent made a bind mount.
//!
//! **Owns** a file `proof-<name>` beside each link and each view. It holds the boot of the host,
//! the content of the mount, its parent mount, and the kernel's ids of the mount.
//!
//! **Promises**
//! - that a proof is on the disk before its mount is made. The mount's ids are added afterwards.
//!   Until then the content and the parent mount prove the mount;
//! - that a mount without proof is foreign. That holds for a dead mount, too, because the proof
//!   needs the mount table only.
//!
//! **Never** accepts a mount of another boot: a boot ends every mount.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use berth_host::identity::{MountId, mount_id};
use berth_host::table::MountTable;
use berth_host::{Mount, MountContent};
use serde::{Deserialize, Serialize};

const PROOF_PREFIX: &str = "proof-";

/// The stored proof of one mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BindProof {
    boot_id: String,
    content: MountContent,
    /// The mounted directory within the file system. In bytes, because paths need not be UTF-8.
    root: Vec<u8>,
    /// The id of the parent mount.
    parent: Option<u64>,
    /// The id of the mount, once it is made. The kernel may reuse it.
    id: Option<u64>,
    /// The id that the kernel does not reuse in this boot (Linux 6.8).
    unique_id: Option<u64>,
}

/// Whether this agent made a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BindVerdict {
    /// This agent made it, in this boot.
    Ours,
    /// The agent's mount ended with an earlier boot. This is another mount.
    EarlierBoot,
    /// Nothing proves that this agent made it. Holds the reason for people.
    Foreign(&'static str),
}

/// The file with the proof of a link or view.
pub(super) fn proof_file(link_or_view: &Path) -> PathBuf {
    let name = link_or_view.file_name().unwrap_or_default().to_string_lossy();
    link_or_view.with_file_name(format!("{PROOF_PREFIX}{name}"))
}

/// Removes the proofs in an alloc's directory. The caller has removed the links and views.
pub(super) fn remove_proofs(alloc_dir: &Path, entries: &[PathBuf]) -> io::Result<()> {
    let is_proof = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.as_bytes().starts_with(PROOF_PREFIX.as_bytes()))
    };
    for entry in entries.iter().filter(is_proof) {
        fs::remove_file(alloc_dir.join(entry.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

impl BindProof {
    /// The proof of a mount that is about to be made: `source`, bound to `path`.
    pub(super) fn intend(boot_id: &str, source: &Mount, table: &MountTable, path: &Path) -> Self {
        let above = table.mounts().iter().filter(|mount| path.starts_with(&mount.point));
        // Of two mounts at one path the later one is on top.
        let parent = above.max_by_key(|mount| mount.point.as_os_str().len());
        Self {
            boot_id: boot_id.to_owned(),
            content: source.content(),
            root: source.root.as_os_str().as_bytes().to_vec(),
            parent: parent.map(|mount| mount.id),
            id: None,
            unique_id: None,
        }
    }

    /// Adds the ids once the mount is made.
    pub(super) fn with_mount_ids(self, mount: &Mount) -> Self {
        let unique_id = match mount_id(&mount.point) {
            Ok(MountId::Unique(id)) => Some(id),
            // An older kernel, or a dead mount.
            Ok(MountId::Reusable(_)) | Err(_) => None,
        };
        Self { id: Some(mount.id), unique_id, ..self }
    }

    /// Writes the proof and syncs it.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let new = file.with_extension("new");
        let mut open = File::create(&new)?;
        open.write_all(&serde_json::to_vec(self)?)?;
        open.sync_all()?;
        fs::rename(&new, file)?;
        File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Reads a proof. `None` if an earlier version made the mount.
    pub(super) fn read_proof(file: &Path) -> io::Result<Option<Self>> {
        match fs::read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    fn has_content_of(&self, mount: &Mount) -> bool {
        self.content == mount.content() && mount.root.as_os_str() == OsStr::from_bytes(&self.root)
    }

    fn judge_mount(&self, boot_id: &str, top: &Mount) -> BindVerdict {
        if self.boot_id != boot_id {
            return BindVerdict::EarlierBoot;
        }
        if !self.has_content_of(top) {
            return BindVerdict::Foreign("it shows something else");
        }
        match (self.id, self.unique_id) {
            (None, _) if self.parent == Some(top.parent) => BindVerdict::Ours,
            (None, _) => BindVerdict::Foreign("it lies upon another mount than was intended"),
            (Some(id), _) if id != top.id => BindVerdict::Foreign("it is another mount"),
            (Some(_), None) => BindVerdict::Ours,
            (Some(_), Some(unique)) => match mount_id(&top.point) {
                Ok(MountId::Unique(id)) if id != unique => {
                    BindVerdict::Foreign("it is another mount")
                }
                // A dead mount has no unique id to read. The other fields prove it.
                _ => BindVerdict::Ours,
            },
        }
    }
}

/// Whether this agent made the mount `top`, by the proof at `file`. Earlier versions wrote no
/// proof. Then a mount with the content of `target`, the published volume, counts as the agent's.
pub(super) fn judge_mount(
    file: &Path,
    boot_id: &str,
    top: &Mount,
    target: Option<&Mount>,
) -> io::Result<BindVerdict> {
    Ok(match BindProof::read_proof(file)? {
        Some(proof) => proof.judge_mount(boot_id, top),
        None if target.is_some_and(|target| have_same_content(target, top)) => BindVerdict::Ours,
        None => BindVerdict::Foreign("the agent has no record of it"),
    })
}

/// Whether both mounts have the same content.
pub(super) fn have_same_content(one: &Mount, other: &Mount) -> bool {
    one.content() == other.content() && one.root == other.root
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "boot-1";

    fn mount(line: &str) -> Mount {
        Mount::parse(line.as_bytes()).unwrap()
    }

    fn table() -> MountTable {
        let lines = [
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
            "30 22 8:1 /b /s/target rw - ext4 /dev/sda1 rw",
            "31 22 0:40 / /srv rw - tmpfs tmpfs rw",
        ];
        lines.map(mount).into_iter().collect()
    }

    #[test]
    fn a_mount_is_proven_by_its_ids_or_by_what_was_intended_and_never_after_a_boot() {
        let table = table();
        let source = table.top_at(Path::new("/s/target")).unwrap();
        let intended = BindProof::intend(BOOT, source, &table, Path::new("/srv/data"));
        assert_eq!(intended.parent, Some(31));
        let ours = mount("40 31 8:1 /b /srv/data rw - ext4 /dev/sda1 rw");
        let upon_it = mount("41 40 8:1 /b /srv/data rw - ext4 /dev/sda1 rw");
        let other = mount("40 31 8:1 /c /srv/data rw - ext4 /dev/sda1 rw");
        let is =
            |proof: &BindProof, mount: &Mount| proof.judge_mount(BOOT, mount) == BindVerdict::Ours;
        assert!(is(&intended, &ours) && !is(&intended, &upon_it) && !is(&intended, &other));
        let made = intended.clone().with_mount_ids(&ours);
        assert!(is(&made, &ours) && !is(&made, &upon_it) && !is(&made, &other));
        for proof in [intended, made] {
            assert_eq!(proof.judge_mount("boot-2", &ours), BindVerdict::EarlierBoot);
        }
    }

    #[test]
    fn an_id_that_another_mount_was_given_is_told_by_the_one_that_is_never_used_again() {
        let proc = MountTable::read_blocking().unwrap();
        let proc = proc.top_at(Path::new("/proc")).unwrap();
        let table: MountTable = [proc.clone()].into_iter().collect();
        let proof = BindProof::intend(BOOT, proc, &table, Path::new("/proc")).with_mount_ids(proc);
        assert_eq!(proof.judge_mount(BOOT, proc), BindVerdict::Ours);
        if proof.unique_id.is_none() {
            println!("SKIPPED (needs Linux 6.8): this kernel has no such ids");
            return;
        }
        let reused = BindProof { unique_id: Some(1), ..proof };
        assert!(matches!(reused.judge_mount(BOOT, proc), BindVerdict::Foreign(_)));
    }

    #[test]
    fn without_a_record_only_what_is_published_proves_a_mount() {
        let dir = tempfile::tempdir().unwrap();
        let (link, table) = (dir.path().join("bind-target-1"), table());
        let file = proof_file(&link);
        assert_eq!(file, dir.path().join("proof-bind-target-1"));
        let target = table.top_at(Path::new("/s/target"));
        let ours = mount("40 31 8:1 /b /srv/data rw - ext4 /dev/sda1 rw");
        let verdict = |target| judge_mount(&file, BOOT, &ours, target).unwrap();
        assert_eq!(verdict(target), BindVerdict::Ours);
        assert!(matches!(verdict(None), BindVerdict::Foreign(_)));
        assert!(matches!(verdict(table.top_at(Path::new("/srv"))), BindVerdict::Foreign(_)));

        let root = OsStr::from_bytes(b"/\xff \\040\n");
        let source = Mount { root: root.into(), ..ours.clone() };
        let proof = BindProof::intend(BOOT, &source, &table, Path::new("/srv/data"));
        proof.write(&file).unwrap();
        assert_eq!(BindProof::read_proof(&file).unwrap(), Some(proof));
        assert!(matches!(verdict(target), BindVerdict::Foreign(_)), "the record counts");
        remove_proofs(dir.path(), &[file.clone(), link]).unwrap();
        assert!(!file.exists());
        fs::write(&file, "{").unwrap();
        assert!(judge_mount(&file, BOOT, &ours, target).is_err(), "unknown is not ours");
    }
}
