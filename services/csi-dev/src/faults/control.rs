//! The control socket.
//!
//! Owns: a line protocol for planting faults while the driver runs. A line with a JSON array
//! replaces the faults planted so before; `?` asks. Both are answered by one line: all that stand,
//! as a JSON array with how often each was used, or `{"faults": […]}` with what is wrong. Promises:
//! what was answered counts for the next call. Never: touches the fault file.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Faults, parse};

/// The longest line that is read, in bytes.
const LONGEST_LINE: u64 = 1 << 20;
/// How many may ask at once; others wait.
const MOST_CALLERS: usize = 8;
/// How long a caller may be silent, and how long it waits itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the control socket gave no faults.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Nobody answers there.
    #[error(
        "no answer from the control socket {}; start the driver with --control {}",
        path.display(), path.display()
    )]
    Io {
        /// Which socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It did not understand what was asked; nothing has changed.
    #[error("refused: {0}")]
    Refused(String),
}

/// What is answered.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer<T> {
    Standing(T),
    Wrong { faults: Vec<String> },
}

/// Serves the control socket, for ever.
pub async fn serve(listener: UnixListener, faults: Arc<Faults>) {
    let places = Arc::new(Semaphore::new(MOST_CALLERS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                eprintln!("the control socket cannot accept: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let faults = Arc::clone(&faults);
        tokio::spawn(async move {
            // A caller that breaks off has only itself to tell.
            _ = converse(stream, &faults).await;
            drop(place);
        });
    }
}

async fn converse(stream: UnixStream, faults: &Faults) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = tokio::io::BufReader::new(read);
    loop {
        let mut line = String::new();
        let mut bounded = (&mut read).take(LONGEST_LINE);
        if timeout(PATIENCE, bounded.read_line(&mut line)).await?? == 0 {
            return Ok(());
        }
        let mut answer = answer(line.trim(), faults);
        answer.push(b'\n');
        timeout(PATIENCE, write.write_all(&answer)).await??;
    }
}

fn answer(line: &str, faults: &Faults) -> Vec<u8> {
    let done = if line == "?" { Ok(()) } else { parse(line).map(|list| faults.set(list)) };
    let standing = done.and_then(|()| faults.show().map_err(|error| vec![error.to_string()]));
    let answer = match standing {
        Ok(standing) => Answer::Standing(standing),
        Err(faults) => Answer::Wrong { faults },
    };
    // Values of ours can always be written.
    serde_json::to_vec(&answer).unwrap_or_default()
}

/// Asks the driver behind `socket`: plants the array `set`, if there is one, and returns all faults
/// that stand, as one line of JSON.
pub fn ask(socket: &Path, set: Option<&str>) -> Result<String, ControlError> {
    let failed = |source| ControlError::Io { path: socket.to_owned(), source };
    let mut stream = BlockingStream::connect(socket).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    // One line: a line break within JSON is only space.
    let line = format!("{}\n", set.unwrap_or("?").replace(['\n', '\r'], " "));
    stream.write_all(line.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    let most = 16 * LONGEST_LINE;
    BufReader::new(stream).take(most).read_line(&mut answer).map_err(failed)?;
    let answer = answer.trim_end();
    if answer.starts_with('[') {
        return Ok(answer.to_owned());
    }
    let wrong: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    let wrong = wrong["faults"].as_array().into_iter().flatten();
    let wrong: Vec<_> = wrong.filter_map(serde_json::Value::as_str).collect();
    Err(ControlError::Refused(wrong.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_plant_show_and_are_refused() {
        let faults = Faults::from_file(None);
        let ask = |line: &str| String::from_utf8(answer(line, &faults)).unwrap();
        assert_eq!(ask("?"), "[]");
        let planted = ask(r#"[{"code":"ABORTED","times":2}]"#);
        let listed = r#"[{"used":0,"fitted":0,"when":"before","code":"ABORTED","times":2}]"#;
        assert_eq!(planted, listed);
        let refused = ask(r#"[{"cod":"ABORTED"}]"#);
        assert!(refused.contains("unknown field `cod`"), "{refused}");
        assert_eq!(ask("?"), listed, "a refused line changes nothing");
        assert_eq!(ask("[]"), "[]");
    }
}
