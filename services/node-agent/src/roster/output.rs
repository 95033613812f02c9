//! Copies the output of a plugin's process into the agent's log, line by line.
//!
//! **Owns** the file that the process writes to. The file is emptied when it is larger than
//! [`FILE_BYTES_MAX`]. The position read so far is on disk, so that a killed agent logs nothing
//! twice.
//!
//! **Promises** a bounded number of lines, of bounded length, without control characters. The
//! number of bytes left out is logged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Size from which the file is emptied once all of it was read, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Largest amount read at once, in bytes. Older output is left out.
const READ_BYTES_MAX: u64 = 64 * 1024;
/// Largest number of lines logged at once.
const LINES_MAX: usize = 50;
/// Longest line that is logged, in characters.
const LINE_CHARS_MAX: usize = 1000;

/// Follows one file.
#[derive(Debug)]
pub struct PluginOutput {
    path: PathBuf,
    mark: PathBuf,
    /// The position read so far, in bytes. `None` before the first read.
    at: Option<u64>,
}

/// The output since the last read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OutputLines {
    pub lines: Vec<String>,
    pub left_out: u64,
}

impl PluginOutput {
    /// Follows the file from where an earlier agent process stopped. Reads nothing yet.
    pub fn follow(path: &Path) -> Self {
        Self { path: path.to_owned(), mark: path.with_extension("read"), at: None }
    }

    /// Reads the output since the last read. An unfinished line waits for its end, unless this is
    /// the `last` read. Waits for the disk.
    pub fn read_new_lines(&mut self, last: bool) -> io::Result<OutputLines> {
        let mut file = match OpenOptions::new().read(true).write(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(OutputLines::default());
            }
            file => file?,
        };
        let length = file.metadata()?.len();
        let marked = || fs::read_to_string(&self.mark).ok()?.trim().parse().ok();
        let mut at = self.at.or_else(marked).filter(|at| *at <= length).unwrap_or(0);
        self.at = Some(at);
        if length == at {
            return Ok(OutputLines::default());
        }
        let mut said = OutputLines::default();
        if length - at > READ_BYTES_MAX {
            said.left_out = length - at - READ_BYTES_MAX;
            at = length - READ_BYTES_MAX;
        }
        let read = read(&mut file, at)?;
        let whole = match read.iter().rposition(|byte| *byte == b'\n') {
            _ if last => read.len(),
            Some(end) => end + 1,
            // A line longer than all that is read in one go is logged in parts.
            None if read.len() as u64 >= READ_BYTES_MAX => read.len(),
            None => 0,
        };
        at += whole as u64;
        let text = String::from_utf8_lossy(&read[..whole]);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if said.lines.len() < LINES_MAX {
                said.lines.push(tidy(line));
            } else {
                said.left_out += line.len() as u64;
            }
        }
        if at == length && length > FILE_BYTES_MAX {
            // Output written since the read is lost. It is only a log.
            file.set_len(0)?;
            at = 0;
        }
        self.at = Some(at);
        fs::write(&self.mark, at.to_string())?;
        Ok(said)
    }
}

fn read(file: &mut File, at: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.take(READ_BYTES_MAX).read_to_end(&mut read)?;
    Ok(read)
}

/// Removes control characters, and cuts a long line.
fn tidy(line: &str) -> String {
    let mut chars = line.chars().map(|one| if one.is_control() { ' ' } else { one });
    let mut tidy: String = chars.by_ref().take(LINE_CHARS_MAX).collect();
    if chars.next().is_some() {
        tidy.push('…');
    }
    tidy
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn say(path: &Path, text: impl AsRef<[u8]>) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_ref()).unwrap();
    }

    #[test]
    fn lines_are_told_once_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let mut output = PluginOutput::follow(&path);
        assert_eq!(output.read_new_lines(false).unwrap(), OutputLines::default());
        say(&path, "one\ntwo\nthr");
        assert_eq!(output.read_new_lines(false).unwrap().lines, ["one", "two"]);
        assert_eq!(output.read_new_lines(false).unwrap(), OutputLines::default());
        let mut again = PluginOutput::follow(&path);
        say(&path, "ee\n\x1b[31mred\x07\n");
        assert_eq!(again.read_new_lines(false).unwrap().lines, ["three", " [31mred "]);
        say(&path, "last words");
        assert_eq!(again.read_new_lines(true).unwrap().lines, ["last words"]);
    }

    #[test]
    fn a_flood_is_bounded_and_the_file_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output.log");
        let mut output = PluginOutput::follow(&path);
        say(&path, format!("{}\n", "x".repeat(99)).repeat(20_000));
        let said = output.read_new_lines(false).unwrap();
        assert_eq!(said.lines.len(), LINES_MAX);
        assert!(said.left_out > 1_900_000, "{}", said.left_out);
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        say(&path, "y".repeat(100_000));
        let said = output.read_new_lines(false).unwrap();
        assert_eq!(said.lines.len(), 1);
        assert_eq!(said.lines[0].chars().count(), LINE_CHARS_MAX + 1);
        say(&path, [0xff, 0xfe, b'\n']);
        assert_eq!(output.read_new_lines(false).unwrap().lines.len(), 1);
    }
}
