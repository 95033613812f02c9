//! One system for the tests of a process that need none of their own.
//!
//! **Owns** that system, with a runtime of its own: it outlives the test that asked first. It is
//! never dropped; the end of the process ends its processes, and the janitor removes its directory.

use std::sync::OnceLock;
use std::thread;

use tokio::runtime::Runtime;

use super::{Options, System};

impl System {
    /// A running system with one node, which other tests use at the same time. For tests of refused
    /// requests: such a test has ids of its own, mounts nothing and restarts nothing.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<(Runtime, System)> = OnceLock::new();
        let start = || {
            let runtime = Runtime::new().expect("a runtime can be made");
            let system = runtime.block_on(Self::start(Options { nodes: 1, ..Options::default() }));
            (runtime, system)
        };
        // In a thread of its own: a runtime cannot be started inside that of the test.
        let (_, system) =
            SHARED.get_or_init(|| thread::spawn(start).join().expect("the shared system starts"));
        system
    }
}
