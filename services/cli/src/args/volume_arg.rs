//! `--volume SOURCE[:PATH][:ro]` and `--volume new:SIZE[:PATH]`.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use berth_domain::size::Size;
use berth_domain::{ClassId, VolumeId};

use crate::size;

/// A volume on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeArg {
    /// The volume.
    pub source: VolumeId,
    /// Absolute path at which the command finds the volume, besides its path on the node.
    pub path: Option<PathBuf>,
    /// Whether the command only reads.
    pub read_only: bool,
}

impl FromStr for VolumeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = parts(text);
        let (source, rest) = parts.split_first().ok_or("is empty")?;
        let source = VolumeId::new(source.as_str()).map_err(|fault| format!("the id {fault}"))?;
        let (path, read_only) = match rest {
            [] => (None, false),
            [only] if only == "ro" => (None, true),
            [path] => (Some(absolute(path)?), false),
            [path, mode] if mode == "ro" => (Some(absolute(path)?), true),
            _ => return Err("has too many parts; write SOURCE[:PATH][:ro]".to_owned()),
        };
        Ok(Self { source, path, read_only })
    }
}

/// The first part of an argument for a new volume.
const NEW: &str = "new";

/// A volume of a run: one that exists, or a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunVolumeArg {
    /// A volume that exists already.
    There(VolumeArg),
    /// A volume that is created for the run, and deleted after it.
    New(EphemeralArg),
}

/// A volume for one run, on the command line: `new:[CLASS:]SIZE[:PATH]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EphemeralArg {
    /// Its class, unless `--class` names it.
    pub class: Option<ClassId>,
    /// Its smallest size.
    pub size: Size,
    /// Absolute path at which the command finds the volume, besides its path on the node.
    pub path: Option<PathBuf>,
}

impl FromStr for RunVolumeArg {
    type Err = String;

    /// `new`, `new:/PATH` and `new:ro` name a volume whose id is `new`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = parts(text);
        let is_size_or_class = |part: &&String| !part.starts_with('/') && *part != "ro";
        match parts.as_slice() {
            [first, second, rest @ ..] if first == NEW && is_size_or_class(&second) => {
                read_new(second, rest).map(Self::New)
            }
            _ => text.parse().map(Self::There),
        }
    }
}

fn read_new(second: &str, rest: &[String]) -> Result<EphemeralArg, String> {
    let (class, size, rest) = match (size::parse(second), rest) {
        (Ok(size), rest) => (None, size, rest),
        (Err(_), [size, rest @ ..]) if !size.starts_with('/') && size != "ro" => {
            let class = ClassId::new(second).map_err(|fault| format!("the class {fault}"))?;
            (Some(class), size::parse(size)?, rest)
        }
        (Err(fault), _) => return Err(fault),
    };
    let path = match rest {
        [] => None,
        [path] => Some(absolute(path)?),
        _ => return Err("has too many parts; write new:[CLASS:]SIZE[:PATH]".to_owned()),
    };
    Ok(EphemeralArg { class, size, path })
}

/// The parts between colons; a backslash makes the next character an ordinary one.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut()) {
            (':', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.push(letters.next().unwrap_or('\\')),
            (letter, Some(part)) => part.push(letter),
            (_, None) => {}
        }
    }
    parts
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    if !path.starts_with('/') {
        return Err(format!(
            "{path:?} is neither an absolute path nor `ro`; \
             a colon in the volume's id is written \\:"
        ));
    }
    // One spelling of each path, so that two volumes at the same path are noticed.
    let path: PathBuf = Path::new(path).components().collect();
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{} goes up (`..`); write where it leads to", path.display()));
    }
    if path == Path::new("/") {
        return Err("would hide all of the host's files, the command's too, at `/`".to_owned());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(source: &str, path: Option<&str>, read_only: bool) -> VolumeArg {
        let source = VolumeId::new(source).unwrap();
        VolumeArg { source, path: path.map(PathBuf::from), read_only }
    }

    #[test]
    fn every_form_of_a_volume_argument_is_parsed() {
        for (text, expected) in [
            ("data", arg("data", None, false)),
            ("data:ro", arg("data", None, true)),
            ("data:/srv/data", arg("data", Some("/srv/data"), false)),
            ("data:/srv//data/./", arg("data", Some("/srv/data"), false)),
            ("data:/srv/data:ro", arg("data", Some("/srv/data"), true)),
            ("ro", arg("ro", None, false)),
            (r"a\:b:/c\:d:ro", arg("a:b", Some("/c:d"), true)),
            (r"a\\b", arg(r"a\b", None, false)),
            ("a b/c.d", arg("a b/c.d", None, false)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_new_volume_has_a_size() {
        let new = |class: Option<&str>, size: &str, path: Option<&str>| {
            let class = class.map(|class| ClassId::new(class).unwrap());
            let path = path.map(PathBuf::from);
            RunVolumeArg::New(EphemeralArg { class, size: size.parse().unwrap(), path })
        };
        for (text, expected) in [
            ("new:10GiB", new(None, "10GiB", None)),
            ("new:10GiB:/scratch", new(None, "10GiB", Some("/scratch"))),
            ("new:fast:10GiB", new(Some("fast"), "10GiB", None)),
            ("new:fast:10GiB:/scratch", new(Some("fast"), "10GiB", Some("/scratch"))),
            ("new", RunVolumeArg::There(arg("new", None, false))),
            ("new:ro", RunVolumeArg::There(arg("new", None, true))),
            ("new:/srv", RunVolumeArg::There(arg("new", Some("/srv"), false))),
            ("data:ro", RunVolumeArg::There(arg("data", None, true))),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for (text, reason) in [
            ("new:10", "has no unit"),
            ("new:fast", "is no size"),
            ("new:fast:0GiB", "is 0"),
            ("new:10GiB:ro", "absolute path"),
            ("new:10GiB:/a:ro", "too many parts"),
            ("new:", "is no size"),
        ] {
            let problem = text.parse::<RunVolumeArg>().unwrap_err();
            assert!(problem.contains(reason), "{text}: {problem}");
        }
    }

    #[test]
    fn a_malformed_volume_argument_is_refused_with_its_reason() {
        for (text, reason) in [
            ("", "is empty"),
            (":/srv", "is empty"),
            ("data:srv", "absolute path"),
            ("data:rw", "absolute path"),
            ("data:", "absolute path"),
            ("data:/srv:rx", "too many parts"),
            ("data:/", "hide"),
            ("data:/srv/../etc", "goes up"),
            ("data:/srv:ro:ro", "too many parts"),
            ("a\nb", "control character"),
        ] {
            let problem = text.parse::<VolumeArg>().unwrap_err();
            assert!(problem.contains(reason), "{text}: {problem}");
        }
    }
}
