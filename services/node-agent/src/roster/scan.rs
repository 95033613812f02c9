//! Scans for declarations of plugins: files in one directory, sockets in another.
//!
//! **Owns** the last readable declaration of each source, and which source has each socket.
//!
//! **Promises** that one bad file keeps no other from being read, and that all faults are reported
//! at once. A source that cannot be read now keeps its last declaration: a directory that does not
//! answer or a half-written file takes no plugin away.
//!
//! **Never** reads a file that others than its owner may write: the agent would run its command.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use berth_contract::document::{Format, read};
use berth_contract::message::plugin::SourceFault;
use berth_domain::PluginId;
use berth_host::socket::{FileType, in_words};
use berth_host::trust::{self, TrustError, Trusted, TrustedUsers};
use berth_service::process::chain;

use crate::plugins::declaration::{Declaration, PluginEndpoint, PluginSource};

/// Largest plugin file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Largest number of entries in a directory. A directory with more is a fault.
const ENTRIES_MAX: usize = 512;
/// Number of scans in a row that must miss a source before it is gone: editors replace files.
const MISSING_MAX: u8 = 2;

/// The declarations that one scan found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ScanResult {
    /// No two declarations have the same socket.
    pub found: Vec<(PluginSource, Declaration)>,
    pub faults: Vec<SourceFault>,
}

/// Where plugins are declared.
#[derive(Debug, Clone, Default)]
pub struct PluginSources {
    pub configured: Vec<Declaration>,
    /// Holds one file for each instance.
    pub plugins_dir: Option<PathBuf>,
    /// Holds the sockets of instances.
    pub sockets_dir: Option<PathBuf>,
}

/// Scans the sources again and again.
#[derive(Debug)]
pub struct PluginScanner {
    sources: PluginSources,
    // The last readable declaration of each source, and how often it was missing since.
    known: BTreeMap<PluginSource, (Declaration, u8)>,
    // The source that has each socket. It keeps the socket as long as it names it.
    owners: BTreeMap<PathBuf, PluginSource>,
}

type DeclarationRead = Result<Declaration, String>;

impl PluginScanner {
    pub fn new(sources: PluginSources) -> Self {
        Self { sources, known: BTreeMap::new(), owners: BTreeMap::new() }
    }

    /// Reserves the socket of an instance from before the agent's restart. Of two instances with
    /// the same socket the newer must be given last: the older was leaving.
    pub fn remember(&mut self, source: PluginSource, declaration: &Declaration) {
        if let PluginEndpoint::Socket(socket) = &declaration.endpoint {
            self.owners.insert(socket.clone(), source);
        }
    }

    /// Scans once. May wait for a disk.
    pub fn scan(&mut self) -> ScanResult {
        let mut faults = Vec::new();
        let mut found: Vec<(PluginSource, Declaration)> = Vec::new();
        let configured = self.sources.configured.iter().cloned();
        found.extend(configured.map(|one| (PluginSource::Configuration, one)));
        let is_file = |source: &PluginSource| matches!(source, PluginSource::File(_));
        if let Some(dir) = self.sources.plugins_dir.clone() {
            self.update_known(&dir, read_files(&dir), is_file, &mut faults);
        }
        if let Some(dir) = self.sources.sockets_dir.clone() {
            self.update_known(&dir, read_sockets(&dir), |source| !is_file(source), &mut faults);
        }
        let known = self
            .known
            .iter()
            .map(|(source, (declaration, _))| (source.clone(), declaration.clone()));
        found.extend(known);
        ScanResult { found: self.remove_duplicates(found, &mut faults), faults }
    }

    /// Leaves one declaration for each socket. The source that had the socket keeps it, because
    /// calls of its plugin may be under way. Of new sources the configuration goes before files and
    /// files before sockets, each by name.
    fn remove_duplicates(
        &mut self,
        found: Vec<(PluginSource, Declaration)>,
        faults: &mut Vec<SourceFault>,
    ) -> Vec<(PluginSource, Declaration)> {
        let mut owners: BTreeMap<PathBuf, (PluginSource, PluginId)> = BTreeMap::new();
        for (source, declaration) in &found {
            let PluginEndpoint::Socket(socket) = &declaration.endpoint else { continue };
            // A file may declare the socket's owner as trusted.
            let name = socket.display().to_string();
            faults.retain(|fault| fault.source != name);
            let owner = || (source.clone(), declaration.id.clone());
            if self.owners.get(socket) == Some(source) {
                owners.insert(socket.clone(), owner());
            } else {
                owners.entry(socket.clone()).or_insert_with(owner);
            }
        }
        let found = found.into_iter().filter(|(source, declaration)| {
            let PluginEndpoint::Socket(socket) = &declaration.endpoint else { return true };
            let Some((owner, plugin)) = owners.get(socket) else { return true };
            if owner == source {
                return true;
            }
            // A file may name a socket that lies in `sockets_dir`.
            if !matches!(source, PluginSource::Socket(_)) {
                let socket = socket.display();
                let problem = format!(
                    "`socket` {socket} is plugin {plugin}'s, by {owner}, which keeps it; name \
                     another socket, or take {owner} away first"
                );
                faults.push(SourceFault { source: source.to_string(), problem });
            }
            false
        });
        let found = found.collect();
        self.owners = owners.into_iter().map(|(socket, (source, _))| (socket, source)).collect();
        found
    }

