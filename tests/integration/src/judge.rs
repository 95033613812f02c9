//! The end of every test: everything at rest, and nothing was done that a CO must never do.

use std::time::Duration;

use berth_harness::dirs::mounts_beneath;
use berth_harness::process::binary;
use berth_harness::wait;
use serde_json::Value;

use crate::system::System;

impl System {
    /// Waits until nothing is left of a volume's use, then judges by the drivers' own logs.
    pub async fn settle(&self, volume: &str) {
        self.freed(volume).await;
        // Free is free: what is still attached then, nobody will ever detach.
        assert_eq!(self.in_use(volume), None, "{volume} is free, and the storage has it in use");
        wait::until("no mount is left", Duration::from_secs(10), || async {
            let left = mounts_beneath(self.dir().path());
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        self.judge();
    }

    /// What the storage itself says of where a volume is attached, staged or published, if it is.
    pub fn in_use(&self, volume: &str) -> Option<Value> {
        let file = self.backend().join("volumes").join(volume).join("state.json");
        let state = std::fs::read_to_string(file).ok()?;
        let state: Value = serde_json::from_str(&state).ok()?;
        let some = |field: &str| state[field].as_object().is_some_and(|uses| !uses.is_empty());
        (some("attachments") || some("nodes")).then_some(state)
    }

    /// The judge reads the logs of all drivers together.
    pub fn judge(&self) {
        let judged = std::process::Command::new(binary("berth-csi-dev"))
            .arg("judge")
            .args(self.call_logs().into_iter().filter(|log| log.exists()))
            .output()
            .expect("the judge runs");
        let said = String::from_utf8_lossy(&judged.stdout);
        let calls = self.calls();
        let log: Vec<String> = calls.iter().map(ToString::to_string).collect();
        assert!(judged.status.success(), "{said}\n{}", log.join("\n"));
        let refused: Vec<&Value> = calls
            .iter()
            .filter(|call| call.get("violation").is_some_and(|v| !v.is_null()))
            .collect();
        assert!(refused.is_empty(), "the driver refused what a CO must never do: {refused:#?}");
    }

    /// Every line of every driver's log, in the order of time.
    pub fn calls(&self) -> Vec<Value> {
        let mut calls: Vec<Value> = self
            .call_logs()
            .iter()
            .filter_map(|log| std::fs::read_to_string(log).ok())
            .flat_map(|text| text.lines().map(serde_json::from_str).collect::<Vec<_>>())
            .filter_map(Result::ok)
            .collect();
        let at = |call: &Value| {
            let times = ["begin_us", "end_us", "gone_us", "start_us", "fence_us"];
            times.iter().find_map(|time| call.get(time).and_then(Value::as_u64))
        };
        calls.sort_by_key(at);
        calls
    }
}
