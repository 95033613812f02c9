//! The files of a crate form no circle, and neither do its top-level modules: each can be read
//! without those that use it.

use std::collections::BTreeSet;

use berth_tidy::imports::{Uses, circles, file_uses, module_uses};
use berth_tidy::repository::files;

use crate::assert_none;

#[test]
fn modules_use_each_other_in_one_direction_only() {
    let mut breaches = Vec::new();
    for (krate, files) in crates() {
        let modules = module_uses(&files);
        for circle in circles(&modules) {
            breaches.extend(circle.iter().map(|module| row(&krate, &modules, &circle, module)));
        }
    }
    assert_none(breaches, "modules of a crate form no cycle; move what both need below them");
}

#[test]
fn files_use_each_other_in_one_direction_only() {
    let mut breaches = Vec::new();
    for (krate, files) in crates() {
        for circle in circles(&files) {
            let (first, count) = (circle.first().copied().unwrap_or_default(), circle.len());
            breaches.push(format!("{krate}: {count} files, from {first} on:"));
            let rows = circle.iter().map(|file| row(&krate, &files, &circle, file));
            breaches.extend(rows.map(|row| format!("  {row}")));
        }
    }
    assert_none(breaches, "files form no circle; move what both need to a file below them");
}

fn crates() -> impl Iterator<Item = (String, Uses)> {
    let is_ours = |krate: &String| krate.starts_with("services/") || krate.starts_with("shared/");
    file_uses(&files()).into_iter().filter(move |(krate, _)| is_ours(krate))
}

/// What of its circle a file or module uses.
fn row(krate: &str, uses: &Uses, circle: &BTreeSet<&str>, node: &str) -> String {
    let mutual = uses[node].iter().map(String::as_str).filter(|used| circle.contains(used));
    format!("{krate}: {node} uses {}", mutual.collect::<Vec<_>>().join(", "))
}
