//! The top-level modules of a crate form no cycle: each can be read without those that use it.

use berth_tidy::imports::{cycles, imports};
use berth_tidy::repository::files;

use crate::assert_none;

#[test]
fn modules_use_each_other_in_one_direction_only() {
    let mut breaches = Vec::new();
    for (krate, imports) in imports(&files()) {
        if !krate.starts_with("services/") && !krate.starts_with("shared/") {
            continue;
        }
        for cycle in cycles(&imports) {
            for module in &cycle {
                let used = imports[*module].iter().filter(|used| cycle.contains(used.as_str()));
                let used: Vec<&str> = used.map(String::as_str).collect();
                breaches.push(format!("{krate}: {module} uses {}", used.join(", ")));
            }
        }
    }
    assert_none(breaches, "modules of a crate form no cycle; move what both need below them");
}
