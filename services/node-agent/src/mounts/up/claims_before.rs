//! The claims that an alloc had before its volumes are mounted as a whole.
//!
//! **Owns** a small file for each alloc whose `agent.mount-all` is under way,
//! `<state_dir>/mounting/<alloc>.json`: it outlives a kill of the agent, so that the next request
//! still knows which claims the earlier one took. It is not synced. After a crash of the host it
//! may be missing; then the claims of before the crash count as had before, and are kept.
//!
//! **Never** decides what is given up.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use berth_domain::limits::WAIT_MAX;
use berth_domain::{AllocId, Namespace, VolumeId};
use berth_service::runs::file_name;

use crate::host::pool::with_agent_file;

const DIR: &str = "mounting";
/// Age after which a file says nothing: no caller repeats its request that late.
const VALID_FOR: Duration = WAIT_MAX.saturating_mul(2);

/// The epoch of each claim that the alloc had.
pub(super) type ClaimEpochs = BTreeMap<VolumeId, u64>;

/// The file of one alloc.
#[derive(Debug, Clone)]
pub(super) struct ClaimsBefore(PathBuf);

impl ClaimsBefore {
    pub(super) fn of_alloc(state_dir: &Path, namespace: &Namespace, alloc: &AllocId) -> Self {
        Self(state_dir.join(DIR).join(format!("{}.json", file_name(namespace, alloc))))
    }

    /// What an earlier request has noted that did not come to its end, or else `now`, which is
    /// noted.
    pub(super) async fn begin(&self, now: ClaimEpochs) -> io::Result<ClaimEpochs> {
        let file = self.0.clone();
        with_agent_file("note the claims of an alloc", &self.0, move || {
            if let Some(noted) = read(&file)? {
                return Ok(noted);
            }
            let dir = file.parent().unwrap_or(&file);
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            remove_outdated(dir)?;
            let new = file.with_extension("new");
            fs::write(&new, serde_json::to_vec(&now)?)?;
            fs::rename(new, file)?;
            Ok(now)
        })
        .await
    }

    /// The request came to its end: what the alloc has now, it had before the next one.
    pub(super) async fn end(&self) {
        let file = self.0.clone();
        let remove = move || match fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        if let Err(error) = with_agent_file("forget the claims of an alloc", &self.0, remove).await
        {
            tracing::warn!(%error, path = %self.0.display(), "a note on claims stays");
        }
    }
}

fn read(file: &Path) -> io::Result<Option<ClaimEpochs>> {
    match fs::read(file) {
        // Half a file was written by an agent that was killed before it took a claim.
        Ok(content) if !is_outdated(file)? => Ok(serde_json::from_slice(&content).ok()),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_outdated(file: &Path) -> io::Result<bool> {
    let written = fs::metadata(file)?.modified()?;
    Ok(SystemTime::now().duration_since(written).is_ok_and(|age| age > VALID_FOR))
}

fn remove_outdated(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let file = entry?.path();
        if is_outdated(&file).unwrap_or(false) {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_an_earlier_request_noted_counts_until_one_comes_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let alloc = AllocId::new("a/b").unwrap();
        let file = ClaimsBefore::of_alloc(dir.path(), &Namespace::default(), &alloc);
        let epochs = |epoch| ClaimEpochs::from([(VolumeId::new("v").unwrap(), epoch)]);
        assert_eq!(file.begin(epochs(1)).await.unwrap(), epochs(1));
        assert_eq!(file.begin(epochs(2)).await.unwrap(), epochs(1));
        file.end().await;
        file.end().await;
        assert_eq!(file.begin(epochs(3)).await.unwrap(), epochs(3));
        let long_ago = SystemTime::now() - VALID_FOR * 2;
        fs::File::options().write(true).open(&file.0).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(file.begin(epochs(4)).await.unwrap(), epochs(4));
    }
}
