//! The end of every test: everything is at rest, and no driver's log breaks a rule of CSI.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use berth_harness::dirs::mounts_beneath;
use berth_harness::{judge, storage, wait};
use serde_json::Value;

use crate::system::System;

impl System {
    /// Waits until nothing is left of a volume's use, then judges by the drivers' own logs.
    pub async fn settle(&self, volume: &str) {
        self.freed(volume).await;
        // A free volume's leftover attachment would never be detached.
        assert_eq!(self.in_use(volume), None, "{volume} is free, and the storage has it in use");
        wait::until("no mount is left", Duration::from_secs(10), || async {
            let left = mounts_beneath(self.dir().path());
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        self.judge();
    }

    /// What the storage reports of the volume's attachment, staging or publication, if any.
    pub fn in_use(&self, volume: &str) -> Option<Value> {
        self.all_in_use().into_iter().find(|one| one["volume_id"] == volume)
    }

    /// What the storage reports of every volume that is attached, staged or published.
    pub fn all_in_use(&self) -> Vec<Value> {
        storage::in_use(&self.backend())
    }

    /// The judge reads the logs of all drivers together.
    pub fn judge(&self) {
        // A driver that is not a plugin writes no log.
        let is_expected = |log: &PathBuf| self.options.healthy.is_none() || log.exists();
        judge::assert_right(self.call_logs().into_iter().filter(is_expected));
        let calls = self.calls();
        let refused: Vec<&Value> = calls
            .iter()
            .filter(|call| call.get("violation").is_some_and(|v| !v.is_null()))
            .collect();
        assert!(refused.is_empty(), "the driver refused what a CO must never do: {refused:#?}");
    }

    /// Every line of every driver's log, in the order of time. An unfinished last line is skipped,
    /// because the driver may be writing it. Any other unreadable line is a failure.
    pub fn calls(&self) -> Vec<Value> {
        let mut calls: Vec<Value> = self.call_logs().iter().flat_map(read_log).collect();
        let at = |call: &Value| {
            let times = ["begin_us", "end_us", "gone_us", "start_us", "fence_us"];
            times.iter().find_map(|time| call.get(time).and_then(Value::as_u64))
        };
        calls.sort_by_key(at);
        calls
    }
}

fn read_log(log: &PathBuf) -> Vec<Value> {
    let text = match std::fs::read_to_string(log) {
        Ok(text) => text,
        // Its driver has not started yet.
        Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("{} cannot be read: {error}", log.display()),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line)
                .unwrap_or_else(|error| panic!("{}:{}: {error}: {line}", log.display(), at + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Value> {
        let file = std::env::temp_dir().join(format!("berth-judge-{}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let read = std::panic::catch_unwind(|| read_log(&file));
        std::fs::remove_file(&file).unwrap();
        read.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    #[test]
    #[should_panic(expected = ":2:")]
    fn a_line_that_cannot_be_read_is_a_failure() {
        assert_eq!(read("{}\n\n{}\n{\"a\":").len(), 2);
        read("{}\n{\"a\":\n{}\n");
    }
}
