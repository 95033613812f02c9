//! `--volume SOURCE[:PATH][:ro]`.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use berth_domain::VolumeId;

/// A volume as the command line asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeArg {
    /// The volume.
    pub source: VolumeId,
    /// Where the command shall find it, besides its path on the node; absolute.
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

/// The parts between colons; a backslash makes the next character an ordinary one.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, parts.last_mut()) {
            (':', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.push(letters.next().unwrap_or('\\')),
            (letter, Some(part)) => part.push(letter),
            // There is always a last part.
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
    // Written in one way, so that what is meant twice is seen to be.
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
    fn every_form_is_read() {
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
    fn what_makes_no_sense_is_refused_with_its_reason() {
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