    /// Updates the known declarations with those read from one directory. `is_in_dir` selects the
    /// sources of that directory.
    fn update_known(
        &mut self,
        dir: &Path,
        seen: Result<Vec<(PluginSource, DeclarationRead)>, String>,
        is_in_dir: impl Fn(&PluginSource) -> bool,
        faults: &mut Vec<SourceFault>,
    ) {
        let seen = match seen {
            Ok(seen) => seen,
            Err(problem) => {
                faults.push(SourceFault { source: dir.display().to_string(), problem });
                return;
            }
        };
        let there: BTreeSet<&PluginSource> = seen.iter().map(|(source, _)| source).collect();
        self.known.retain(|source, (_, missing)| {
            if is_in_dir(source) {
                *missing = if there.contains(source) { 0 } else { *missing + 1 };
            }
            *missing < MISSING_MAX
        });
        for (source, seen) in seen {
            match seen {
                Ok(declaration) => {
                    self.known.insert(source, (declaration, 0));
                }
                Err(problem) => {
                    let kept = self.known.contains_key(&source);
                    let kept = if kept { "; what it said before stays in force" } else { "" };
                    let problem = format!("{problem}{kept}");
                    faults.push(SourceFault { source: source.to_string(), problem });
                }
            }
        }
    }
}

/// The entries of a directory, by name.
fn list_entries(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: io::Error| format!("cannot be looked at: {error}");
    let trusted = open_trusted(dir)?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(handle_path(&trusted)).map_err(failed)? {
        paths.push(dir.join(entry.map_err(failed)?.file_name()));
        if paths.len() > ENTRIES_MAX {
            return Err(format!("holds more than {ENTRIES_MAX} entries"));
        }
    }
    paths.sort();
    Ok(paths)
}

/// Opens a path that only root and the agent's user may write.
fn open_trusted(path: &Path) -> Result<Trusted, String> {
    trust::open(path, &TrustedUsers::own()).map_err(|error| chain(&error))
}

/// A path to the open file, even if another file has its name by now.
fn handle_path(trusted: &Trusted) -> String {
    format!("/proc/self/fd/{}", trusted.file.as_raw_fd())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// `<dir>/<any name>.toml`.
fn read_files(dir: &Path) -> Result<Vec<(PluginSource, DeclarationRead)>, String> {
    let paths = list_entries(dir)?.into_iter().filter(|path| {
        path.extension().is_some_and(|extension| extension == "toml") && !is_hidden(path)
    });
    Ok(paths.map(|path| (PluginSource::File(path.clone()), read_file(&path))).collect())
}

fn read_file(path: &Path) -> DeclarationRead {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let trusted = open_trusted(path)?;
    if trusted.kind != FileType::RegularFile {
        return Err(format!("is {}, not a file", in_words(trusted.kind)));
    }
    let path = handle_path(&trusted);
    let bytes = fs::metadata(&path).map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(format!("has {bytes} bytes; at most {FILE_BYTES_MAX} are read"));
    }
    let bytes = fs::read(path).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| "is no text in UTF-8".to_owned())?;
    read::<Declaration>(&text, Format::Toml).map_err(|faults| {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        faults.join("; ")
    })
}

/// `<dir>/<id>.sock` and `<dir>/<id>/csi.sock`, where `@<instance>` may follow the id.
fn read_sockets(dir: &Path) -> Result<Vec<(PluginSource, DeclarationRead)>, String> {
    let mut seen = Vec::new();
    for path in list_entries(dir)?.into_iter().filter(|path| !is_hidden(path)) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let (name, socket) = match name.strip_suffix(".sock") {
            Some(name) => (name, path.clone()),
            None => (name, path.join("csi.sock")),
        };
        let found = match trust::open(&socket, &TrustedUsers::own()) {
            // Other files in the directory are no plugins.
            Err(error)
                if matches!(
                    error.kind(),
                    Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
                ) =>
            {
                continue;
            }
            found => found.map_err(|error| describe_untrusted(&error)),
        };
        let id = name.split('@').next().unwrap_or(name).to_owned();
        let source = PluginSource::Socket(socket.clone());
        seen.push((source, read_socket(id, &socket, found)));
    }
    Ok(seen)
}

