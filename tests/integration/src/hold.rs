//! Plugin calls that hang until the test releases them, however slow the machine is.

use std::time::Duration;

use berth_harness::wait;
use serde_json::{Value, json};

use crate::system::System;

/// How long the test waits for the held call to begin.
const DUE: Duration = Duration::from_secs(30);

impl System {
    /// Makes the next call of an RPC on each node hang before its work, until [`Self::let_go`].
    pub fn hold(&self, rpc: &str) {
        for node in 0..self.options.nodes {
            self.plant(node, &json!([{"rpc": rpc, "when": "before", "hang": true, "times": 1}]));
        }
    }

    /// Waits until a call of the RPC has begun and not ended.
    pub async fn under_way(&self, rpc: &str) {
        wait::until(&format!("{rpc} is under way"), DUE, || async {
            let calls = self.calls();
            let count = |entry: &str| {
                let is = |call: &&Value| call["entry"] == entry && call["rpc"] == rpc;
                calls.iter().filter(is).count()
            };
            let (begun, ended) = (count("begin"), count("end"));
            if begun > ended { Ok(()) } else { Err(format!("{begun} begun, {ended} ended")) }
        })
        .await;
    }

    /// Lets held calls continue, and removes all planted faults.
    pub fn let_go(&self) {
        for node in 0..self.options.nodes {
            self.plant(node, &json!([]));
        }
    }
}
