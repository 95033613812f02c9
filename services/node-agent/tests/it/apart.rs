//! Mount namespaces of tests' own, which must not hold what other tests release.
//!
//! Where the host's mounts are private, a new namespace copies them all, and for a moment really
//! holds the volumes of every test that runs beside this one. So that nothing is released in that
//! moment, releases share a lock of the machine, and who makes a namespace has it alone.

use std::env;
use std::fs::File;

pub use berth_harness::namespace::{shell, wrapper};

/// Held until dropped. A process that ends gives it back.
#[must_use]
pub struct Held(#[expect(dead_code, reason = "its drop counts")] File);

/// For a release: no namespace is made meanwhile.
pub async fn releases() -> Held {
    lock(File::lock_shared).await
}

/// For a new namespace, until it has only what it is to have: nothing is released meanwhile.
pub async fn alone() -> Held {
    lock(File::lock).await
}

async fn lock(how: fn(&File) -> std::io::Result<()>) -> Held {
    let wait = move || {
        let file = File::create(env::temp_dir().join("berth-tests-releases.lock")).unwrap();
        how(&file).unwrap();
        Held(file)
    };
    tokio::task::spawn_blocking(wait).await.unwrap()
}
