//! Text that must not occur where it would do harm.

use berth_tidy::repository::files;

use crate::assert_none;

/// A prefix of the path, the forbidden text, and the reason. Each text is put together here, so
/// that this file does not contain it.
const NOT_THERE: &[(&str, &str, &str)] = &[
    ("", concat!("py", "pi.org"), REGISTRY),
    ("", concat!("crates", ".io"), REGISTRY),
    ("", concat!("proxy.", "golang.org"), REGISTRY),
    ("", concat!("npm", "js"), REGISTRY),
    ("", concat!("deb.", "debian.org"), REGISTRY),
    ("shared/domain/src/", concat!("::", "now"), "time is passed in where decisions are made"),
    ("shared/domain/src/", concat!("async", " fn"), "decisions wait for nothing"),
    ("shared/domain/src/", concat!("std::", "fs"), "decisions touch nothing"),
    ("shared/domain/src/", concat!("std::", "env"), "decisions depend on their input alone"),
    ("services/node-agent/src/mounts/", concat!("spawn", "_blocking"), HANGS),
    ("services/node-agent/src/host/", concat!("spawn", "_blocking"), HANGS),
    ("services/node-agent/src/plugins/", concat!("spawn", "_blocking"), HANGS),
    ("services/node-agent/src/roster/", concat!("spawn", "_blocking"), HANGS),
    ("services/docker/src/keeper", concat!("spawn", "_blocking"), HANGS),
    ("services/node-agent/src/", concat!("tokio::", "fs"), HANGS),
    ("shared/host/src/", concat!("spawn", "_blocking"), HANGS),
];

/// Tokio's threads for blocking calls are for the journal and the resolver only.
const HANGS: &str = "what may hang runs in the HostPool";

/// Each machine has its own registry configuration.
const REGISTRY: &str = "clients know their registries; naming a host breaks mirrors";

/// Cargo writes this file, with the registry of each crate.
const WRITTEN_BY_TOOLS: [&str; 1] = ["Cargo.lock"];

#[test]
fn nothing_stands_where_it_does_harm() {
    let mut breaches = Vec::new();
    for file in files() {
        if WRITTEN_BY_TOOLS.contains(&file.path.as_str()) {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            for (prefix, text, why) in NOT_THERE {
                if file.path.starts_with(prefix) && line.contains(text) {
                    breaches.push(format!("{}:{}: {text} ({why})", file.path, index + 1));
                }
            }
        }
    }
    assert_none(breaches, "must not stand there (NOT_THERE)");
}