/// Says why a socket is not used: its owner would get the secrets of volumes.
fn describe_untrusted(error: &TrustError) -> String {
    let also = match error {
        TrustError::Owner { user, .. } => {
            format!(", or name the socket in a file of `plugins_dir` with `owner = {user}`")
        }
        _ => String::new(),
    };
    format!("{}{also}", chain(error))
}

fn read_socket(id: String, socket: &Path, found: Result<Trusted, String>) -> DeclarationRead {
    if found?.kind != FileType::Socket {
        return Err("is no socket".to_owned());
    }
    let id = PluginId::new(id).map_err(|fault| format!("names no plugin: {fault}"))?;
    Ok(Declaration::socket(id, socket))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::os::unix::net::UnixListener;

    use super::*;

    struct ScanDirs {
        dir: tempfile::TempDir,
    }

    impl ScanDirs {
        fn new() -> Self {
            let place = Self { dir: tempfile::tempdir().unwrap() };
            for dir in [place.plugins(), place.sockets()] {
                fs::create_dir(&dir).unwrap();
                fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
            }
            place
        }

        fn plugins(&self) -> PathBuf {
            self.dir.path().join("plugins.d")
        }

        fn sockets(&self) -> PathBuf {
            self.dir.path().join("sockets")
        }

        fn scanner(&self) -> PluginScanner {
            PluginScanner::new(PluginSources {
                configured: Vec::new(),
                plugins_dir: Some(self.plugins()),
                sockets_dir: Some(self.sockets()),
            })
        }

        fn write(&self, name: &str, text: impl AsRef<[u8]>) {
            let path = self.plugins().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    fn ids(scan: &ScanResult) -> Vec<&str> {
        scan.found.iter().map(|(_, said)| said.id.as_str()).collect()
    }

    #[test]
    fn files_come_and_go_and_one_that_turns_bad_stays_in_force() {
        let place = ScanDirs::new();
        let mut scanner = place.scanner();
        assert_eq!(scanner.scan(), ScanResult::default());
        place.write("a.toml", "id = 'a'\nsocket = '/run/a.sock'");
        place.write("b.toml", "id = 'b'\ncommand = ['/bin/b']");
        place.write("notes.txt", "not ours");
        place.write(".c.toml", "not yet ours");
        assert_eq!(ids(&scanner.scan()), ["a", "b"]);
        place.write("a.toml", "id = 'a");
        let scan = scanner.scan();
        assert_eq!(ids(&scan), ["a", "b"]);
        assert!(scan.faults[0].problem.contains("stays in force"), "{scan:?}");
        fs::remove_file(place.plugins().join("a.toml")).unwrap();
        assert_eq!(ids(&scanner.scan()), ["a", "b"], "it may be being replaced");
        assert_eq!(ids(&scanner.scan()), ["b"]);
        // A directory that cannot be looked at takes nothing away.
        fs::rename(place.plugins(), place.dir.path().join("away")).unwrap();
        for _ in 0..3 {
            let scan = scanner.scan();
            assert_eq!(ids(&scan), ["b"]);
            assert_eq!(scan.faults.len(), 1);
        }
    }

    #[test]
    fn sockets_are_named_by_their_plugins_and_a_file_goes_before() {
        let place = ScanDirs::new();
        let mut scanner = place.scanner();
        let dir = place.sockets();
        let mut held = Vec::new();
        for socket in ["a.sock", "b/csi.sock", "b@v2/csi.sock", "c@x.sock"] {
            let path = dir.join(socket);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            held.push(UnixListener::bind(path).unwrap());
        }
        fs::write(dir.join("d.sock"), "").unwrap();
        fs::write(dir.join("readme"), "").unwrap();
        fs::create_dir(dir.join("empty")).unwrap();
        let scan = scanner.scan();
        assert_eq!(ids(&scan), ["a", "b", "b", "c"]);
        assert_eq!(scan.faults.len(), 1, "{scan:?}");
        assert_eq!(scan.faults[0].problem, "is no socket");
        let said = format!("id = 'z'\nsocket = '{}'", dir.join("a.sock").display());
        place.write("z.toml", &said);
        let scan = scanner.scan();
        assert_eq!(ids(&scan), ["a", "b", "b", "c"], "what is here stays");
        assert!(scan.faults.iter().any(|one| one.problem.contains("a.sock")), "{scan:?}");
        place.write("zz.toml", &said);
        let scan = place.scanner().scan();
        assert_eq!(ids(&scan), ["z", "b", "b", "c"], "of what is new at once, a file goes before");
        assert_eq!(scan.faults.len(), 2, "{scan:?}");
    }

    #[test]
    fn a_newcomer_does_not_take_the_socket_of_a_plugin_that_is_here() {
        let place = ScanDirs::new();
        let mut scanner = place.scanner();
        let said = |id: &str, socket: &str| format!("id = '{id}'\nsocket = '{socket}'");
        place.write("m.toml", said("m", "/run/m.sock"));
        assert_eq!(ids(&scanner.scan()), ["m"]);
        for name in ["aa.toml", "zz.toml"] {
            place.write(name, said("other", "/run/./m.sock"));
            let scan = scanner.scan();
            assert_eq!(ids(&scan), ["m"], "{name} took its socket");
            let [fault] = &scan.faults[..] else { panic!("{scan:?}") };
            assert!(fault.source.ends_with(name), "{scan:?}");
            assert!(fault.problem.contains("m.toml"), "{scan:?}");
            // Nor after a restart of the agent, which knows the plugin by its record.
            let (source, m) = scan.found[0].clone();
            let mut next = place.scanner();
            next.remember(source, &m);
            assert_eq!(ids(&next.scan()), ["m"], "{name} took its socket at a restart");
            fs::remove_file(place.plugins().join(name)).unwrap();
            for _ in 0..MISSING_MAX {
                scanner.scan();
            }
        }
        // Once the first names another socket, the newcomer may have it.
        place.write("aa.toml", said("other", "/run/m.sock"));
        assert_eq!(ids(&scanner.scan()), ["m"]);
        place.write("m.toml", said("m", "/run/m2.sock"));
        let scan = scanner.scan();
        assert_eq!((ids(&scan), scan.faults.len()), (vec!["other", "m"], 0));
    }

    #[test]
    fn what_a_stranger_could_have_put_there_is_no_plugin() {
        let place = ScanDirs::new();
        let mut scanner = place.scanner();
        let dir = place.sockets();
        let mut held = Vec::new();
        for name in ["open", "sticky", "strangers"] {
            fs::create_dir(dir.join(name)).unwrap();
            held.push(UnixListener::bind(dir.join(name).join("csi.sock")).unwrap());
        }
        assert_eq!(ids(&scanner.scan()), ["open", "sticky", "strangers"]);
        for (name, mode) in [("open", 0o775), ("sticky", 0o1777)] {
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        if chown(dir.join("strangers"), Some(4711), None).is_err() {
            println!("SKIPPED (needs root): gives a directory to another user");
            return;
        }
        let scan = place.scanner().scan();
        assert_eq!(ids(&scan), [""; 0]);
        let why: Vec<&str> = scan.faults.iter().map(|fault| fault.problem.as_str()).collect();
        assert_eq!(why.len(), 3, "{why:?}");
        assert!(why[0].contains("mode 0775") && why[0].contains("chmod go-w"), "{why:?}");
        assert!(why[1].contains("mode 1777"), "{why:?}");
        assert!(why[2].contains("user 4711") && why[2].contains("owner = 4711"), "{why:?}");

        // Whoever may write to `plugins_dir` may say that the stranger is trusted.
        let socket = dir.join("strangers/csi.sock");
        place.write("s.toml", format!("id = 's'\nsocket = '{}'\nowner = 4711", socket.display()));
        let scan = place.scanner().scan();
        assert_eq!((ids(&scan), scan.faults.len()), (vec!["s"], 2), "{scan:?}");
        // The directory above counts as well.
        fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let scan = place.scanner().scan();
        assert_eq!((ids(&scan), scan.faults.len()), (vec![], 2), "{scan:?}");
    }

    #[test]
    fn garbage_is_told_and_keeps_nothing_from_being_read() {
        let place = ScanDirs::new();
        place.write("a.toml", [0xff, 0xfe]);
        place.write("b.toml", "x".repeat(100_000));
        place.write("c.toml", "");
        place.write("d.toml", "id = 'd'\nsocket = '/run/d.sock'");
        place.write("e.toml", "id = 'e'\nsocket = '/run/e.sock'");
        let open = place.plugins().join("e.toml");
        fs::set_permissions(open, fs::Permissions::from_mode(0o666)).unwrap();
        fs::create_dir(place.plugins().join("f.toml")).unwrap();
        std::os::unix::fs::symlink("/nowhere", place.plugins().join("g.toml")).unwrap();
        let scan = place.scanner().scan();
        assert_eq!(ids(&scan), ["d"]);
        assert_eq!(scan.faults.len(), 6, "{scan:?}");
    }
}
