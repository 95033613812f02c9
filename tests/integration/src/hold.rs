//! Holding a plugin call for as long as a test needs, however slow its machine is.

use std::time::Duration;

use berth_harness::wait;
use serde_json::{Value, json};

use crate::system::System;

/// How soon a call begins that is due.
const DUE: Duration = Duration::from_secs(30);

impl System {
    /// Has the next call of an RPC on each node stand still before its work, until
    /// [`Self::let_go`].
    pub fn hold(&self, rpc: &str) {
        for node in 0..self.options.nodes {
            self.plant(node, &json!([{"rpc": rpc, "when": "before", "hang": true, "times": 1}]));
        }
    }

    /// Waits until a call of the RPC is under way: begun and not ended.
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

    /// Lets what is held go on, and plants nothing any more.
    pub fn let_go(&self) {
        for node in 0..self.options.nodes {
            self.plant(node, &json!([]));
        }
    }
}
